//! One shell for all commands of a page, in a folder of its own, with the `abide` that is tested.
//!
//! What one command leaves, a folder, a variable, a server in the background, the next one finds, as in a terminal. Servers listen on ports that
//! are free and are found by what they print, so that many shells can be at work; a page reads and says 7070 all the same. When the shell ends, for
//! whatever reason, its servers are killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::page::{is_server, root};

/// The port that pages speak of.
const PORT: &str = ":7070";
/// A port that nobody listens on, until there is a server.
const NOBODY: &str = ":9";
/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(30);

/// Before everything. An HTTP status that tells of a failure is one, though curl does not say so by itself.
const BEGIN: &str = r#"
trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT
curl() { command curl --silent --show-error --fail-with-body "$@"; }
"#;

pub(crate) struct Shell {
    bash: Child,
    commands: Option<ChildStdin>,
    exits: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
    /// The port of the server that began last.
    port: String,
    count: usize,
}

/// What a command did.
pub(crate) struct Told {
    pub(crate) code: i32,
    /// To standard output and standard error.
    pub(crate) printed: String,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("here");
        for place in ["bin", "here/target/release", "here/target/debug"] {
            let place = folder.path().join(place);
            std::fs::create_dir_all(&place).unwrap();
            symlink(env!("CARGO_BIN_EXE_abide"), place.join("abide")).unwrap();
        }
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).current_dir(&here).stdin(Stdio::piped()).stdout(Stdio::piped());
        for variable in ["ABIDE_DATA", "ABIDE_LOG", "BASH_ENV", "CLICOLOR_FORCE", "NO_COLOR"] {
            bash.env_remove(variable);
        }
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{path}", folder.path().join("bin").display()));
        bash.env("ABIDE_LISTEN", "127.0.0.1:0").env("ABIDE_URL", format!("http://127.0.0.1{NOBODY}"));
        bash.env("repository", root()).env("no_proxy", "*");
        let mut bash = bash.spawn().unwrap();
        let (commands, exits) = (bash.stdin.take(), BufReader::new(bash.stdout.take().unwrap()));
        let shell = Self { bash, commands, exits, folder, port: NOBODY.to_owned(), count: 0 };
        shell.commands.as_ref().unwrap().write_all(BEGIN.as_bytes()).unwrap();
        shell
    }

    /// Writes a file where the shell is.
    pub(crate) fn write(&mut self, name: &str, text: &str) {
        let folder = self.ask("pwd").printed;
        std::fs::write(Path::new(folder.trim_end()).join(name), text).unwrap();
    }

    /// Runs a command of a page; one that runs a server, until it is ready.
    pub(crate) fn run(&mut self, command: &str) -> Result<Told, String> {
        if !is_server(command) {
            let told = self.ask(&command.replace(PORT, &self.port));
            // For those who want to read it again.
            self.ask_quietly(&format!("printed='{}'", self.printed_to().display()));
            return Ok(told);
        }
        // In a terminal of its own it would stay there.
        let command = command.split(" #").next().unwrap_or_default().trim_end().trim_end_matches('&');
        self.ask(&format!("{} &", command.replace(PORT, ":0").trim_end()));
        self.ready()
    }

    /// Waits until the server that was begun last says where it listens.
    fn ready(&mut self) -> Result<Told, String> {
        let printed_to = self.printed_to();
        let waited = wait_until(|| {
            let alive = self.ask_quietly("kill -0 $!") == 0;
            let printed = std::fs::read_to_string(&printed_to).unwrap();
            let address = printed.split_once("listening on http://127.0.0.1").map(|(_, rest)| rest);
            let port = address.and_then(|rest| rest.split_once(' ')).map(|(port, _)| port.to_owned());
            match port {
                Some(port) => Some(Ok((port, printed))),
                None if alive => None,
                None => Some(Err(format!("there is no server: {printed}"))),
            }
        });
        let (port, printed) =
            waited.unwrap_or_else(|| Err("there is no server after half a minute".to_owned()))?;
        self.port = port;
        self.ask_quietly(&format!("export ABIDE_URL=http://127.0.0.1{}", self.port));
        Ok(Told { code: 0, printed: self.as_pages_say(&printed) })
    }

    /// Runs a command as it is.
    pub(crate) fn ask(&mut self, command: &str) -> Told {
        self.count += 1;
        let printed_to = self.printed_to();
        let code = self.send(command, &printed_to);
        let printed = std::fs::read(printed_to).unwrap();
        Told { code, printed: self.as_pages_say(&String::from_utf8_lossy(&printed)) }
    }

    /// Runs what is no command of anybody.
    fn ask_quietly(&mut self, command: &str) -> i32 {
        self.send(command, Path::new("/dev/null"))
    }

    fn send(&mut self, command: &str, printed_to: &Path) -> i32 {
        let mut line = String::new();
        // Quoted as a whole, so that what the shell cannot read is an error, and not a wait for the rest.
        let quoted = command.replace('\'', r"'\''");
        let text = format!("eval '{quoted}' </dev/null >'{}' 2>&1\necho $?\n", printed_to.display());
        // A shell that has ended reads nothing, and what it answers is nothing.
        drop(self.commands.as_ref().unwrap().write_all(text.as_bytes()));
        self.exits.read_line(&mut line).unwrap();
        line.trim_end().parse().unwrap_or_else(|_| panic!("the shell ended with {command:?}"))
    }

    /// With the port that pages speak of.
    fn as_pages_say(&self, printed: &str) -> String {
        let with =
            |printed: &str, host| printed.replace(&format!("{host}{}", self.port), &format!("{host}{PORT}"));
        with(&with(printed, "127.0.0.1"), "localhost")
    }

    /// Where the last command prints to.
    fn printed_to(&self) -> PathBuf {
        self.folder.path().join(format!("printed-{}", self.count))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It has nothing more to read, so it ends, and its trap kills what it has in the background.
        drop(self.commands.take());
        drop(self.bash.wait());
    }
}

/// Looks again and again until there is an answer, or patience is at an end.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes are waited for: with a limit, and a pause between looks"
)]
pub(crate) fn wait_until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = look();
        if found.is_some() || begun.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
