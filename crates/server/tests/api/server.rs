//! The whole server: a folder, a socket, starting and stopping.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use abide_server::{
    Builder, Config, EntityKind, OperationCall, OperationError, OperationOutcome, ServeError, Server,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{definition, echo, waits};

pub(crate) fn config(data: &Path) -> Config {
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.store.data = data.to_owned();
    config.store.shards = 4;
    config
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let head = format!("{head}content-type: application/json\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_is_there_after_the_server_was_stopped_and_started() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let address = server.address();
    let published = definition("w", "1.0.0", &echo()).to_string();
    assert_eq!(ask(address, "POST", "/api/workflows", &published).await.0, 201);
    let start = json!({"workflow": "w", "instanceId": "i", "input": 7}).to_string();
    let (status, ended) = ask(address, "POST", "/api/instances?wait=PT30S", &start).await;
    assert_eq!((status, &ended["data"]["output"]), (200, &json!(7)));
    server.stop().await;

    let mut other = config(folder.path());
    other.store.shards = 8;
    let refused = Server::start(&other).await.unwrap_err();
    assert!(matches!(refused, ServeError::Layout(_)), "{refused}");

    let server = Server::start(&config(folder.path())).await.unwrap();
    let (status, shown) = ask(server.address(), "GET", "/api/instances/i", "").await;
    assert_eq!((status, &shown["data"]), (200, &ended["data"]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_an_end_is_answered_when_the_server_stops() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let address = server.address();
    let published = definition("w", "1.0.0", &waits()).to_string();
    assert_eq!(ask(address, "POST", "/api/workflows", &published).await.0, 201);
    let start = json!({"workflow": "w", "instanceId": "i"}).to_string();
    let waits = tokio::spawn(async move { ask(address, "POST", "/api/instances?wait=PT5M", &start).await });
    while ask(address, "GET", "/api/instances/i", "").await.0 != 200 {}
    server.stop().await;
    let (status, answer) = waits.await.unwrap();
    assert_eq!((status, &answer["data"]["instanceId"]), (202, &json!("i")));
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_unless_it_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let mut config = config(folder.path());
        config.server.listen = listen.parse().unwrap();
        let refused = Server::start(&config).await.unwrap_err();
        assert!(matches!(refused, ServeError::OpenToAll { .. }), "{listen}: {refused}");
    }
    let mut open = config(folder.path());
    open.server.listen = "0.0.0.0:0".parse().unwrap();
    open.server.insecure = true;
    Server::start(&open).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_folder_is_served_by_one_process_and_a_port_by_one_server() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(&config(folder.path())).await.unwrap();
    let refused = Server::start(&config(folder.path())).await.unwrap_err();
    assert!(matches!(refused, ServeError::Store(_)), "{refused}");
    let mut same_port = config(elsewhere.path());
    same_port.server.listen = server.address();
    let refused = Server::start(&same_port).await.unwrap_err();
    assert!(matches!(refused, ServeError::Listen { .. }), "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_still_says_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.server.connections_max = 2;
    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    let address = server.address();
    // Whoever was accepted before is counted when the next one is.
    let held = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(address, "GET", path, "").await.0, 200, "{path}");
    }
    let (status, refused) = ask(address, "GET", "/api/instances/i", "").await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("SERVICE_UNAVAILABLE")));
    drop(held);
    // Room is made as soon as the server has seen that they have gone.
    while ask(address, "GET", "/api/instances/i", "").await.0 != 404 {}
    server.stop().await;
}

/// Counts up to three.
struct Counter;

impl EntityKind for Counter {
    fn operate(&self, call: &OperationCall<'_>) -> Result<OperationOutcome, OperationError> {
        let count = call.state.and_then(|state| state.as_u64()).unwrap_or_default();
        match call.operation {
            "Count" if count < 3 => {
                let next = Arc::new(json!(count + 1));
                Ok(OperationOutcome { state: Some(Arc::clone(&next)), output: next })
            }
            "Count" => {
                Err(OperationError::Refused { code: "Full".to_owned(), reason: "it is three".to_owned() })
            }
            other => Err(OperationError::Unknown { name: other.to_owned() }),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_of_a_programs_own_kind_have_its_operations_and_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let server = Builder::new(config(folder.path())).entity_kind("Counter", Counter).start().await.unwrap();
    server.ready().await;
    let operate = async |entity: &str, operation: &str| {
        let path = format!("/api/entities/{entity}/{operation}");
        ask(server.address(), "POST", &path, "").await
    };
    for count in 1..=3 {
        let (status, answer) = operate("counter/a", "Count").await;
        assert_eq!((status, &answer["data"]["output"]), (200, &json!(count)), "{answer}");
    }
    let (status, shown) = ask(server.address(), "GET", "/api/entities/counter/a", "").await;
    assert_eq!((status, &shown["data"]["state"]), (200, &json!(3)), "{shown}");
    for (entity, operation, status, code, message) in [
        ("counter/a", "Count", 409, "CONFLICT", "it is three"),
        ("counter/a", "Dance", 400, "VALIDATION_ERROR", "entities of this type have no operation \"Dance\""),
        ("other/a", "Count", 400, "VALIDATION_ERROR", "entities of this type have no operation \"Count\""),
    ] {
        let (told, refused) = operate(entity, operation).await;
        let error = (&refused["error"]["code"], &refused["error"]["message"]);
        assert_eq!((told, error), (status, (&json!(code), &json!(message))), "{entity} {operation}");
    }
    let (_, shown) = ask(server.address(), "GET", "/api/entities/counter/a", "").await;
    assert_eq!(shown["data"]["state"], 3, "what was refused has changed nothing");
    server.stop().await;
}
