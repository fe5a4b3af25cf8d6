//! The receivers, the wires that each serves, and their declaration in the server's configuration.

use std::collections::BTreeMap;

/// A process of this rig.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RigProcess {
    Server,
    Rust,
    Python,
    TypeScript,
}

impl RigProcess {
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
pub(crate) struct ReceiverWire {
    pub who: RigProcess,
    wire: &'static str,
}

const fn receiver_wire(who: RigProcess, wire: &'static str) -> ReceiverWire {
    ReceiverWire { who, wire }
}

pub(crate) const RUST_REST: ReceiverWire = receiver_wire(RigProcess::Rust, "rest");
pub(crate) const RUST_PROTOBUF: ReceiverWire = receiver_wire(RigProcess::Rust, "protobuf");
pub(crate) const RUST_GRPC: ReceiverWire = receiver_wire(RigProcess::Rust, "grpc");
pub(crate) const RUST_ENVELOPE: ReceiverWire = receiver_wire(RigProcess::Rust, "envelope");
pub(crate) const PYTHON_REST: ReceiverWire = receiver_wire(RigProcess::Python, "rest");
pub(crate) const PYTHON_ENVELOPE: ReceiverWire = receiver_wire(RigProcess::Python, "envelope");
pub(crate) const TYPESCRIPT_REST: ReceiverWire = receiver_wire(RigProcess::TypeScript, "rest");
pub(crate) const TYPESCRIPT_ENVELOPE: ReceiverWire = receiver_wire(RigProcess::TypeScript, "envelope");

pub(crate) const RECEIVER_WIRES: [ReceiverWire; 8] = [
    RUST_REST,
    RUST_PROTOBUF,
    RUST_GRPC,
    RUST_ENVELOPE,
    PYTHON_REST,
    PYTHON_ENVELOPE,
    TYPESCRIPT_REST,
    TYPESCRIPT_ENVELOPE,
];

/// The names of the activities that receivers serve.
pub(crate) const ADD: &str = "ledger.add";
pub(crate) const CONFORMANCE: &str = "conformance";

/// The attempt timeout in milliseconds.
pub(crate) const ATTEMPT_MS: u64 = 2_000;
/// The reconciliation interval of the server in milliseconds.
pub(crate) const RECONCILE_MS: u64 = 5_000;

impl ReceiverWire {
    /// The name of an activity on the server. Over gRPC and protobuf the request has this name, over other wires the
    /// receiver's own name.
    pub(crate) fn activity(self, served: &str) -> String {
        let Self { who, wire } = self;
        if who == RigProcess::Rust {
            format!("{served}.{wire}")
        } else {
            format!("{served}.{}.{wire}", who.name())
        }
    }

    fn endpoint(self, served: &str, port: u16) -> String {
        match self.wire {
            "grpc" => format!("http://127.0.0.1:{port}"),
            _ => format!("http://127.0.0.1:{port}/activities/{served}"),
        }
    }
}

/// The server's configuration for all wires: short attempts, many retries, and circuit breakers that close again soon.
pub(crate) fn configuration(ports: &BTreeMap<RigProcess, u16>) -> String {
    let seconds = |ms: u64| format!("PT{}.{:03}S", ms / 1_000, ms % 1_000);
    let mut text = format!(
        "[dispatch]\nallow = [\"127.0.0.1\"]\nreconcileInterval = \"{}\"\ncircuitOpenDuration = \"PT0.1S\"\ncircuitOpenDurationMax = \"PT0.5S\"\n",
        seconds(RECONCILE_MS)
    );
    for receiver_wire in RECEIVER_WIRES {
        let port = ports.get(&receiver_wire.who).copied().unwrap_or_default();
        for served in [ADD, CONFORMANCE] {
            let name = receiver_wire.activity(served);
            let endpoint = receiver_wire.endpoint(served, port);
            text.push_str(&format!(
                "[[activities]]\nname = \"{name}\"\ncategory = \"database\"\ntransport = \"{}\"\nendpoint = \"{endpoint}\"\n\
                 attemptTimeout = \"{}\"\nprobe = true\nretryPolicy = {{ maxAttempts = 1000, initialInterval = \"PT0.1S\", \
                 backoffCoefficient = 1.5, maxInterval = \"PT1S\" }}\n",
                receiver_wire.wire,
                seconds(ATTEMPT_MS)
            ));
        }
    }
    text
}
