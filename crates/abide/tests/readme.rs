//! What README.md says under "Serve", typed in as it stands.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const README: &str = include_str!("../../../README.md");
/// Where a server listens that is told nothing.
const DEFAULT_ADDRESS: &str = "localhost:7070";
/// The command, as a build leaves it.
const BINARY: &str = "target/release/abide";

/// The blocks of code in this language under "Serve".
fn blocks(language: &str) -> Vec<&'static str> {
    let serve = README.split("\n## ").find(|part| part.starts_with("Serve\n")).unwrap();
    let begin = format!("```{language}\n");
    serve.split(begin.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Whether a line asks the server for something.
fn is_command(line: &str) -> bool {
    line.starts_with(BINARY) && !line.starts_with(&format!("{BINARY} serve"))
}

/// A server that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts one on a port that is free, and says which.
fn serve(folder: &Path) -> (Served, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    command.arg("serve").env("ABIDE_LISTEN", "127.0.0.1:0").env_remove("ABIDE_DATA").env_remove("ABIDE_LOG");
    let mut child = command.current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://127.0.0.1").nth(1).unwrap().split(' ').next().unwrap();
    (Served(child), format!("localhost{address}"))
}

#[test]
fn what_the_readme_says_of_serving_works_as_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let [definition] = blocks("json")[..] else { panic!("there is one definition under Serve") };
    std::fs::write(folder.path().join("greet.json"), definition).unwrap();
    let (_served, address) = serve(folder.path());
    let told = |line: &str| {
        let line = line.replace(DEFAULT_ADDRESS, &address).replace(BINARY, env!("CARGO_BIN_EXE_abide"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(folder.path()).env("ABIDE_URL", format!("http://{address}"));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{line}: {output:?} (curl must be 7.82 or newer)");
        String::from_utf8(output.stdout).unwrap()
    };
    let lines = || blocks("sh").into_iter().flat_map(str::lines);
    let commands: Vec<String> = lines().filter(|line| is_command(line)).map(told).collect();
    let [_published, started, shown] = &commands[..] else { panic!("{commands:?}") };
    assert!(started.contains("world") && shown.contains("Completed"), "{started}{shown}");

    let requests: Vec<String> = lines().filter(|line| line.starts_with("curl ")).map(told).collect();
    let requests: Vec<Value> = requests.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let [published, ended] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(published["status"], "Succeeded", "{published}");
    assert_eq!(ended["data"]["status"], "Completed", "{ended}");
    assert_eq!(ended["data"]["output"], json!({"hello": "world"}));
    assert!(folder.path().join("abide-data").is_dir(), "everything in ./abide-data");
}
