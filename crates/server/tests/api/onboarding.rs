//! Device onboarding as specified, at the scale of its specification: 200 events of 16 KiB, and many small ones.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{config, http_request};

const WORKFLOW: &str = include_str!("../../../../examples/tours/onboarding/workflow.json");
const ACTIVITIES: [&str; 6] = [
    "CreateOnboardingRecord",
    "ProcessDeviceEvents",
    "UpdateExternalSystem",
    "NotifyOperations",
    "RollbackOnboardingRecord",
    "NotifyOnboardingFailure",
];

/// A service that does everything it is asked, and keeps the events it was asked to process.
async fn service() -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let processed = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&processed);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, Arc::clone(&kept)));
        }
    });
    (address, processed)
}

async fn respond(mut stream: TcpStream, processed: Arc<Mutex<Vec<Value>>>) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
        stream.read_buf(&mut bytes).await.unwrap();
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let length: usize = length.trim().parse().unwrap();
    while bytes.len() < end + length {
        stream.read_buf(&mut bytes).await.unwrap();
    }
    let input: Value = serde_json::from_slice(&bytes[end..]).unwrap();
    if let Some(events) = input["events"].as_array() {
        processed.lock().unwrap().extend(events.iter().cloned());
    }
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\ncontent-type: application/json";
    stream.write_all(format!("{head}\r\n\r\n\"ok\"").as_bytes()).await.unwrap();
}

/// Plays one device with this many events of this many bytes of data, and returns the events as they were processed.
async fn events_processed(count: usize, bytes: usize) -> Vec<Value> {
    let (service, processed) = service().await;
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.dispatch.allow.push("127.0.0.1".to_owned());
    config.activities = ACTIVITIES
        .map(|name| {
            let declaration = json!({
                "name": name, "category": "other", "transport": "rest", "endpoint": format!("http://{service}/"),
            });
            serde_json::from_value(declaration).unwrap()
        })
        .to_vec();
    let server = abide_server::Server::start(&config).await.unwrap();
    server.ready().await;
    let call = async |method: &str, path: &str, body: &str| {
        let (status, reply) = http_request(server.address(), method, path, body).await;
        assert!(status < 300, "{path}: {reply}");
        reply
    };
    call("POST", "/api/workflows", WORKFLOW).await;
    let workflow = "device-onboarding-workflow";
    for (event_type, route) in [
        ("joined", json!({"entityType": "device", "action": "start", "workflow": workflow})),
        ("reported", json!({"entityType": "device", "action": "record"})),
        (
            "ready",
            json!({
                "entityType": "device", "action": "raise", "workflow": workflow, "eventName": "ExternalProcessComplete",
            }),
        ),
    ] {
        call("PUT", &format!("/api/routes/{event_type}"), &route.to_string()).await;
    }
    let send = async |number: usize, event_type: &str, data: &str| {
        let event = json!({"specversion": "1.0", "id": number.to_string(), "source": "/fleet", "type": event_type,
            "subject": "dev-1", "data": data});
        call("POST", "/api/events", &event.to_string()).await;
    };
    send(0, "joined", "").await;
    let data = "x".repeat(bytes);
    for number in 1..=count {
        send(number, "reported", &data).await;
    }
    send(count + 1, "ready", "").await;
    loop {
        let shown = call("GET", &format!("/api/instances/dev-1~{workflow}"), "").await["data"].clone();
        assert_ne!(shown["status"], "Failed", "{}", shown["error"]);
        if shown["status"] == "Completed" {
            break;
        }
    }
    server.stop().await;
    let processed = processed.lock().unwrap().clone();
    assert!(processed.iter().all(|event| event["recordedAtUtc"].is_string()));
    assert_eq!(
        processed.iter().filter(|event| event["data"] == *data).count(),
        count,
        "the events of the device"
    );
    processed
}

fn assert_in_order(processed: &[Value]) {
    let positions: Vec<u64> = processed.iter().map(|event| event["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (0..processed.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_200_events_of_16_kib_is_onboarded_with_default_settings() {
    let processed = events_processed(200, 16 * 1024).await;
    assert_eq!(processed.len(), 202);
    assert_in_order(&processed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_with_1000_events_of_1_kib_is_onboarded_with_default_settings() {
    let processed = events_processed(1_000, 1024).await;
    assert_eq!(processed.len(), 1_002);
    assert_in_order(&processed);
}
