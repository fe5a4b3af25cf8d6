//! A page of documentation as a test sees it: sections with blocks of code, the commands in them, the files they show.
//!
//! Knows nothing of running them.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

/// A page.
pub(crate) struct Page {
    /// Where it is, from the root of the repository.
    pub(crate) path: String,
    pub(crate) sections: Vec<Section>,
}

/// What stands under a heading; before the first one, under none.
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) blocks: Vec<Block>,
}

/// A block of code.
pub(crate) struct Block {
    pub(crate) language: String,
    /// The file that it is, if the page says so.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
    /// The line of the page that its first line is.
    line: usize,
    /// Whether nothing stands between it and the block before it.
    follows: bool,
}

/// A command, which may have several lines.
pub(crate) struct Command {
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
            // What builds leave is not documentation, and neither is what others have written.
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
                    let (text, line, file) = (String::new(), index + 2, file.take());
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
        assert!(open.is_none(), "{path}: a block has no end");
        Self { path: path.to_owned(), sections }
    }

    /// All commands, in order.
    pub(crate) fn commands(&self) -> Vec<Command> {
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
            _ => panic!("{}: there is one block of JSON under {heading:?}", self.path),
        }
    }
}

impl Block {
    /// Whether it has commands.
    pub(crate) fn is_shell(&self) -> bool {
        self.language == "sh"
    }

    /// Whether it has commands and calls them something else.
    pub(crate) fn is_shell_by_another_name(&self) -> bool {
        ["bash", "console", "shell", "zsh"].contains(&self.language.as_str())
    }

    /// Whether it shows what the block right before it prints.
    pub(crate) fn is_told(&self) -> bool {
        self.language == "text" && self.follows
    }

    /// The line of the page that it begins in.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The commands, in order: lines that belong together are one.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        let mut open = Command { line: 0, text: String::new() };
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
                commands.push(std::mem::replace(&mut open, Command { line: 0, text: String::new() }));
            } else {
                open.text.push('\n');
            }
        }
        commands
    }
}

impl Command {
    /// Whether it runs a server.
    pub(crate) fn is_server(&self) -> bool {
        is_server(&self.text)
    }

    /// How it ends, as the page says.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        let digits = self.text.split("# exits with ").nth(1)?;
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        Some(digits.parse().unwrap())
    }
}

/// Whether a command runs a server.
pub(crate) fn is_server(command: &str) -> bool {
    command.contains("abide serve")
}

/// Whether a shell would not wait for another line.
fn is_whole(text: &str) -> bool {
    let mut shell = Process::new("bash");
    let status = shell.args(["-n", "-c", text]).stderr(Stdio::null()).status().unwrap();
    !text.ends_with('\\') && status.success()
}

#[test]
fn a_page_is_read_as_people_read_it() {
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
    let seen: Vec<_> = commands.iter().map(|command| (command.line, command.exit_code())).collect();
    assert_eq!(seen, [(11, Some(3)), (14, None)]);
    assert_eq!(commands[1].text, "for a in b; do\n  three\ndone");
}
