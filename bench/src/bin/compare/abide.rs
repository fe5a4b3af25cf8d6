//! Abide as it is measured: one process on the embedded store, activities inside it.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use serde_json::json;

use crate::http::{Answer, Request};
use crate::load::Verdict;
use crate::process::Place;
use crate::system::{BRANCHES, KEYS, System, Workload};

/// The activity of every task: it returns its input.
const ACTIVITY: &str = "core.echo";
const WORKFLOW: &str = "workload";
const EVENT: &str = "Go";

pub(crate) struct Abide {
    program: PathBuf,
    label: String,
}

impl Abide {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            label: format!("Abide {}, embedded store, activities in process", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl System for Abide {
    fn key(&self) -> &'static str {
        "abide"
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn programs(&self, place: &Place) -> io::Result<Vec<Command>> {
        let mut server = Command::new(&self.program);
        server.arg("serve").arg("--data").arg(place.folder().join("data"));
        server.arg("--listen").arg(format!("127.0.0.1:{}", place.api));
        Ok(vec![server])
    }

    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, Request)> {
        let definition = match workload {
            Workload::W2 => {
                let route = json!({"entityType": "log", "action": "record"}).to_string();
                return vec![(place.api, Request::put(&format!("/api/routes/{EVENT}"), &route))];
            }
            Workload::W1 => abide_bench::three_tasks_of(ACTIVITY),
            Workload::W3 => abide_bench::waiting(EVENT),
            Workload::W4 => abide_bench::parallel_of(ACTIVITY, BRANCHES),
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
