//! What every request handler is given: the node, what activities there are, the limits, and whether the server is stopping.
//!
//! Knows no request and no route.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use abide_runtime::hands::Store;
use abide_runtime::{Node, Reply, Request};
use abide_store::rows::Health;
use abide_workflow::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::bodies::{Bodies, Share};
use crate::callers::Callers;
use crate::catalogue::Catalogue;
use crate::error::ApiError;
use crate::rate::Rate;

/// What a request may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppLimits {
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bytes of a run's input.
    pub payload_bytes_max: u64,
    /// How long the runtime and the store may take for an answer.
    pub answer_max: Duration,
    /// Requests in a second, of all clients together; 0 if there is no limit.
    pub requests_per_second: u32,
    /// Sessions whose events are taken at the same time (`maxConcurrentSessions`).
    pub sessions_max: usize,
}

/// The server as request handlers see it. Cheap to clone.
#[derive(Debug)]
pub struct App<S> {
    inner: Arc<Inner<S>>,
}

#[derive(Debug)]
struct Inner<S> {
    node: Arc<Node<S>>,
    catalogue: Catalogue<S>,
    limits: AppLimits,
    callers: Callers,
    bodies: Bodies,
    rate: Option<Rate>,
    stopping: watch::Sender<bool>,
    probes: Arc<Semaphore>,
    sessions: Semaphore,
}

/// How many bodies of the largest size there is room for at the same time.
const BODIES_MAX: usize = 32;
/// How long a readiness probe may take. A disk that hangs makes the question hang too.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// Probes asked at the same time, each on a thread that a disk may hold; more wait.
const PROBES_MAX: usize = 4;
/// How often a server that starts looks whether it is ready.
const READY_EVERY: Duration = Duration::from_millis(5);

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: Store> App<S> {
    /// A node, the activities its definitions may name, and who may call.
    pub fn new(node: Arc<Node<S>>, catalogue: Catalogue<S>, limits: AppLimits, callers: Callers) -> Self {
        let probes = Arc::new(Semaphore::new(PROBES_MAX));
        let bodies = Bodies::new(limits.body_bytes_max.saturating_mul(BODIES_MAX));
        let rate = NonZeroU32::new(limits.requests_per_second).map(Rate::per_second);
        Self {
            inner: Arc::new(Inner {
                node,
                catalogue,
                limits,
                callers,
                bodies,
                rate,
                stopping: watch::Sender::new(false),
                probes,
                sessions: Semaphore::new(limits.sessions_max.min(Semaphore::MAX_PERMITS)),
            }),
        }
    }

    /// The node.
    pub fn node(&self) -> &Node<S> {
        &self.inner.node
    }

    /// The activities that definitions may name.
    pub(crate) fn catalogue(&self) -> &Catalogue<S> {
        &self.inner.catalogue
    }

    pub(crate) fn limits(&self) -> AppLimits {
        self.inner.limits
    }

    pub(crate) fn callers(&self) -> &Callers {
        &self.inner.callers
    }

    /// A place among the sessions whose events are taken now.
    pub(crate) async fn session(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.inner.sessions.acquire().await.ok()
    }

    /// Room for a request's body.
    pub(crate) fn body_share(&self) -> Share {
        self.inner.bodies.share()
    }

    /// Whether one more request may come now.
    pub(crate) fn admits(&self) -> bool {
        self.inner.rate.as_ref().is_none_or(|rate| rate.admits(self.node().uptime()))
    }

    /// Asks the shard of an instance.
    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, ApiError> {
        Ok(self.in_time(self.node().ask(request)).await??)
    }

    /// An answer of the runtime or the store, if it comes in time. A store in trouble may keep it for as long as the trouble lasts; a client
    /// must not wait for that, and what it asked for may be done all the same.
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, ApiError> {
        let answer_max = self.limits().answer_max;
        let late = |_| ApiError::outcome_unknown(format!("there was no answer within {answer_max:?}"));
        tokio::time::timeout(answer_max, answer).await.map_err(late)
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Timestamp {
        self.node().now()
    }

    /// Whoever waits for something long is to answer now.
    pub fn stop(&self) {
        self.inner.stopping.send_replace(true);
    }

    /// Resolves when the server is stopping.
    pub(crate) fn stopping(&self) -> impl Future<Output = ()> + Send + use<S> {
        let mut stopping = self.inner.stopping.subscribe();
        async move {
            // The sender lives as long as the app: whoever waits here holds one, or the server is gone.
            drop(stopping.wait_for(|stopping| *stopping).await);
        }
    }

    /// Whether requests can be served; the reason if not.
    pub(crate) async fn readiness(&self) -> Result<(), String> {
        let hangs = || Err("the store does not answer".to_owned());
        self.probe(|app| app.node().readiness()).await.unwrap_or_else(hangs)
    }

    /// Whether the store takes reads and commits.
    pub(crate) async fn store_is_usable(&self) -> bool {
        self.probe(|app| app.node().store().health() == Health::Usable).await.unwrap_or(false)
    }

    /// Asks something that a disk may keep from answering: none if it does not answer in time.
    async fn probe<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let (app, probes) = (self.clone(), Arc::clone(&self.inner.probes));
        let answer = async move {
            let probe = probes.acquire_owned().await.ok()?;
            let asked = tokio::task::spawn_blocking(move || {
                let _probe = probe;
                question(&app)
            });
            asked.await.ok()
        };
        tokio::time::timeout(PROBE_MAX, answer).await.ok()?
    }

    /// Resolves when every shard is at work and the store is usable.
    pub async fn ready(&self) {
        while self.readiness().await.is_err() {
            tokio::time::sleep(READY_EVERY).await;
        }
    }
}
