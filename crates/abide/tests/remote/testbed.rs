//! A server process, and commands that use its address.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use abide_testkit::process::{ProgramProcess, Signal, block_on};
use serde_json::Value;

/// A server on its own folder. It is killed at the end of the test.
pub(crate) struct CliTestbed {
    // Dropped before its folder.
    server: Option<ProgramProcess>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    /// Fails unless the command ended with this exit code.
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// The standard output of a command that succeeded.
    pub(crate) fn expect_ok(self) -> String {
        let output = self.expect_code(0);
        assert_eq!(output.err, "", "nothing to standard error");
        output.out
    }

    /// The JSON documents that a successful command printed, one per line.
    pub(crate) fn json(self) -> Vec<Value> {
        self.expect_ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Fails and prints the text unless it contains all parts.
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

pub(crate) fn abide(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    for variable in ["ABIDE_LISTEN", "ABIDE_DATA", "ABIDE_LOG", "ABIDE_URL", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn into_command_output(output: Output) -> CommandOutput {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

impl CliTestbed {
    /// A running server on an empty store.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = "[store]\nshards = 2\nsync = \"operating-system\"\n";
        std::fs::write(folder.path().join("abide.toml"), config).unwrap();
        let mut world = Self { folder, server: None, url: String::new() };
        world.serve();
        world
    }

    pub(crate) fn data(&self) -> String {
        self.path("data")
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Writes a file into the test's folder.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Starts the server and waits until it is ready.
    pub(crate) fn serve(&mut self) {
        let config = self.path("abide.toml");
        let data = self.data();
        let args = ["serve", "--config", &config, "--data", &data, "--listen", "127.0.0.1:0"];
        let mut command = abide(&args);
        command.env("ABIDE_LOG", "off");
        let mut server = ProgramProcess::spawn_server(command).unwrap();
        self.url = format!("http://{}", block_on(server.ready()).unwrap().unwrap());
        self.server = Some(server);
    }

    /// Stops the server gracefully.
    pub(crate) fn stop(&mut self) {
        let server = self.server.take().unwrap();
        block_on(server.stop(Signal::TERM, Duration::from_secs(30))).unwrap();
    }

    /// A command that uses this server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = abide(args);
        command.env("ABIDE_URL", &self.url).env("ABIDE_DATA", self.data());
        command
    }

    pub(crate) fn abide(&self, args: &[&str]) -> CommandOutput {
        into_command_output(self.command(args).output().unwrap())
    }

    /// Runs a command with this standard input.
    pub(crate) fn abide_with_stdin(&self, args: &[&str], stdin: &str) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        into_command_output(child.wait_with_output().unwrap())
    }

    /// Repeats a list until it has `count` items: lists are eventually consistent.
    pub(crate) fn list_until(&self, args: &[&str], count: usize) -> Vec<Value> {
        loop {
            let items = self.abide(args).json();
            if items.len() == count {
                return items;
            }
            std::thread::yield_now();
        }
    }

    /// Publishes a definition of these states, which starts at `Begin`.
    pub(crate) fn publish(&self, id: &str, version: &str, states: &Value) -> String {
        let definition = serde_json::json!({
            "$schema": "workflow-schema-v1.json", "id": id, "version": version, "startAt": "Begin", "states": states,
        });
        let file = self.file(&format!("{id}-{version}.json"), &definition.to_string());
        self.abide(&["publish", &file]).expect_ok()
    }

    /// `echo` ends with its input; `gate` waits for the event `Go`; `undone` fails and is compensated.
    pub(crate) fn publish_all(&self) {
        self.publish(
            "echo",
            "1.0.0",
            &serde_json::json!({"Begin": {"type": "succeed", "output": "$.input"}}),
        );
        self.publish("gate", "1.0.0", &gate_states());
        let undone = serde_json::json!({
            "Begin": {"type": "task", "activity": "core.echo", "input": {"a": 1},
                "compensateWith": {"activity": "core.echo", "input": {"undo": 1}}, "next": "Break"},
            "Break": {"type": "task", "activity": "core.fail", "input": {"code": "Broken", "retryable": false},
                "onError": "Undo", "next": "Done"},
            "Undo": {"type": "compensation", "next": "Lost"},
            "Lost": {"type": "fail", "error": "Lost"},
            "Done": {"type": "succeed"},
        });
        self.publish("undone", "1.0.0", &undone);
    }
}

pub(crate) fn gate_states() -> Value {
    serde_json::json!({
        "Begin": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D",
            "output": "$.state.go", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.go"},
    })
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
