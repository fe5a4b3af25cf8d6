//! The state shared by all request handlers: the node, the activity catalogue, the limits and the stop signal.
//!
//! Knows no individual request and no API route.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abide_runtime::{Node, ShardReply, ShardRequest};
use abide_store::Store;
use abide_store::rows::StoreHealth;
use abide_workflow::Timestamp;
use tokio::sync::{
    Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit, TryAcquireError, watch,
};

use crate::activity_catalogue::ActivityCatalogue;
use crate::byte_budget::{ByteBudget, ByteReservation};
use crate::connection_load::ConnectionLoad;
use crate::error::ApiError;
use crate::origin_check::OriginPolicy;
use crate::rate_limit::RateLimiter;
use crate::rest::BackupSource;

/// Limits that apply to all requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppLimits {
    /// Of a request's body.
    pub body_bytes_max: usize,
    /// Of a run's input.
    pub payload_bytes_max: u64,
    /// How long a request waits for the runtime or the store.
    pub reply_timeout: Duration,
    /// Of the large responses that clients have not taken yet, over all connections.
    pub response_bytes_max: usize,
    /// Over all clients together; 0 means no limit.
    pub requests_per_second: u32,
    /// Sessions whose events are recorded at the same time (`maxConcurrentSessions`).
    pub concurrent_sessions_max: usize,
}

/// The server as request handlers see it. Cheap to clone.
#[derive(Debug)]
pub struct App<S> {
    inner: Arc<AppInner<S>>,
}

#[derive(Debug)]
struct AppInner<S> {
    node: Arc<Node<S>>,
    catalogue: ActivityCatalogue<S>,
    limits: AppLimits,
    origin_policy: OriginPolicy,
    body_budget: ByteBudget,
    response_budget: ByteBudget,
    load: Arc<ConnectionLoad>,
    rate_limiter: Option<RateLimiter>,
    stopping: watch::Sender<bool>,
    check_permits: Arc<Semaphore>,
    session_permits: Semaphore,
    dead_letter_locks: [Mutex<()>; DEAD_LETTER_LOCKS],
    /// The store, if it can be copied while it works.
    backup_source: OnceLock<Arc<dyn BackupSource>>,
    backup_permit: Arc<Semaphore>,
}

/// The body budget holds this many bodies of the largest size.
const BODIES_MAX: usize = 32;
/// How long a readiness check may take. A disk that hangs makes the check hang too.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Readiness checks at the same time. Each occupies a thread that a hanging disk may block; further checks wait.
const CONCURRENT_CHECKS_MAX: usize = 4;
/// Dead letters that can be looked for and written at the same time, mostly.
const DEAD_LETTER_LOCKS: usize = 64;
/// How often [`App::ready`] checks readiness while the server starts.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: Store> App<S> {
    /// `catalogue` holds the activities that definitions may name; `origin_policy` decides which requests are accepted.
    pub fn new(
        node: Arc<Node<S>>,
        catalogue: ActivityCatalogue<S>,
        limits: AppLimits,
        origin_policy: OriginPolicy,
    ) -> Self {
        let check_permits = Arc::new(Semaphore::new(CONCURRENT_CHECKS_MAX));
        let body_budget = ByteBudget::new(limits.body_bytes_max.saturating_mul(BODIES_MAX));
        let response_budget = ByteBudget::new(limits.response_bytes_max);
        let rate_limiter = NonZeroU32::new(limits.requests_per_second).map(RateLimiter::per_second);
        Self {
            inner: Arc::new(AppInner {
                node,
                catalogue,
                limits,
                origin_policy,
                body_budget,
                response_budget,
                load: Arc::default(),
                rate_limiter,
                stopping: watch::Sender::new(false),
                check_permits,
                session_permits: Semaphore::new(limits.concurrent_sessions_max.min(Semaphore::MAX_PERMITS)),
                dead_letter_locks: std::array::from_fn(|_| Mutex::default()),
                backup_source: OnceLock::new(),
                backup_permit: Arc::new(Semaphore::new(1)),
            }),
        }
    }

    pub fn node(&self) -> &Node<S> {
        &self.inner.node
    }

    /// The activities that definitions may name.
    pub(crate) fn catalogue(&self) -> &ActivityCatalogue<S> {
        &self.inner.catalogue
    }

    pub(crate) fn limits(&self) -> AppLimits {
        self.inner.limits
    }

    pub(crate) fn origin_policy(&self) -> &OriginPolicy {
        &self.inner.origin_policy
    }

    /// A permit to record the events of one session; `rest/events` holds it until they are recorded. Waits until one is
    /// free, however long that takes.
    pub(crate) async fn acquire_session(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.inner.session_permits.acquire().await.ok()
    }

    /// Held while the dead letter of a message is looked for and, if there is none, written. Different messages seldom
    /// share a lock.
    pub(crate) async fn lock_dead_letters_of(&self, message_id: &str) -> Option<MutexGuard<'_, ()>> {
        let number =
            message_id.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let lock = self.inner.dead_letter_locks.get(number % DEAD_LETTER_LOCKS)?;
        Some(lock.lock().await)
    }

    /// Sets the store that `GET /api/backup` copies. Called at most once, before requests are served.
    pub fn set_backup_source(&self, source: Arc<dyn BackupSource>) {
        // A second source is dropped.
        drop(self.inner.backup_source.set(source));
    }

    pub(crate) fn backup_source(&self) -> Option<&Arc<dyn BackupSource>> {
        self.inner.backup_source.get()
    }

    /// A permit to copy the store, held until the copy is complete. There is one.
    pub(crate) fn try_begin_backup(&self) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        Arc::clone(&self.inner.backup_permit).try_acquire_owned()
    }

    /// An empty reservation in the body budget; it grows as the body arrives.
    pub(crate) fn reserve_body(&self) -> ByteReservation {
        self.inner.body_budget.reserve()
    }

    /// The bytes of request bodies that are held.
    pub(crate) fn body_budget(&self) -> &ByteBudget {
        &self.inner.body_budget
    }

    /// The bytes of responses that clients have not taken yet.
    pub(crate) fn response_budget(&self) -> &ByteBudget {
        &self.inner.response_budget
    }

    pub(crate) fn load(&self) -> &Arc<ConnectionLoad> {
        &self.inner.load
    }

    /// True if the rate limit admits one more request now.
    pub(crate) fn try_admit_request(&self) -> bool {
        self.inner.rate_limiter.as_ref().is_none_or(|rate| rate.try_acquire(self.node().uptime()))
    }

    /// Sends a request to the shard of its instance or entity, and waits for the reply as [`Self::with_timeout`] does.
    /// A refusal is a reply, not an error.
    pub(crate) async fn request(&self, request: ShardRequest) -> Result<ShardReply, ApiError> {
        Ok(self.with_timeout(self.node().request(request)).await??)
    }

    /// Waits for a reply of the runtime or the store, up to the reply timeout. A failing store may delay the reply for
    /// as long as it fails, and a client must not wait for that. After a timeout the outcome is unknown: the request
    /// may still take effect.
    pub(crate) async fn with_timeout<T>(&self, reply: impl Future<Output = T>) -> Result<T, ApiError> {
        let timeout = self.limits().reply_timeout;
        let late =
            |_| ApiError::outcome_unknown(format!("timed out after {timeout:?}; the outcome is unknown"));
        tokio::time::timeout(timeout, reply).await.map_err(late)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.node().now()
    }

    /// Begins the shutdown: the server closes its listener and drains the node, and handlers that wait for the end of a
    /// run respond now.
    pub fn stop(&self) {
        self.inner.stopping.send_replace(true);
    }

    /// Resolves when the server is stopping. The connections wait for it, and so do handlers that wait for a run's end.
    pub(crate) fn wait_for_stop(&self) -> impl Future<Output = ()> + Send + use<S> {
        let mut stopping = self.inner.stopping.subscribe();
        async move {
            // An error means that the sender is gone, and with it the app.
            drop(stopping.wait_for(|stopping| *stopping).await);
        }
    }

    /// Ok if requests can be served, that is, if the store is usable and every shard accepts requests; else the reason.
    /// For `/readyz` and [`Self::ready`].
    pub(crate) async fn readiness(&self) -> Result<(), String> {
        let hangs = || Err("the store does not respond".to_owned());
        self.check_blocking(|app| app.node().readiness()).await.unwrap_or_else(hangs)
    }

    /// True if the store accepts reads and commits; false too if it does not say so in time. For `/metrics`.
    pub(crate) async fn is_store_usable(&self) -> bool {
        self.check_blocking(|app| app.node().store().health() == StoreHealth::Usable).await.unwrap_or(false)
    }

    /// Runs a check that a hanging disk may block; none if it does not finish in time. The check itself goes on then,
    /// and keeps its thread and its permit until it ends.
    async fn check_blocking<T: Send + 'static>(
        &self,
        check: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let app = self.clone();
        let permits = Arc::clone(&self.inner.check_permits);
        let result = async move {
            let permit = permits.acquire_owned().await.ok()?;
            let blocking = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                check(&app)
            });
            blocking.await.ok()
        };
        tokio::time::timeout(CHECK_TIMEOUT, result).await.ok()?
    }

    /// Resolves when every shard is ready and the store is usable.
    pub async fn ready(&self) {
        while self.readiness().await.is_err() {
            tokio::time::sleep(READY_POLL_INTERVAL).await;
        }
    }
}
