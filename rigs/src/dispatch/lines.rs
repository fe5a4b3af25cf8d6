//! Who is called over what: the receivers, the wires that each serves, and how the server is told of them.

use std::collections::BTreeMap;

/// The processes of this rig.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Who {
    Server,
    Rust,
    Python,
    TypeScript,
}

impl Who {
    pub(crate) const ALL: [Self; 4] = [Self::Server, Self::Rust, Self::Python, Self::TypeScript];
    pub(crate) const RECEIVERS: [Self; 3] = [Self::Rust, Self::Python, Self::TypeScript];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Rust => "rust",
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }
}

/// One receiver over one wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Line {
    pub who: Who,
    wire: &'static str,
}

const fn line(who: Who, wire: &'static str) -> Line {
    Line { who, wire }
}

pub(crate) const RUST_REST: Line = line(Who::Rust, "rest");
pub(crate) const RUST_PROTOBUF: Line = line(Who::Rust, "protobuf");
pub(crate) const RUST_GRPC: Line = line(Who::Rust, "grpc");
pub(crate) const RUST_ENVELOPE: Line = line(Who::Rust, "envelope");
pub(crate) const PYTHON_REST: Line = line(Who::Python, "rest");
pub(crate) const PYTHON_ENVELOPE: Line = line(Who::Python, "envelope");
pub(crate) const TYPESCRIPT_REST: Line = line(Who::TypeScript, "rest");
pub(crate) const TYPESCRIPT_ENVELOPE: Line = line(Who::TypeScript, "envelope");

/// All of them.
pub(crate) const LINES: [Line; 8] = [
    RUST_REST,
    RUST_PROTOBUF,
    RUST_GRPC,
    RUST_ENVELOPE,
    PYTHON_REST,
    PYTHON_ENVELOPE,
    TYPESCRIPT_REST,
    TYPESCRIPT_ENVELOPE,
];

/// What receivers serve.
pub(crate) const ADD: &str = "ledger.add";
pub(crate) const CONFORMANCE: &str = "conformance";

/// How long one delivery may take, in milliseconds.
pub(crate) const ATTEMPT_MS: u64 = 2_000;
/// How often the server holds its records against what is under way, in milliseconds.
pub(crate) const RECONCILE_MS: u64 = 5_000;

impl Line {
    /// What the server knows an activity of this line by. Over gRPC and protobuf the receiver is told this name, over others its own.
    pub(crate) fn activity(self, served: &str) -> String {
        let Self { who, wire } = self;
        if who == Who::Rust { format!("{served}.{wire}") } else { format!("{served}.{}.{wire}", who.name()) }
    }

    fn endpoint(self, served: &str, port: u16) -> String {
        match self.wire {
            "grpc" => format!("http://127.0.0.1:{port}"),
            _ => format!("http://127.0.0.1:{port}/activities/{served}"),
        }
    }
}

/// What the server's configuration says of all lines: short attempts, many of them, and pauses that end soon.
pub(crate) fn configuration(ports: &BTreeMap<Who, u16>) -> String {
    let seconds = |ms: u64| format!("PT{}.{:03}S", ms / 1_000, ms % 1_000);
    let mut text = format!(
        "[dispatch]\nallow = [\"127.0.0.1\"]\nreconcileEvery = \"{}\"\ncircuitPause = \"PT0.1S\"\ncircuitPauseMax = \"PT0.5S\"\n",
        seconds(RECONCILE_MS)
    );
    for line in LINES {
        let port = ports.get(&line.who).copied().unwrap_or_default();
        for served in [ADD, CONFORMANCE] {
            let (name, endpoint) = (line.activity(served), line.endpoint(served, port));
            text.push_str(&format!(
                "[[activities]]\nname = \"{name}\"\ncategory = \"database\"\ntransport = \"{}\"\nendpoint = \"{endpoint}\"\n\
                 attemptTimeout = \"{}\"\nprobe = true\nretryPolicy = {{ maxAttempts = 1000, initialInterval = \"PT0.1S\", \
                 backoffCoefficient = 1.5, maxInterval = \"PT1S\" }}\n",
                line.wire,
                seconds(ATTEMPT_MS)
            ));
        }
    }
    text
}
