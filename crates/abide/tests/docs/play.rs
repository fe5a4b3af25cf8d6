//! Plays a page from its beginning to its end: its files are written, its commands run, what they print compared with what it shows.

use std::process::{Command as Process, Stdio};

use crate::page::{Block, Command, Page, Section};
use crate::printed::first_missing;
use crate::settings::{Setting, skipped};
use crate::shell::{Shell, Told, wait_until};

/// Commands that only look: what they tell follows what happened, so they are asked again until they tell what the page shows.
const LOOKS: &[&str] =
    &["abide show ", "abide list", "abide history ", "abide stuck", "abide workflows versions "];
/// How curl ends when the answer is a refusal.
const CURL_REFUSED: i32 = 22;
/// Refusals that end by themselves, when what was asked for before is through. A refused request has done nothing.
const NOT_YET: &[&str] = &["\"CONFLICT\"", "\"RESOURCE_NOT_FOUND\""];

/// How much was done.
#[derive(Default)]
pub(crate) struct Played {
    pub(crate) run: usize,
    pub(crate) skipped: usize,
}

struct Player<'a> {
    page: &'a Page,
    setting: &'static Setting,
    shell: Shell,
    curl: bool,
    played: Played,
    /// What of `before` and of `exits` was used.
    used: Vec<&'static str>,
}

/// Plays a page. The error says where it is wrong, and how.
pub(crate) fn play(page: &Page, setting: &'static Setting) -> Result<Played, String> {
    let shell = Shell::new();
    let mut player =
        Player { page, setting, shell, curl: there_is_curl(), played: Played::default(), used: Vec::new() };
    player.begin()?;
    for section in &page.sections {
        player.section(section)?;
    }
    player.end()
}

impl Player<'_> {
    /// What the page takes for granted. One that does not start a server finds one.
    fn begin(&mut self) -> Result<(), String> {
        let runs = |command: &Command| skipped(&command.text).is_none();
        let commands: Vec<Command> = self.page.commands().into_iter().filter(runs).collect();
        if !commands.is_empty() && !commands.iter().any(|command| command.is_server()) {
            self.shell.run("abide serve")?;
        }
        // Of two with one name the first is there first; the other one comes with its section.
        for (heading, name) in self.setting.shown.iter().rev() {
            self.shell.write(name, self.page.json_in(heading));
        }
        self.prepare(self.setting.given)
    }

    fn prepare(&mut self, script: &str) -> Result<(), String> {
        let told = self.shell.ask(&format!("true\n{script}"));
        match told.code {
            0 => Ok(()),
            code => Err(format!("{}: to prepare it exits with {code}: {}", self.page.path, told.printed)),
        }
    }

    fn section(&mut self, section: &Section) -> Result<(), String> {
        for (_, name) in self.setting.shown.iter().filter(|(heading, _)| *heading == section.heading) {
            self.shell.write(name, self.page.json_in(&section.heading));
        }
        let mut blocks = section.blocks.iter().peekable();
        while let Some(block) = blocks.next() {
            if block.is_shell_by_another_name() {
                let place = format!("{}:{}", self.page.path, block.line());
                return Err(format!("{place}: a block of commands is written ```sh"));
            }
            if let Some(name) = &block.file {
                self.shell.write(name, &block.text);
            }
            if block.is_shell() {
                let told = blocks.peek().filter(|next| next.is_told());
                self.block(block, told.map(|told| told.text.as_str()))?;
            }
        }
        Ok(())
    }

    /// Runs the commands of a block. Those at its end that only look are run until they tell what is shown.
    fn block(&mut self, block: &Block, shown: Option<&str>) -> Result<(), String> {
        let commands = block.commands();
        let all = commands.len();
        let mut runs: Vec<Command> = commands.into_iter().filter(|command| !self.skips(command)).collect();
        self.played.skipped += all - runs.len();
        self.played.run += runs.len();
        let looks = |command: &Command| LOOKS.iter().any(|look| command.text.starts_with(look));
        let acts = runs.iter().rposition(|command| !looks(command)).map_or(0, |last| last + 1);
        let looks = runs.split_off(acts);
        let done = self.all(&runs)?;
        let shown = shown.filter(|_| runs.len() + looks.len() > 0).unwrap_or_default();
        let mut once = || {
            let printed = format!("{done}{}", self.all(&looks)?);
            let place = format!("{}:{}", self.page.path, block.line());
            match first_missing(shown, &printed) {
                Some(line) => Err(format!("{place}: {line:?} is not printed:\n{printed}")),
                None => Ok(()),
            }
        };
        if looks.is_empty() {
            return once();
        }
        let mut last = Ok(());
        wait_until(|| {
            last = once();
            last.is_ok().then_some(())
        });
        last
    }

    /// Runs commands, and gives what they print.
    fn all(&mut self, commands: &[Command]) -> Result<String, String> {
        let mut printed = String::new();
        for command in commands {
            self.before(command)?;
            let place = format!("{}:{}", self.page.path, command.line);
            let told = self.run(command).map_err(|wrong| format!("{place}: {wrong}"))?;
            let expected = self.exit_code(command);
            if told.code != expected {
                let (text, code, printed) = (&command.text, told.code, told.printed);
                return Err(format!("{place}: `{text}` exits with {code}, not with {expected}:\n{printed}"));
            }
            printed.push_str(&told.printed);
        }
        Ok(printed)
    }

    /// Runs a command; one that is refused because something is not through yet, again.
    fn run(&mut self, command: &Command) -> Result<Told, String> {
        let mut last = self.shell.run(&command.text)?;
        let not_yet = |told: &Told| {
            told.code == CURL_REFUSED && NOT_YET.iter().any(|refusal| told.printed.contains(refusal))
        };
        if not_yet(&last) {
            wait_until(|| {
                last = self.shell.run(&command.text).ok()?;
                (!not_yet(&last)).then_some(())
            });
        }
        Ok(last)
    }

    /// What happens before a command, once.
    fn before(&mut self, command: &Command) -> Result<(), String> {
        for (prefix, script) in self.setting.before {
            if command.text.starts_with(prefix) && !self.used.contains(prefix) {
                self.used.push(prefix);
                self.prepare(script)?;
            }
        }
        Ok(())
    }

    fn exit_code(&mut self, command: &Command) -> i32 {
        let exits = self.setting.exits.iter().find(|(prefix, _)| command.text.starts_with(prefix));
        self.used.extend(exits.map(|(prefix, _)| prefix));
        command.exit_code().or(exits.map(|(_, code)| *code)).unwrap_or(0)
    }

    /// Whether a command is not run; then it is said why.
    fn skips(&self, command: &Command) -> bool {
        let no_curl = !self.curl && command.text.starts_with("curl ");
        let reason = skipped(&command.text).copied();
        let reason = reason.or(no_curl.then_some("there is no curl here, or one older than 7.82"));
        if let Some(reason) = reason {
            eprintln!("{}:{}: not run: {reason}", self.page.path, command.line);
        }
        reason.is_some()
    }

    /// Fails if the setting has what the page has no more.
    fn end(self) -> Result<Played, String> {
        let prefixes = self.setting.before.iter().map(|(prefix, _)| prefix);
        let mut prefixes = prefixes.chain(self.setting.exits.iter().map(|(prefix, _)| prefix));
        match prefixes.find(|prefix| self.curl && !self.used.contains(prefix)) {
            Some(prefix) => Err(format!("{} does not say {prefix:?} any more", self.page.path)),
            None => Ok(self.played),
        }
    }
}

/// Whether there is a curl that knows what pages ask of it.
fn there_is_curl() -> bool {
    let mut curl = Process::new("curl");
    curl.args(["--fail-with-body", "--json", "{}", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    curl.status().is_ok_and(|status| status.success())
}
