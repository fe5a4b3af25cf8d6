//! Parses a documentation page into sections, code blocks, commands and files. It runs nothing.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

pub(crate) struct Page {
    /// Its path from the root of the repository.
    pub(crate) path: String,
    pub(crate) sections: Vec<Section>,
}

/// The blocks under one heading. The heading is empty before the first one.
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) blocks: Vec<Block>,
}

/// A code block.
pub(crate) struct Block {
    pub(crate) language: String,
    /// The name of the file that it is, from the mark before it.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
    /// The line number of its first line in the page.
    line: usize,
    /// True if there is no text between this block and the block before it.
    follows: bool,
}

/// A command, possibly of several lines.
pub(crate) struct PageCommand {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages of the repository.
pub(crate) fn paths() -> Vec<String> {
    let mut found = Vec::new();
    find(&root(), "", &mut found);
    found.sort();
    found
}

fn find(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            // Build output and dependencies are not part of the documentation.
            if !name.starts_with('.') && !name.starts_with("target") && name != "node_modules" {
                find(&entry.path(), &format!("{path}/"), found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text =
            std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self::parse(path, &text)
    }

    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let mut sections = vec![Section { heading: String::new(), blocks: Vec::new() }];
        let mut open: Option<Block> = None;
        let mut file = None;
        let mut follows = false;
        for (index, line) in text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (Some(_), Some(_)) => sections.last_mut().unwrap().blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    let text = String::new();
                    let line = index + 2;
                    let file = file.take();
                    open = Some(Block { language, file, text, line, follows });
                    follows = true;
                }
                (None, None) => {
                    follows &= line.trim().is_empty();
                    if let Some(heading) = line.strip_prefix('#') {
                        let heading = heading.trim_start_matches('#').trim().to_owned();
                        sections.push(Section { heading, blocks: Vec::new() });
                    }
                    file = line
                        .strip_prefix("<!-- file: ")
                        .and_then(|rest| rest.strip_suffix(" -->"))
                        .map(str::to_owned);
                }
            }
        }
        assert!(open.is_none(), "{path}: a code block is not closed");
        Self { path: path.to_owned(), sections }
    }

    /// All commands, in order.
    pub(crate) fn commands(&self) -> Vec<PageCommand> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.filter(|block| block.is_shell()).flat_map(Block::commands).collect()
    }

    /// The only block of JSON in a section.
    pub(crate) fn json_in(&self, heading: &str) -> &str {
        let sections = self.sections.iter().filter(|section| section.heading == heading);
        let mut blocks =
            sections.flat_map(|section| &section.blocks).filter(|block| block.language == "json");
        match (blocks.next(), blocks.next()) {
            (Some(block), None) => &block.text,
            _ => panic!("{}: expected exactly one block of JSON under {heading:?}", self.path),
        }
    }
}

impl Block {
    pub(crate) fn is_shell(&self) -> bool {
        self.language == "sh"
    }

    /// True if it is a shell block with another mark than `sh`.
    pub(crate) fn is_shell_by_another_name(&self) -> bool {
        ["bash", "console", "shell", "zsh"].contains(&self.language.as_str())
    }

    /// True if it shows the output of the block right before it.
    pub(crate) fn is_expected_output(&self) -> bool {
        self.language == "text" && self.follows
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The commands, in order. Lines that belong together are one command.
    pub(crate) fn commands(&self) -> Vec<PageCommand> {
        let mut commands = Vec::new();
        let mut open = PageCommand { line: 0, text: String::new() };
        let mut lines = self.text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            if open.text.is_empty() {
                if line.trim().is_empty() || line.trim_start().starts_with('#') {
                    continue;
                }
                open.line = self.line + index;
            }
            open.text.push_str(line);
            if lines.peek().is_none() || is_whole(&open.text) {
                commands.push(std::mem::replace(&mut open, PageCommand { line: 0, text: String::new() }));
            } else {
                open.text.push('\n');
            }
        }
        commands
    }
}

impl PageCommand {
    pub(crate) fn is_server(&self) -> bool {
        is_server(&self.text)
    }

    /// The expected exit code, if the page has one.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let digits = self.text.split("# exits with ").nth(1)?;
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        Some(digits.parse().unwrap())
    }
}

/// True if the command runs a server.
pub(crate) fn is_server(command: &str) -> bool {
    command.contains("abide serve")
}

/// True if a shell would not wait for another line.
fn is_whole(text: &str) -> bool {
    let mut shell = Process::new("bash");
    let status = shell.args(["-n", "-c", text]).stderr(Stdio::null()).status().unwrap();
    !text.ends_with('\\') && status.success()
}

#[test]
fn a_page_is_parsed_into_sections_blocks_and_commands() {
    let text = "\
# Title

<!-- file: a.json -->
```json
{}
```

## Part
```sh
# a remark
one \\
  two   # exits with 3

for a in b; do
  three
done
```
```json
# not a heading
```
";
    let page = Page::parse("p.md", text);
    let headings: Vec<&str> = page.sections.iter().map(|section| section.heading.as_str()).collect();
    assert_eq!(headings, ["", "Title", "Part"]);
    assert_eq!(page.sections[1].blocks[0].file.as_deref(), Some("a.json"));
    assert_eq!((page.json_in("Title"), page.json_in("Part")), ("{}\n", "# not a heading\n"));
    let commands = page.sections[2].blocks[0].commands();
    let lines: Vec<_> = commands.iter().map(|command| (command.line, command.exit_code())).collect();
    assert_eq!(lines, [(11, Some(3)), (14, None)]);
    assert_eq!(commands[1].text, "for a in b; do\n  three\ndone");
}
