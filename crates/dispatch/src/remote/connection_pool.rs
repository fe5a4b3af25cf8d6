//! The connection pool of one origin: connections are kept open and reused, and a stale one costs no more than a new
//! one.
//!
//! ```text
//!  check out ─► an idle HTTP/1.1 connection, a stream of a shared HTTP/2 one, or a new connection through the guard
//!  exchange over it ─► a response, and the connection is checked in
//! ```
//! An HTTP/1.1 connection is polled by the exchange that uses it, and not at all while it is idle; each HTTP/2
//! connection has a task of its own. The pool knows exactly whether a request may have been sent: hyper returns a
//! request that it has not begun to write. Knows nothing about activities.

mod http1;
mod http2;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::TrySendError;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::http::uri::{self, Authority, PathAndQuery};
use hyper::{Method, Request, Uri, Version};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use self::http1::Http1;
use self::http2::{Http2, Http2Stream};
use super::tls_profile::TlsProfile;
use crate::egress_guard::{Scheme, Target};
use crate::hold::HoldReason;
use crate::http::{Connector, HttpResponse, connect_failed};
use crate::transport::{CallFailure, PermitSource};

/// How long an idle connection is kept. Shorter than the idle timeout of common servers (5 s), because a request that
/// crosses with the server's close has an unknown outcome.
const HTTP1_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The same for HTTP/2, where a close is announced.
const HTTP2_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection is used at all: the address of a name may belong to another host later.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);
/// How often the pool closes connections that are no longer kept.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// How long a shared connection may take to open, with reading its secrets: a secret may be in a file that hangs.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// The most idle HTTP/1.1 connections.
const IDLE_CONNECTIONS_MAX: usize = 1_024;
/// How often a connection may turn out to be closed before anything was sent.
const TRIES_MAX: usize = 3;

/// The HTTP versions that are used with an origin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum HttpVersions {
    /// HTTP/2, also without TLS.
    Http2,
    /// With TLS the version that both sides prefer; without TLS HTTP/1.1.
    Either,
}

/// The connections to one origin.
pub(super) struct ConnectionPool {
    target: Target,
    /// The host as requests name it, in a header or in the URL; none if it is invalid there.
    host: Option<(HeaderValue, Authority)>,
    connector: Connector,
    tls: TlsProfile,
    http_versions: HttpVersions,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The connection used last is used next, so that the others can be closed.
    idle: Vec<Http1>,
    shared: Vec<Http2>,
    /// A connection that is being opened for all waiting exchanges.
    dialling: Option<PendingDial>,
    /// The last connection used HTTP/1.1, so the next one will.
    is_http1: bool,
    has_reaper: bool,
}

type PendingDial = watch::Receiver<Option<Result<(), CallFailure>>>;

/// A request, ready for either HTTP version.
#[derive(Debug)]
pub(super) struct OutboundRequest {
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The largest body of a response, in bytes: of a success, and of a failure.
    pub(super) bytes_max: (usize, usize),
}

/// Why there is no response.
enum SendError {
    /// Nothing was sent: the connection was closed before. The request is unchanged.
    Unsent(hyper::Error, Box<Request<Full<Bytes>>>),
    /// It is unknown whether the request was handled.
    Lost(hyper::Error),
}

impl From<TrySendError<Request<Full<Bytes>>>> for SendError {
    fn from(mut error: TrySendError<Request<Full<Bytes>>>) -> Self {
        match error.take_message() {
            Some(request) => Self::Unsent(error.into_error(), Box::new(request)),
            None => Self::Lost(error.into_error()),
        }
    }
}

enum NextConnection {
    Idle(Box<Http1>),
    Stream(Http2Stream),
    /// Open a connection that no other exchange could use.
    DialOwn,
    /// Wait for a connection that is being opened for all.
    AwaitDial(PendingDial),
}

impl ConnectionPool {
    pub(super) fn new(
        target: Target,
        connector: Connector,
        tls: TlsProfile,
        http_versions: HttpVersions,
    ) -> Self {
        let host = HeaderValue::from_str(target.authority()).ok().zip(target.authority().parse().ok());
        Self { target, host, connector, tls, http_versions, state: Mutex::default() }
    }

    /// Sends one request and reads its response, until the end of the attempt's time limit. A failure before anything
    /// was sent has a known outcome; a later one does not.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        outgoing: OutboundRequest,
        time_limit: Duration,
        until: Instant,
        caller: &impl PermitSource,
    ) -> Result<HttpResponse, CallFailure> {
        let OutboundRequest { path, headers, body, bytes_max } = outgoing;
        let timed_out = || {
            let after = time_limit.as_millis();
            let message = format!("{}: the attempt timed out after {after} ms", self.target.without_query());
            CallFailure::retryable("AttemptTimeout", message)
        };
        let not_connected = || {
            let target = self.target.without_query();
            let after = time_limit.as_millis();
            let message = format!("{target}: the attempt timed out after {after} ms, before it was sent");
            CallFailure::held(HoldReason::NotConnected, "AttemptTimeout", message)
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        let mut unsent = None;
        for _ in 0..TRIES_MAX {
            let next = timeout_at(until, self.check_out()).await.map_err(|_| not_connected())??;
            // The connection may have become available only when the time was up.
            if Instant::now() >= until {
                return Err(not_connected());
            }
            timeout_at(until, caller.confirm_send()).await.map_err(|_| not_connected())??;
            let exchanged = match next {
                PooledConnection::Http1(connection) => {
                    self.set_host(&mut request, &path, Version::HTTP_11)?;
                    let sent = connection.exchange(request, bytes_max);
                    timeout_at(until, sent).await.map(|exchanged| {
                        let (exchanged, connection) = exchanged?;
                        connection.into_iter().for_each(|connection| self.check_in(connection));
                        Ok(exchanged)
                    })
                }
                PooledConnection::Http2(stream) => {
                    self.set_host(&mut request, &path, Version::HTTP_2)?;
                    timeout_at(until, stream.exchange(request, bytes_max)).await
                }
            };
            match exchanged {
                Ok(Ok(exchanged)) => return Ok(exchanged),
                Ok(Err(SendError::Unsent(error, returned))) => {
                    unsent = Some(error);
                    request = *returned;
                }
                Ok(Err(SendError::Lost(error))) => {
                    return Err(crate::http::connection_lost(&self.target, &error));
                }
                Err(_) => return Err(timed_out().with_outcome_unknown()),
            }
        }
        Err(unsent.map_or_else(not_connected, |error| connect_failed(&self.target, &error)))
    }

    /// Takes a connection out of the pool, or opens one.
    async fn check_out(self: &Arc<Self>) -> Result<PooledConnection, CallFailure> {
        let mut dials = 0;
        // A server that closes every new connection is not dialled for ever.
        while dials < TRIES_MAX {
            match self.next_connection() {
                NextConnection::Idle(mut connection) => {
                    if connection.is_open().await {
                        return Ok(PooledConnection::Http1(*connection));
                    }
                }
                NextConnection::Stream(stream) => return Ok(PooledConnection::Http2(stream)),
                NextConnection::DialOwn => {
                    dials += 1;
                    // The future of a handshake is large and rarely needed: unboxed it would enlarge that of every
                    // attempt.
                    if let Some(connection) = Box::pin(self.establish()).await? {
                        return Ok(PooledConnection::Http1(connection));
                    }
                }
                NextConnection::AwaitDial(mut dialled) => {
                    dials += 1;
                    let result = dialled.wait_for(Option::is_some).await.map(|result| result.clone());
                    let abandoned = || {
                        CallFailure::held(
                            HoldReason::NotConnected,
                            "ConnectFailed",
                            "connection attempt abandoned",
                        )
                    };
                    result.ok().flatten().ok_or_else(abandoned)??;
                }
            }
        }
        let message = format!("{} closed the connection before anything was sent", self.target);
        Err(CallFailure::held(HoldReason::NotConnected, "ConnectFailed", message))
    }

    fn next_connection(self: &Arc<Self>) -> NextConnection {
        let now = Instant::now();
        let mut state = self.state();
        while let Some(connection) = state.idle.pop() {
            if now < connection.idle_deadline() {
                return NextConnection::Idle(Box::new(connection));
            }
        }
        let stream = http2::least_used(&mut state.shared, now);
        if let Some(stream) = stream {
            // Later exchanges will need another connection, but this one does not wait for it.
            if http2::needs_another_connection(&state.shared) && state.dialling.is_none() {
                self.dial(&mut state);
            }
            return NextConnection::Stream(stream);
        }
        let is_http1 = self.http_versions == HttpVersions::Either && self.target.scheme() == Scheme::Http;
        if is_http1 || state.is_http1 {
            return NextConnection::DialOwn;
        }
        let dialled = state.dialling.clone().unwrap_or_else(|| self.dial(&mut state));
        NextConnection::AwaitDial(dialled)
    }

    /// Opens one connection for all waiting exchanges, in a task of its own: the exchange that started it may be
    /// dropped before it is done.
    fn dial(self: &Arc<Self>, state: &mut PoolState) -> PendingDial {
        let (sender, dialled) = watch::channel(None);
        state.dialling = Some(dialled.clone());
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            let dialling = DialGuard(Arc::clone(&pool));
            let late = |_| {
                let after = DIAL_TIMEOUT.as_millis();
                let message = format!("{}: connecting timed out after {after} ms", pool.target);
                Err(CallFailure::held(HoldReason::NotConnected, "ConnectFailed", message))
            };
            let established = timeout(DIAL_TIMEOUT, pool.establish()).await.unwrap_or_else(late);
            let result =
                established.map(|connection| connection.into_iter().for_each(|one| pool.check_in(one)));
            drop(dialling);
            // Perhaps no exchange waits any more.
            let _ = sender.send(Some(result));
        });
        dialled
    }

    /// Opens a connection: one of HTTP/1.1 is returned, one of HTTP/2 is shared through the pool.
    async fn establish(self: &Arc<Self>) -> Result<Option<Http1>, CallFailure> {
        let tls = self.tls.connector().await?;
        let connected = self.connector.connect(&self.target, &tls).await?;
        let in_the_clear = self.target.scheme() == Scheme::Http;
        let is_http2 = connected.is_http2 || (self.http_versions == HttpVersions::Http2 && in_the_clear);
        if self.http_versions == HttpVersions::Http2 && !is_http2 {
            let message = format!("{} does not support HTTP/2", self.target);
            // It was reached, so this is no outage that the call should wait for: it uses up an attempt.
            return Err(CallFailure::retryable("ConnectFailed", message));
        }
        let failed = |error: hyper::Error| connect_failed(&self.target, &error);
        self.state().is_http1 = !is_http2;
        if is_http2 {
            let connection = Http2::handshake(connected.io).await.map_err(failed)?;
            self.state().shared.push(connection);
            self.ensure_reaper();
            return Ok(None);
        }
        Http1::handshake(connected.io).await.map(Some).map_err(failed)
    }

    /// Keeps a connection for the next request.
    fn check_in(self: &Arc<Self>, connection: Http1) {
        let mut state = self.state();
        if state.idle.len() < IDLE_CONNECTIONS_MAX {
            state.idle.push(connection);
        }
        drop(state);
        self.ensure_reaper();
    }

    /// Starts the task that closes unused connections, unless it is running.
    fn ensure_reaper(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state().has_reaper, true) {
            return;
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REAP_INTERVAL).await;
                if Weak::upgrade(&pool).is_none_or(|pool| pool.reap(Instant::now())) {
                    return;
                }
            }
        });
    }

    /// Closes the connections that are no longer kept; true if none is left.
    fn reap(&self, now: Instant) -> bool {
        let mut state = self.state();
        let unused: Vec<Http1> = state.idle.extract_if(.., |one| one.idle_deadline() <= now).collect();
        let unused_too: Vec<Http2> = state.shared.extract_if(.., |one| one.should_close(now)).collect();
        state.has_reaper = !state.idle.is_empty() || !state.shared.is_empty();
        let is_empty = !state.has_reaper;
        // Closing takes time, and others wait for the lock.
        drop(state);
        drop((unused, unused_too));
        is_empty
    }

    /// Names the host as the HTTP version requires: HTTP/1.1 in a header, HTTP/2 in the URL.
    fn set_host(
        &self,
        request: &mut Request<Full<Bytes>>,
        path: &PathAndQuery,
        version: Version,
    ) -> Result<(), CallFailure> {
        let invalid = || CallFailure::permanent("AddressDenied", "the host is invalid in a request");
        let (header, authority) = self.host.as_ref().ok_or_else(invalid)?;
        *request.version_mut() = version;
        if version == Version::HTTP_2 {
            let mut parts = uri::Parts::default();
            parts.scheme = Some(match self.target.scheme() {
                Scheme::Http => uri::Scheme::HTTP,
                Scheme::Https => uri::Scheme::HTTPS,
            });
            parts.authority = Some(authority.clone());
            parts.path_and_query = Some(path.clone());
            *request.uri_mut() = Uri::from_parts(parts).map_err(|_| invalid())?;
            request.headers_mut().remove(HOST);
        } else {
            *request.uri_mut() = Uri::from(path.clone());
            request.headers_mut().insert(HOST, header.clone());
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // Nothing that is done under the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks that a connection is being opened. However that ends, even in a panic, the next one may be opened.
struct DialGuard(Arc<ConnectionPool>);

impl Drop for DialGuard {
    fn drop(&mut self) {
        self.0.state().dialling = None;
    }
}

/// A connection, or a stream of a shared one, for one exchange.
enum PooledConnection {
    Http1(Http1),
    Http2(Http2Stream),
}
