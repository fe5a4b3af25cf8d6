//! `abide serve` from the outside: the line it prints, its responses, its graceful stop, and its errors.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A command without Abide's environment variables.
fn abide(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    command.args(args).env_remove("ABIDE_LISTEN").env_remove("ABIDE_DATA").env_remove("ABIDE_LOG");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server process. It is killed at the end of the test if it was not stopped.
struct Served {
    child: Child,
    line: String,
}

impl Served {
    /// Starts a server and waits for the line it prints when it is ready.
    fn begin(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child, line: line.trim_end().to_owned() }
    }

    fn address(&self) -> &str {
        self.line.split("http://").nth(1).unwrap().split(' ').next().unwrap()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn signal(&mut self, signal: &str) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server has ended already, or must end now.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn refused(args: &[&str]) -> (i32, String) {
    let Output { status, stderr, stdout } = abide(args).output().unwrap();
    assert!(stdout.is_empty());
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_server_prints_a_line_when_ready_and_stops_gracefully_on_either_signal() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for signal in ["-TERM", "-INT"] {
        let mut served =
            Served::begin(&mut abide(&["serve", "--data", text(&data), "--listen", "127.0.0.1:0"]));
        let expected = format!("abide listening on http://{} (data: {})", served.address(), data.display());
        assert_eq!(served.line, expected);
        assert!(served.get("/readyz").starts_with("HTTP/1.1 200 "));
        assert_eq!(served.signal(signal), 0, "{signal}");
    }
}

#[test]
fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("abide.toml");
    let data = folder.path().join("flag");
    std::fs::write(&file, "[server]\nlisten = \"192.0.2.1:1\"\n[store]\ndata = \"/nowhere\"\n").unwrap();
    let mut command = abide(&["serve", "--config", text(&file), "--data", text(&data)]);
    let served =
        Served::begin(command.env("ABIDE_LISTEN", "127.0.0.1:0").env("ABIDE_DATA", "/nowhere-either"));
    assert!(served.line.ends_with(&format!("(data: {})", data.display())), "{}", served.line);
}

#[test]
fn a_server_that_cannot_start_reports_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (code, error) = refused(&["serve", "--data", text(&data), "--listen", "0.0.0.0:0"]);
    assert!(code == 2 && error.contains("--insecure") && !data.exists(), "{code} {error}");

    let file = folder.path().join("abide.toml");
    std::fs::write(&file, "[server]\nprot = 1\n").unwrap();
    let (code, error) = refused(&["serve", "--data", text(&data), "--config", text(&file)]);
    assert!(code == 2 && error.contains("prot"), "{code} {error}");

    let (code, error) = refused(&["serve", "--config", text(&folder.path().join("none.toml"))]);
    assert!(code == 2 && error.contains("none.toml"), "{code} {error}");

    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("notes.txt"), "mine").unwrap();
    let (code, error) = refused(&["serve", "--data", text(&other), "--listen", "127.0.0.1:0"]);
    assert!(code == 2 && error.contains("is not a store"), "{code} {error}");
}
