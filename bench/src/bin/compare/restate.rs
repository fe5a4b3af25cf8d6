//! Restate as a measured system: its server from npm, and the service of bench/peers/restate.
//!
//! It runs with its defaults, which sync before they acknowledge, and with four partitions: its best setting on two
//! cores. Its W1 is a plain service and not a keyed workflow, which would cost it more.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use abide_testkit::http_client::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::load::ResponseVerdict;
use crate::process::Place;
use crate::system::{BRANCHES, KEYS, System, Workload};

const PARTITIONS: u16 = 4;

pub(crate) struct Restate {
    server: PathBuf,
    service: PathBuf,
    label: String,
}

impl Restate {
    pub(crate) fn new(server: PathBuf, service: PathBuf) -> Self {
        let version = Command::new(&server).arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        let version = version.unwrap_or_default();
        let number = version.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let label = format!(
            "Restate {}, {PARTITIONS} partitions, service in a separate process",
            number.unwrap_or("of unknown version")
        );
        Self { server, service, label }
    }
}

impl System for Restate {
    fn key(&self) -> &'static str {
        "restate"
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn programs(&self, place: &Place) -> io::Result<Vec<Command>> {
        let config = place.folder().join("restate.toml");
        fs::write(&config, configuration(place))?;
        let mut server = Command::new(&self.server);
        server.arg("--config-file").arg(config).arg("--base-dir").arg(place.folder().join("data"));
        server.args(["--node-name", "node"]).env("RESTATE_DISABLE_TELEMETRY", "true");
        let mut service = Command::new(&self.service);
        service.arg(format!("127.0.0.1:{}", place.service));
        Ok(vec![server, service])
    }

    fn preparations(&self, place: &Place, _: Workload) -> Vec<(u16, HttpRequest)> {
        let deployment = json!({"uri": format!("http://127.0.0.1:{}", place.service), "force": true});
        vec![(place.admin, HttpRequest::post("/deployments", &deployment))]
    }

    fn start_and_wait(&self, workload: Workload, number: u64) -> HttpRequest {
        let id = format!("dev-{number}");
        match workload {
            Workload::W4 => HttpRequest::post("/Tasks/fan", json!({"id": id, "branches": BRANCHES})),
            Workload::W2 => {
                let event = json!(format!("event-{number}"));
                HttpRequest::post(&format!("/Log/key-{}/append", number % KEYS), &event)
            }
            _ => HttpRequest::post("/Tasks/three", json!({"id": id})),
        }
    }

    fn start_waiting(&self, number: u64) -> HttpRequest {
        let body = json!({"id": format!("dev-{number}")});
        HttpRequest::post(&format!("/Waiting/{number}/run/send"), &body)
    }

    fn raise(&self, number: u64) -> HttpRequest {
        let body = json!({"id": format!("dev-{number}")});
        HttpRequest::post(&format!("/Waiting/{number}/raise"), &body)
    }

    /// Attaching responds when the run has ended, so no request is repeated.
    fn outcome(&self, number: u64) -> HttpRequest {
        HttpRequest::get(&format!("/restate/workflow/Waiting/{number}/attach"))
    }

    fn judge(&self, response: &HttpResponse) -> ResponseVerdict {
        if response.is_success() { ResponseVerdict::Done } else { ResponseVerdict::Refused }
    }
}

fn configuration(place: &Place) -> String {
    let Place { api, admin, node, .. } = place;
    format!(
        "disable-telemetry = true\n\
         bind-ip = \"127.0.0.1\"\n\
         bind-port = {node}\n\
         listen-mode = \"tcp\"\n\
         log-filter = \"warn\"\n\
         default-num-partitions = {PARTITIONS}\n\
         [ingress]\n\
         bind-port = {api}\n\
         [admin]\n\
         bind-port = {admin}\n"
    )
}
