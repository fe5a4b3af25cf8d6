//! A server that answers what it is told to, in order, and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use abide_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What a request is answered with.
#[derive(Clone)]
pub(crate) enum Step {
    /// These bytes; the connection stays open.
    Bytes(String),
    /// These bytes, and then the end of the connection.
    Last(String),
    /// Nothing, and the end of the connection.
    HangUp,
    /// Nothing.
    Silence,
}

impl Step {
    /// The same, and then the end of the connection.
    pub(crate) fn and_closes(self) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Last(bytes),
            other => other,
        }
    }

    pub(crate) fn answer(status: u16, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"))
    }
}

/// An answer with data.
pub(crate) fn succeeded(status: u16, data: &str) -> Step {
    Step::answer(status, &envelope(data))
}

/// An answer that says why there is none.
pub(crate) fn failed(status: u16, code: &str, message: &str) -> Step {
    let error = format!(r#"{{"code":"{code}","message":"{message}"}}"#);
    let body = format!(
        r#"{{"status":"Failed","correlationId":"c","timestamp":"2026-01-01T00:00:00Z","error":{error}}}"#
    );
    Step::answer(status, &body)
}

fn envelope(data: &str) -> String {
    format!(
        r#"{{"status":"Succeeded","correlationId":"c","timestamp":"2026-01-01T00:00:00Z","data":{data}}}"#
    )
}

#[derive(Default)]
struct Told {
    script: Mutex<VecDeque<Step>>,
    requests: Mutex<Vec<String>>,
    connections: Mutex<usize>,
    closed: Notify,
}

pub(crate) struct Scripted {
    address: String,
    told: Arc<Told>,
    serving: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Scripted {
    pub(crate) async fn play(script: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let told = Arc::new(Told { script: Mutex::new(script.into_iter().collect()), ..Told::default() });
        let serving = tokio::spawn({
            let told = Arc::clone(&told);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    *told.connections.lock().unwrap() += 1;
                    tokio::spawn(serve(stream, Arc::clone(&told)));
                }
            }
        });
        Self { address, told, serving }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address).unwrap()
    }

    /// Method and path of every request.
    pub(crate) fn heads(&self) -> Vec<String> {
        let requests = self.told.requests.lock().unwrap();
        requests.iter().map(|head| head.split(" HTTP/").next().unwrap().to_owned()).collect()
    }

    /// The value of a header in every request that has it.
    pub(crate) fn header(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}: ");
        let requests = self.told.requests.lock().unwrap();
        requests
            .iter()
            .flat_map(|head| head.lines())
            .filter_map(|line| line.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.told.connections.lock().unwrap()
    }

    /// Resolves when the server has closed a connection of its own accord.
    pub(crate) async fn closed(&self) {
        self.told.closed.notified().await;
    }
}

async fn serve(mut stream: TcpStream, told: Arc<Told>) {
    let mut buffer = String::new();
    while let Some(head) = request(&mut stream, &mut buffer).await {
        told.requests.lock().unwrap().push(head);
        let step = told.script.lock().unwrap().pop_front();
        // More was asked than the script has: the test fails where it waits.
        match step.unwrap() {
            Step::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Step::Last(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                drop(stream);
                told.closed.notify_one();
                return;
            }
            Step::HangUp => return,
            Step::Silence => std::future::pending().await,
        }
    }
}

/// The head of the next request; its body is read and dropped.
async fn request(stream: &mut TcpStream, buffer: &mut String) -> Option<String> {
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
