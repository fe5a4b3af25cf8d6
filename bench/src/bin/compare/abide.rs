//! Abide as it is measured: one process on the embedded store, activities inside it or in a process beside it, called over a wire.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use serde_json::json;

use crate::http::{Answer, Request};
use crate::load::Verdict;
use crate::process::Place;
use crate::system::{BRANCHES, KEYS, System, Workload};

/// The activity of every task, in process and beside it: both return their input.
const ACTIVITY: &str = "core.echo";
const ACTIVITY_BESIDE: &str = "bench.echo";
/// Calls under way to the process beside it: as many as a node has under way altogether.
const CONCURRENCY: usize = 1_000;
const WORKFLOW: &str = "workload";
const EVENT: &str = "Go";

/// A wire that activities are called over.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Over {
    Rest,
    Grpc,
}

pub(crate) struct Abide {
    program: PathBuf,
    /// What serves the activities, and how it is called; none if they are in process.
    beside: Option<(PathBuf, Over)>,
    label: String,
}

impl Abide {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            beside: None,
            label: format!("Abide {}, embedded store, activities in process", env!("CARGO_PKG_VERSION")),
        }
    }

    /// With activities in a process beside it.
    pub(crate) fn calling(program: PathBuf, handlers: PathBuf, over: Over) -> Self {
        let wire = if over == Over::Rest { "REST" } else { "gRPC" };
        let version = env!("CARGO_PKG_VERSION");
        let label = format!("Abide {version}, embedded store, activities in a process beside it, {wire}");
        Self { program, beside: Some((handlers, over)), label }
    }

    fn activity(&self) -> &'static str {
        if self.beside.is_some() { ACTIVITY_BESIDE } else { ACTIVITY }
    }
}

/// The configuration that declares the activity at this port.
pub(crate) fn configuration(over: Over, port: u16) -> String {
    let (transport, path) = match over {
        Over::Rest => ("rest", "/activities/bench.echo"),
        Over::Grpc => ("grpc", ""),
    };
    format!(
        "[dispatch]\n\
         allow = [\"127.0.0.1\"]\n\
         [[activities]]\n\
         name = \"{ACTIVITY_BESIDE}\"\n\
         category = \"other\"\n\
         transport = \"{transport}\"\n\
         endpoint = \"http://127.0.0.1:{port}{path}\"\n\
         concurrency = {CONCURRENCY}\n"
    )
}

impl System for Abide {
    fn key(&self) -> &'static str {
        match self.beside {
            None => "abide",
            Some((_, Over::Rest)) => "abideRest",
            Some((_, Over::Grpc)) => "abideGrpc",
        }
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn programs(&self, place: &Place) -> io::Result<Vec<Command>> {
        let mut server = Command::new(&self.program);
        server.arg("serve").arg("--data").arg(place.folder().join("data"));
        server.arg("--listen").arg(format!("127.0.0.1:{}", place.api));
        let Some((handlers, over)) = &self.beside else { return Ok(vec![server]) };
        let config = place.folder().join("abide.toml");
        fs::write(&config, configuration(*over, place.service))?;
        server.arg("--config").arg(config);
        let mut service = Command::new(handlers);
        service.arg(format!("127.0.0.1:{}", place.service));
        Ok(vec![server, service])
    }

    fn takes(&self, workload: Workload) -> bool {
        // The others call no activity.
        self.beside.is_none() || matches!(workload, Workload::W1 | Workload::W4)
    }

    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, Request)> {
        let definition = match workload {
            Workload::W2 => {
                let route = json!({"entityType": "log", "action": "record"}).to_string();
                return vec![(place.api, Request::put(&format!("/api/routes/{EVENT}"), &route))];
            }
            Workload::W1 => abide_bench::three_tasks_of(self.activity()),
            Workload::W3 => abide_bench::waiting(EVENT),
            Workload::W4 => abide_bench::parallel_of(self.activity(), BRANCHES),
        };
        vec![(place.api, Request::post("/api/workflows", &definition.to_string()))]
    }

    fn start_and_wait(&self, workload: Workload, number: u64) -> Request {
        if workload == Workload::W2 {
            let event = json!({
                "specversion": "1.0", "source": "/bench", "id": number.to_string(), "type": EVENT,
                "subject": format!("key-{}", number % KEYS), "data": format!("event-{number}"),
            });
            return Request::post("/api/events", &event.to_string());
        }
        let body = json!({"workflow": WORKFLOW, "input": {"id": format!("dev-{number}")}});
        Request::post("/api/instances?wait=PT60S", &body.to_string())
    }

    fn start_waiting(&self, number: u64) -> Request {
        let input = json!({"id": format!("dev-{number}")});
        let body = json!({"workflow": WORKFLOW, "instanceId": instance(number), "input": input});
        Request::post("/api/instances", &body.to_string())
    }

    fn raise(&self, number: u64) -> Request {
        let payload = json!({"id": format!("dev-{number}")});
        Request::post(&format!("/api/instances/{}/events/{EVENT}", instance(number)), &payload.to_string())
    }

    fn outcome(&self, number: u64) -> Request {
        Request::get(&format!("/api/instances/{}", instance(number)))
    }

    fn judge(&self, answer: &Answer) -> Verdict {
        if !answer.is_success() {
            return Verdict::Refused;
        }
        // An event is answered with what became of it, a run with how it stands.
        match serde_json::from_slice(&answer.body) {
            Ok(Envelope { data: Run { status: None, accepted: Some(1) } }) => Verdict::Done,
            Ok(Envelope { data: Run { status: Some("Completed"), .. } }) => Verdict::Done,
            Ok(Envelope { data: Run { status: Some("Pending" | "Running"), .. } }) => Verdict::NotYet,
            _ => Verdict::Refused,
        }
    }

    fn counters(&self) -> Option<Request> {
        Some(Request::get("/metrics"))
    }

    fn calls(&self) -> Option<Request> {
        self.beside.as_ref().map(|_| Request::get("/counts"))
    }
}

/// As much of an answer as is looked at.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: Run<'a>,
}

#[derive(Deserialize)]
struct Run<'a> {
    status: Option<&'a str>,
    accepted: Option<u64>,
}

fn instance(number: u64) -> String {
    format!("waiting-{number}")
}
