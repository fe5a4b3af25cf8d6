//! `abide serve` from the outside: the line it prints, its responses, its graceful stop, and its errors.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use abide_testkit::http_client::{HttpRequest, send_once};
use abide_testkit::process::{ProgramProcess, Signal};

/// A command without Abide's environment variables.
fn abide(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    command.args(args).env_remove("ABIDE_LISTEN").env_remove("ABIDE_DATA").env_remove("ABIDE_LOG");
    command
}

/// Starts a server and waits for the line it prints when it is ready.
async fn begin(command: Command) -> (ProgramProcess, String) {
    let mut server = ProgramProcess::spawn_server(command).unwrap();
    let line = server.first_line().await.unwrap().unwrap();
    (server, line)
}

fn refused(args: &[&str]) -> (i32, String) {
    let Output { status, stderr, stdout } = abide(args).output().unwrap();
    assert!(stdout.is_empty());
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn the_server_prints_a_line_when_ready_and_stops_gracefully_on_either_signal() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for signal in [Signal::TERM, Signal::INT] {
        let (server, line) = begin(abide(&["serve", "--data", text(&data), "--listen", "127.0.0.1:0"])).await;
        let address = line.split("http://").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(line, format!("abide listening on http://{address} (data: {})", data.display()));
        let ready = send_once(address.parse().unwrap(), &HttpRequest::get("/readyz")).await.unwrap();
        assert_eq!(ready.status, 200);
        server.stop(signal, Duration::from_secs(30)).await.unwrap();
    }
}

#[tokio::test]
async fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("abide.toml");
    let data = folder.path().join("flag");
    std::fs::write(&file, "[server]\nlisten = \"192.0.2.1:1\"\n[store]\ndata = \"/nowhere\"\n").unwrap();
    let mut command = abide(&["serve", "--config", text(&file), "--data", text(&data)]);
    command.env("ABIDE_LISTEN", "127.0.0.1:0").env("ABIDE_DATA", "/nowhere-either");
    let (_server, line) = begin(command).await;
    assert!(line.ends_with(&format!("(data: {})", data.display())), "{line}");
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
