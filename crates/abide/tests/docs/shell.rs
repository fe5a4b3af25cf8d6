//! One bash for all commands of a page, in its own folder, with the `abide` binary under test.
//!
//! Folders, variables and background servers persist from one command to the next, as in a terminal. Servers listen on
//! free ports, which are read from their output, so that many shells can run at the same time. In commands and in
//! output the port is replaced, so that pages always show 7070. When the shell ends, for any reason, its servers are
//! killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::page::{is_server, root};

/// The port on the pages.
const PORT: &str = ":7070";
/// A port without a listener, used until there is a server.
const UNUSED_PORT: &str = ":9";
/// How long a condition may take to become true.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The first lines of the shell. With them, curl fails if the HTTP status is an error.
const PREAMBLE: &str = r#"
trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT
curl() { command curl --silent --show-error --fail-with-body "$@"; }
"#;

pub(crate) struct Shell {
    bash: Child,
    commands: Option<ChildStdin>,
    exits: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
    /// The port of the server that was started last.
    port: String,
    count: usize,
}

/// The exit code and the output of a command.
pub(crate) struct ShellOutput {
    pub(crate) code: i32,
    /// Standard output and standard error.
    pub(crate) printed: String,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("here");
        for bin in ["bin", "here/target/release", "here/target/debug"] {
            let bin = folder.path().join(bin);
            std::fs::create_dir_all(&bin).unwrap();
            symlink(env!("CARGO_BIN_EXE_abide"), bin.join("abide")).unwrap();
        }
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).current_dir(&here).stdin(Stdio::piped()).stdout(Stdio::piped());
        for variable in ["ABIDE_DATA", "ABIDE_LOG", "BASH_ENV", "CLICOLOR_FORCE", "NO_COLOR"] {
            bash.env_remove(variable);
        }
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{path}", folder.path().join("bin").display()));
        bash.env("ABIDE_LISTEN", "127.0.0.1:0").env("ABIDE_URL", format!("http://127.0.0.1{UNUSED_PORT}"));
        bash.env("repository", root()).env("no_proxy", "*");
        let mut bash = bash.spawn().unwrap();
        let commands = bash.stdin.take();
        let exits = BufReader::new(bash.stdout.take().unwrap());
        let shell = Self { bash, commands, exits, folder, port: UNUSED_PORT.to_owned(), count: 0 };
        shell.commands.as_ref().unwrap().write_all(PREAMBLE.as_bytes()).unwrap();
        shell
    }

    /// Writes a file into the shell's current folder.
    pub(crate) fn write(&mut self, name: &str, text: &str) {
        let folder = self.run_command("pwd").printed;
        std::fs::write(Path::new(folder.trim_end()).join(name), text).unwrap();
    }

    /// Runs a command of a page. If it runs a server, returns when the server is ready.
    pub(crate) fn run(&mut self, command: &str) -> Result<ShellOutput, String> {
        if !is_server(command) {
            let output = self.run_command(&command.replace(PORT, &self.port));
            // Scripts of page setups may read the output of the last command.
            self.run_silently(&format!("printed='{}'", self.printed_to().display()));
            return Ok(output);
        }
        // A server that a page runs in another terminal runs in the background here.
        let command = command.split(" #").next().unwrap_or_default().trim_end().trim_end_matches('&');
        self.run_command(&format!("{} &", command.replace(PORT, ":0").trim_end()));
        self.start_server()
    }

    /// Waits until the server that was started last prints its address.
    fn start_server(&mut self) -> Result<ShellOutput, String> {
        let printed_to = self.printed_to();
        let waited = wait_until(|| {
            let alive = self.run_silently("kill -0 $!") == 0;
            let printed = std::fs::read_to_string(&printed_to).unwrap();
            let address = printed.split_once("listening on http://127.0.0.1").map(|(_, rest)| rest);
            let port = address.and_then(|rest| rest.split_once(' ')).map(|(port, _)| port.to_owned());
            match port {
                Some(port) => Some(Ok((port, printed))),
                None if alive => None,
                None => Some(Err(format!("no server is running: {printed}"))),
            }
        });
        let (port, printed) =
            waited.unwrap_or_else(|| Err("no server is ready after half a minute".to_owned()))?;
        self.port = port;
        self.run_silently(&format!("export ABIDE_URL=http://127.0.0.1{}", self.port));
        Ok(ShellOutput { code: 0, printed: self.normalise_output(&printed) })
    }

    /// Runs a command without replacing the port.
    pub(crate) fn run_command(&mut self, command: &str) -> ShellOutput {
        self.count += 1;
        let printed_to = self.printed_to();
        let code = self.send(command, &printed_to);
        let printed = std::fs::read(printed_to).unwrap();
        ShellOutput { code, printed: self.normalise_output(&String::from_utf8_lossy(&printed)) }
    }

    /// Runs a command of the test itself and discards its output.
    fn run_silently(&mut self, command: &str) -> i32 {
        self.send(command, Path::new("/dev/null"))
    }

    fn send(&mut self, command: &str, printed_to: &Path) -> i32 {
        let mut line = String::new();
        // The command is quoted as a whole, so that a syntax error is an error and the shell does not wait for more.
        let quoted = command.replace('\'', r"'\''");
        let text = format!("eval '{quoted}' </dev/null >'{}' 2>&1\necho $?\n", printed_to.display());
        // If the shell has ended, the write fails and the line stays empty.
        drop(self.commands.as_ref().unwrap().write_all(text.as_bytes()));
        self.exits.read_line(&mut line).unwrap();
        line.trim_end().parse().unwrap_or_else(|_| panic!("the shell ended with {command:?}"))
    }

    /// The output with the port of the pages.
    fn normalise_output(&self, printed: &str) -> String {
        let with =
            |printed: &str, host| printed.replace(&format!("{host}{}", self.port), &format!("{host}{PORT}"));
        with(&with(printed, "127.0.0.1"), "localhost")
    }

    /// The file with the output of the last command.
    fn printed_to(&self) -> PathBuf {
        self.folder.path().join(format!("printed-{}", self.count))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // At the end of its input the shell ends, and its trap kills the background processes.
        drop(self.commands.take());
        drop(self.bash.wait());
    }
}

/// Polls until there is a value, or the time is up.
#[expect(
    clippy::disallowed_methods,
    reason = "waits for other processes, with a limit and a pause between polls"
)]
pub(crate) fn wait_until<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        let value = poll();
        if value.is_some() || started.elapsed() > COMMAND_TIMEOUT {
            return value;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
