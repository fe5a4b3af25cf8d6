//! Plays a page from start to end: writes its files, runs its commands, and compares their output with the page.

use std::process::{Command as Process, Stdio};

use crate::output_match::first_missing;
use crate::page::{Block, Page, PageCommand, Section};
use crate::page_setups::{PageSetup, skipped};
use crate::shell::{Shell, ShellOutput, wait_until};

/// Commands that only read. Their output is eventually consistent, so they are repeated until it matches the page.
const READ_ONLY_COMMANDS: &[&str] =
    &["abide show ", "abide list", "abide history ", "abide stuck", "abide workflows versions "];
/// The exit code of curl for an HTTP error.
const CURL_REFUSED: i32 = 22;
/// Errors that may end when an earlier request has taken effect. The refused request itself has done nothing, so it can
/// be repeated.
const NOT_YET_CODES: &[&str] = &["\"CONFLICT\"", "\"RESOURCE_NOT_FOUND\""];

/// The numbers of commands that were run and skipped.
#[derive(Default)]
pub(crate) struct PageResult {
    pub(crate) run: usize,
    pub(crate) skipped: usize,
}

struct PagePlayer<'a> {
    page: &'a Page,
    setup: &'static PageSetup,
    shell: Shell,
    curl: bool,
    played: PageResult,
    /// The prefixes of `before` and `exits` that were used.
    used: Vec<&'static str>,
}

/// Plays a page. The error names the line and what is wrong.
pub(crate) fn play(page: &Page, setup: &'static PageSetup) -> Result<PageResult, String> {
    let shell = Shell::new();
    let mut player =
        PagePlayer { page, setup, shell, curl: has_curl(), played: PageResult::default(), used: Vec::new() };
    player.begin()?;
    for section in &page.sections {
        player.section(section)?;
    }
    player.end()
}

impl PagePlayer<'_> {
    /// Prepares the page's preconditions, and starts a server if the page does not.
    fn begin(&mut self) -> Result<(), String> {
        let runs = |command: &PageCommand| skipped(&command.text).is_none();
        let commands: Vec<PageCommand> = self.page.commands().into_iter().filter(runs).collect();
        if !commands.is_empty() && !commands.iter().any(|command| command.is_server()) {
            self.shell.run("abide serve")?;
        }
        // If two files have the same name, the first one is written last. Its section writes the other one.
        for (heading, name) in self.setup.shown.iter().rev() {
            self.shell.write(name, self.page.json_in(heading));
        }
        self.prepare(self.setup.given)
    }

    fn prepare(&mut self, script: &str) -> Result<(), String> {
        let output = self.shell.run_command(&format!("true\n{script}"));
        match output.code {
            0 => Ok(()),
            code => Err(format!("{}: the setup exits with {code}: {}", self.page.path, output.printed)),
        }
    }

    fn section(&mut self, section: &Section) -> Result<(), String> {
        for (_, name) in self.setup.shown.iter().filter(|(heading, _)| *heading == section.heading) {
            self.shell.write(name, self.page.json_in(&section.heading));
        }
        let mut blocks = section.blocks.iter().peekable();
        while let Some(block) = blocks.next() {
            if block.is_shell_by_another_name() {
                let place = format!("{}:{}", self.page.path, block.line());
                return Err(format!("{place}: a block of commands must be marked ```sh"));
            }
            if let Some(name) = &block.file {
                self.shell.write(name, &block.text);
            }
            if block.is_shell() {
                let shown = blocks.peek().filter(|next| next.is_expected_output());
                self.block(block, shown.map(|shown| shown.text.as_str()))?;
            }
        }
        Ok(())
    }

    /// Runs the commands of a block. Read-only commands at its end are repeated until their output is the shown one.
    fn block(&mut self, block: &Block, shown: Option<&str>) -> Result<(), String> {
        let commands = block.commands();
        let all = commands.len();
        let mut runs: Vec<PageCommand> =
            commands.into_iter().filter(|command| !self.skips(command)).collect();
        self.played.skipped += all - runs.len();
        self.played.run += runs.len();
        let is_read =
            |command: &PageCommand| READ_ONLY_COMMANDS.iter().any(|read| command.text.starts_with(read));
        let writes = runs.iter().rposition(|command| !is_read(command)).map_or(0, |last| last + 1);
        let reads = runs.split_off(writes);
        let printed_first = self.all(&runs)?;
        let shown = shown.filter(|_| runs.len() + reads.len() > 0).unwrap_or_default();
        let mut once = || {
            let printed = format!("{printed_first}{}", self.all(&reads)?);
            let place = format!("{}:{}", self.page.path, block.line());
            match first_missing(shown, &printed) {
                Some(line) => Err(format!("{place}: {line:?} is not printed:\n{printed}")),
                None => Ok(()),
            }
        };
        if reads.is_empty() {
            return once();
        }
        let mut last = Ok(());
        wait_until(|| {
            last = once();
            last.is_ok().then_some(())
        });
        last
    }

    /// Runs commands and returns their output.
    fn all(&mut self, commands: &[PageCommand]) -> Result<String, String> {
        let mut printed = String::new();
        for command in commands {
            self.before(command)?;
            let place = format!("{}:{}", self.page.path, command.line);
            let output = self.run(command).map_err(|error| format!("{place}: {error}"))?;
            let expected = self.exit_code(command);
            if output.code != expected {
                let text = &command.text;
                let code = output.code;
                let printed = output.printed;
                return Err(format!("{place}: `{text}` exits with {code}, not with {expected}:\n{printed}"));
            }
            printed.push_str(&output.printed);
        }
        Ok(printed)
    }

    /// Runs a command, and repeats it while it is refused because an earlier request has not taken effect yet.
    fn run(&mut self, command: &PageCommand) -> Result<ShellOutput, String> {
        let mut last = self.shell.run(&command.text)?;
        let not_yet = |output: &ShellOutput| {
            output.code == CURL_REFUSED && NOT_YET_CODES.iter().any(|error| output.printed.contains(error))
        };
        if not_yet(&last) {
            wait_until(|| {
                last = self.shell.run(&command.text).ok()?;
                (!not_yet(&last)).then_some(())
            });
        }
        Ok(last)
    }

    /// Runs the setup's script for a command, the first time that command occurs.
    fn before(&mut self, command: &PageCommand) -> Result<(), String> {
        for (prefix, script) in self.setup.before {
            if command.text.starts_with(prefix) && !self.used.contains(prefix) {
                self.used.push(prefix);
                self.prepare(script)?;
            }
        }
        Ok(())
    }

    fn exit_code(&mut self, command: &PageCommand) -> i32 {
        let exits = self.setup.exits.iter().find(|(prefix, _)| command.text.starts_with(prefix));
        self.used.extend(exits.map(|(prefix, _)| prefix));
        command.exit_code().or(exits.map(|(_, code)| *code)).unwrap_or(0)
    }

    /// True if a command is not run. The reason is printed.
    fn skips(&self, command: &PageCommand) -> bool {
        let no_curl = !self.curl && command.text.starts_with("curl ");
        let reason = skipped(&command.text).copied();
        let reason = reason.or(no_curl.then_some("there is no curl here, or one older than 7.82"));
        if let Some(reason) = reason {
            eprintln!("{}:{}: not run: {reason}", self.page.path, command.line);
        }
        reason.is_some()
    }

    /// Fails if the setup names a command that the page no longer has.
    fn end(self) -> Result<PageResult, String> {
        let prefixes = self.setup.before.iter().map(|(prefix, _)| prefix);
        let mut prefixes = prefixes.chain(self.setup.exits.iter().map(|(prefix, _)| prefix));
        match prefixes.find(|prefix| self.curl && !self.used.contains(prefix)) {
            Some(prefix) => Err(format!("{} no longer has a command {prefix:?}", self.page.path)),
            None => Ok(self.played),
        }
    }
}

/// True if there is a curl that supports the options of the pages.
fn has_curl() -> bool {
    let mut curl = Process::new("curl");
    curl.args(["--fail-with-body", "--json", "{}", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    curl.status().is_ok_and(|status| status.success())
}
