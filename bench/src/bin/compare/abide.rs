//! Abide as a measured system: one server process on the embedded store, with activities in process or in a separate
//! process, called over a wire.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use abide_testkit::http_client::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;

use crate::load::ResponseVerdict;
use crate::process::Place;
use crate::system::{BRANCHES, KEYS, System, Workload};

/// The activity of every task, in process and in a separate process: both return their input.
const ACTIVITY: &str = "core.echo";
const EXTERNAL_ACTIVITY: &str = "bench.echo";
/// The concurrency of the external activity: as high as that of the whole node.
const CONCURRENCY: usize = 1_000;
const WORKFLOW: &str = "workload";
const EVENT: &str = "Go";

/// A wire to external activities.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HandlerWire {
    Rest,
    Grpc,
}

pub(crate) struct AbideSystem {
    program: PathBuf,
    /// The program that serves the activities, and its wire; `None` if they are in process.
    external_handlers: Option<(PathBuf, HandlerWire)>,
    label: String,
}

impl AbideSystem {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            external_handlers: None,
            label: format!("Abide {}, embedded store, activities in process", env!("CARGO_PKG_VERSION")),
        }
    }

    /// With activities in a separate process.
    pub(crate) fn with_external_handlers(
        program: PathBuf,
        handlers: PathBuf,
        wire_format: HandlerWire,
    ) -> Self {
        let wire = if wire_format == HandlerWire::Rest { "REST" } else { "gRPC" };
        let version = env!("CARGO_PKG_VERSION");
        let label = format!("Abide {version}, embedded store, activities in a separate process, {wire}");
        Self { program, external_handlers: Some((handlers, wire_format)), label }
    }

    fn activity(&self) -> &'static str {
        if self.external_handlers.is_some() { EXTERNAL_ACTIVITY } else { ACTIVITY }
    }
}

/// The configuration that declares the activity at this port.
pub(crate) fn configuration(wire_format: HandlerWire, port: u16) -> String {
    let (transport, path) = match wire_format {
        HandlerWire::Rest => ("rest", "/activities/bench.echo"),
        HandlerWire::Grpc => ("grpc", ""),
    };
    format!(
        "[dispatch]\n\
         allow = [\"127.0.0.1\"]\n\
         [[activities]]\n\
         name = \"{EXTERNAL_ACTIVITY}\"\n\
         category = \"other\"\n\
         transport = \"{transport}\"\n\
         endpoint = \"http://127.0.0.1:{port}{path}\"\n\
         concurrency = {CONCURRENCY}\n"
    )
}

impl System for AbideSystem {
    fn key(&self) -> &'static str {
        match self.external_handlers {
            None => "abide",
            Some((_, HandlerWire::Rest)) => "abideRest",
            Some((_, HandlerWire::Grpc)) => "abideGrpc",
        }
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn programs(&self, place: &Place) -> io::Result<Vec<Command>> {
        let mut server = Command::new(&self.program);
        server.arg("serve").arg("--data").arg(place.folder().join("data"));
        server.arg("--listen").arg(format!("127.0.0.1:{}", place.api));
        let Some((handlers, wire_format)) = &self.external_handlers else { return Ok(vec![server]) };
        let config = place.folder().join("abide.toml");
        fs::write(&config, configuration(*wire_format, place.service))?;
        server.arg("--config").arg(config);
        let mut service = Command::new(handlers);
        service.arg(format!("127.0.0.1:{}", place.service));
        Ok(vec![server, service])
    }

    fn supports(&self, workload: Workload) -> bool {
        // The other workloads call no activity.
        self.external_handlers.is_none() || matches!(workload, Workload::W1 | Workload::W4)
    }

    fn preparations(&self, place: &Place, workload: Workload) -> Vec<(u16, HttpRequest)> {
        let definition = match workload {
            Workload::W2 => {
                let route = json!({"entityType": "log", "action": "record"});
                return vec![(place.api, HttpRequest::put(&format!("/api/routes/{EVENT}"), &route))];
            }
            Workload::W1 => abide_bench::three_tasks_of(self.activity()),
            Workload::W3 => abide_bench::waiting(EVENT),
            Workload::W4 => abide_bench::parallel_of(self.activity(), BRANCHES),
        };
        vec![(place.api, HttpRequest::post("/api/workflows", &definition))]
    }

    fn start_and_wait(&self, workload: Workload, number: u64) -> HttpRequest {
        if workload == Workload::W2 {
            let event = json!({
                "specversion": "1.0", "source": "/bench", "id": number.to_string(), "type": EVENT,
                "subject": format!("key-{}", number % KEYS), "data": format!("event-{number}"),
            });
            return HttpRequest::post("/api/events", &event);
        }
        let body = json!({"workflow": WORKFLOW, "input": {"id": format!("dev-{number}")}});
        HttpRequest::post("/api/instances?wait=PT60S", &body)
    }

    fn start_waiting(&self, number: u64) -> HttpRequest {
        let input = json!({"id": format!("dev-{number}")});
        let body = json!({"workflow": WORKFLOW, "instanceId": instance(number), "input": input});
        HttpRequest::post("/api/instances", &body)
    }

    fn raise(&self, number: u64) -> HttpRequest {
        let payload = json!({"id": format!("dev-{number}")});
        HttpRequest::post(&format!("/api/instances/{}/events/{EVENT}", instance(number)), &payload)
    }

    fn outcome(&self, number: u64) -> HttpRequest {
        HttpRequest::get(&format!("/api/instances/{}", instance(number)))
    }

    fn judge(&self, response: &HttpResponse) -> ResponseVerdict {
        if !response.is_success() {
            return ResponseVerdict::Refused;
        }
        // The response to an event has a count, the response to a run has its status.
        match serde_json::from_slice(&response.body) {
            Ok(Envelope { data: Run { status: None, accepted: Some(1) } }) => ResponseVerdict::Done,
            Ok(Envelope { data: Run { status: Some("Completed"), .. } }) => ResponseVerdict::Done,
            Ok(Envelope { data: Run { status: Some("Pending" | "Running"), .. } }) => ResponseVerdict::NotYet,
            _ => ResponseVerdict::Refused,
        }
    }

    fn counters(&self) -> Option<HttpRequest> {
        Some(HttpRequest::get("/metrics"))
    }

    fn calls(&self) -> Option<HttpRequest> {
        self.external_handlers.as_ref().map(|_| HttpRequest::get("/counts"))
    }
}

/// The fields of a response that are read.
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
