//! A server that plays a script of responses in order and records the requests it received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use abide_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The reaction of the server to one request.
#[derive(Clone)]
pub(crate) enum ServerStep {
    /// Sends these bytes and keeps the connection open.
    Bytes(String),
    /// Sends these bytes and closes the connection.
    Last(String),
    /// Closes the connection without a response.
    HangUp,
    /// Sends nothing and keeps the connection open.
    Silence,
}

impl ServerStep {
    /// The same response, after which the server closes the connection.
    pub(crate) fn then_close(self) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Last(bytes),
            other => other,
        }
    }

    pub(crate) fn response(status: u16, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"))
    }
}

/// A successful response with data.
pub(crate) fn succeeded(status: u16, data: &str) -> ServerStep {
    ServerStep::response(status, &envelope(data))
}

/// An error response.
pub(crate) fn failed(status: u16, code: &str, message: &str) -> ServerStep {
    let error = format!(r#"{{"code":"{code}","message":"{message}"}}"#);
    let body = format!(
        r#"{{"status":"Failed","correlationId":"c","timestamp":"2026-01-01T00:00:00Z","error":{error}}}"#
    );
    ServerStep::response(status, &body)
}

fn envelope(data: &str) -> String {
    format!(
        r#"{{"status":"Succeeded","correlationId":"c","timestamp":"2026-01-01T00:00:00Z","data":{data}}}"#
    )
}

#[derive(Default)]
struct ReceivedRequests {
    script: Mutex<VecDeque<ServerStep>>,
    requests: Mutex<Vec<String>>,
    connections: Mutex<usize>,
    closed: Notify,
}

pub(crate) struct ScriptedServer {
    address: String,
    received: Arc<ReceivedRequests>,
    serving: JoinHandle<()>,
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ScriptedServer {
    pub(crate) async fn start(script: impl IntoIterator<Item = ServerStep>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(ReceivedRequests {
            script: Mutex::new(script.into_iter().collect()),
            ..ReceivedRequests::default()
        });
        let serving = tokio::spawn({
            let received = Arc::clone(&received);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    *received.connections.lock().unwrap() += 1;
                    tokio::spawn(serve(stream, Arc::clone(&received)));
                }
            }
        });
        Self { address, received, serving }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address).unwrap()
    }

    /// Method and path of every request.
    pub(crate) fn request_heads(&self) -> Vec<String> {
        let requests = self.received.requests.lock().unwrap();
        requests.iter().map(|head| head.split(" HTTP/").next().unwrap().to_owned()).collect()
    }

    /// The value of a header in every request that has it.
    pub(crate) fn header(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}: ");
        let requests = self.received.requests.lock().unwrap();
        requests
            .iter()
            .flat_map(|head| head.lines())
            .filter_map(|line| line.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.received.connections.lock().unwrap()
    }

    /// Resolves when the server has closed a connection of its own accord.
    pub(crate) async fn all_closed(&self) {
        self.received.closed.notified().await;
    }
}

async fn serve(mut stream: TcpStream, received: Arc<ReceivedRequests>) {
    let mut buffer = String::new();
    while let Some(head) = read_request(&mut stream, &mut buffer).await {
        received.requests.lock().unwrap().push(head);
        let step = received.script.lock().unwrap().pop_front();
        // If there are more requests than script steps, this panics and the test fails where it waits.
        match step.unwrap() {
            ServerStep::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            ServerStep::Last(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                drop(stream);
                received.closed.notify_one();
                return;
            }
            ServerStep::HangUp => return,
            ServerStep::Silence => std::future::pending().await,
        }
    }
}

/// The head of the next request; its body is read and dropped.
async fn read_request(stream: &mut TcpStream, buffer: &mut String) -> Option<String> {
    loop {
        if let Some((head, rest)) = buffer.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |n| n.parse().unwrap());
            if rest.len() >= length {
                let head = head.to_owned();
                *buffer = rest[length..].to_owned();
                return Some(head);
            }
        }
        let mut bytes = Vec::with_capacity(4096);
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => buffer.push_str(std::str::from_utf8(&bytes).unwrap()),
        }
    }
}
