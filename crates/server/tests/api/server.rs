//! The complete server: its data folder, its socket, starting and stopping.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use abide_server::{
    Config, EntityKind, OperationContext, OperationError, OperationOutcome, ServeError, Server, ServerBuilder,
};
use abide_testkit::http_client::{HttpRequest, send_once};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::test_api::{definition, echo, waits_for_event};

pub(crate) fn config(data: &Path) -> Config {
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.store.data = data.to_owned();
    config.store.shards = 4;
    config
}

/// One request on a new connection.
pub(crate) async fn http_request(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let response = send_once(address, &HttpRequest::with_body(method, path, body)).await.unwrap();
    (response.status, response.json().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_survive_a_restart_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let address = server.address();
    let published = definition("w", "1.0.0", &echo()).to_string();
    assert_eq!(http_request(address, "POST", "/api/workflows", &published).await.0, 201);
    let start = json!({"workflow": "w", "instanceId": "i", "input": 7}).to_string();
    let (status, ended) = http_request(address, "POST", "/api/instances?wait=PT30S", &start).await;
    assert_eq!((status, &ended["data"]["output"]), (200, &json!(7)));
    server.stop().await;

    let mut other = config(folder.path());
    other.store.shards = 8;
    let rejected = Server::start(&other).await.unwrap_err();
    assert!(matches!(rejected, ServeError::Layout(_)), "{rejected}");

    let server = Server::start(&config(folder.path())).await.unwrap();
    let (status, shown) = http_request(server.address(), "GET", "/api/instances/i", "").await;
    assert_eq!((status, &shown["data"]), (200, &ended["data"]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_an_end_gets_a_response_when_the_server_stops() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let address = server.address();
    let published = definition("w", "1.0.0", &waits_for_event()).to_string();
    assert_eq!(http_request(address, "POST", "/api/workflows", &published).await.0, 201);
    let start = json!({"workflow": "w", "instanceId": "i"}).to_string();
    let waits =
        tokio::spawn(async move { http_request(address, "POST", "/api/instances?wait=PT5M", &start).await });
    while http_request(address, "GET", "/api/instances/i", "").await.0 != 200 {}
    server.stop().await;
    let (status, response) = waits.await.unwrap();
    assert_eq!((status, &response["data"]["instanceId"]), (202, &json!("i")));
    assert!(TcpStream::connect(address).await.is_err(), "the server no longer listens");
}

#[tokio::test]
async fn an_address_that_is_not_loopback_is_rejected_unless_insecure_is_set() {
    let folder = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let mut config = config(folder.path());
        config.server.listen = listen.parse().unwrap();
        let rejected = Server::start(&config).await.unwrap_err();
        assert!(matches!(rejected, ServeError::InsecureAddress { .. }), "{listen}: {rejected}");
    }
    let mut open = config(folder.path());
    open.server.listen = "0.0.0.0:0".parse().unwrap();
    open.server.insecure = true;
    Server::start(&open).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_folder_is_served_by_one_process_and_a_port_by_one_server() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    let rejected = Server::start(&config(folder.path())).await.unwrap_err();
    assert!(matches!(rejected, ServeError::Store(_)), "{rejected}");
    let mut same_port = config(elsewhere.path());
    same_port.server.listen = server.address();
    let rejected = Server::start(&same_port).await.unwrap_err();
    assert!(matches!(rejected, ServeError::Listen { .. }), "{rejected}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_still_serves_health_checks() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.server.connections_max = 2;
    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    let address = server.address();
    // Connections accepted earlier are counted when the next one is accepted.
    let held = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http_request(address, "GET", path, "").await.0, 200, "{path}");
    }
    let (status, rejected) = http_request(address, "GET", "/api/instances/i", "").await;
    assert_eq!((status, &rejected["error"]["code"]), (503, &json!("SERVICE_UNAVAILABLE")));
    drop(held);
    // The server accepts requests again as soon as it notices that the connections are closed.
    while http_request(address, "GET", "/api/instances/i", "").await.0 != 404 {}
    server.stop().await;
}

/// Counts up to three.
struct Counter;

impl EntityKind for Counter {
    fn operate(&self, call: &OperationContext<'_>) -> Result<OperationOutcome, OperationError> {
        let count = call.state.and_then(|state| state.as_u64()).unwrap_or_default();
        match call.operation {
            "Count" if count < 3 => {
                let next = Arc::new(json!(count + 1));
                Ok(OperationOutcome { state: Some(Arc::clone(&next)), output: next })
            }
            "Count" => {
                Err(OperationError::Refused { code: "Full".to_owned(), reason: "it is three".to_owned() })
            }
            other => Err(OperationError::UnknownOperation { name: other.to_owned() }),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_of_a_custom_kind_have_its_operations_and_state() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        ServerBuilder::new(config(folder.path())).entity_kind("Counter", Counter).start().await.unwrap();
    server.ready().await;
    let operate = async |entity: &str, operation: &str| {
        let path = format!("/api/entities/{entity}/{operation}");
        http_request(server.address(), "POST", &path, "").await
    };
    for count in 1..=3 {
        let (status, response) = operate("counter/a", "Count").await;
        assert_eq!((status, &response["data"]["output"]), (200, &json!(count)), "{response}");
    }
    let (status, shown) = http_request(server.address(), "GET", "/api/entities/counter/a", "").await;
    assert_eq!((status, &shown["data"]["state"]), (200, &json!(3)), "{shown}");
    for (entity, operation, status, code, message) in [
        ("counter/a", "Count", 409, "CONFLICT", "it is three"),
        ("counter/a", "Dance", 400, "VALIDATION_ERROR", "entities of this type have no operation \"Dance\""),
        ("other/a", "Count", 400, "VALIDATION_ERROR", "entities of this type have no operation \"Count\""),
    ] {
        let (found, rejected) = operate(entity, operation).await;
        let error = (&rejected["error"]["code"], &rejected["error"]["message"]);
        assert_eq!((found, error), (status, (&json!(code), &json!(message))), "{entity} {operation}");
    }
    let (_, shown) = http_request(server.address(), "GET", "/api/entities/counter/a", "").await;
    assert_eq!(shown["data"]["state"], 3, "a rejected operation changes nothing");
    server.stop().await;
}
