//! The connections to one origin: kept open, used again, and never more trouble than a new one.
//!
//! ```text
//!  lease ─► an idle HTTP/1.1 connection, or a stream of a shared HTTP/2 one, or a new connection by way of the guard
//!  exchange over it ─► a response, and the connection goes back
//! ```
//! HTTP/1.1 connections are polled by the exchange that uses them and by nobody while they are idle; HTTP/2 connections have a task each.
//! Whether a request may have been sent is known exactly: hyper gives back what it has not begun to write. Knows nothing of activities.

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
use self::http2::{Http2, Stream};
use super::tls_profile::TlsProfile;
use crate::guard::{Scheme, Target};
use crate::http::{Connector, Exchanged, not_connected};
use crate::transport::Failure;

/// How long an idle connection is kept. Shorter than what common servers wait before they hang up (5 s), because a request that crosses
/// with a server's hanging up has an outcome that nobody knows.
const IDLE_HTTP1: Duration = Duration::from_secs(4);
/// The same for HTTP/2, where hanging up is announced.
const IDLE_HTTP2: Duration = Duration::from_secs(60);
/// How long a connection is used at all: an address that a name had may be another's tomorrow.
const AGE_MAX: Duration = Duration::from_secs(300);
/// How often it is looked for connections that are no longer kept.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a connection that is made for all may take, with what it is secured by: a secret may be in a file that hangs.
const DIAL_MAX: Duration = Duration::from_secs(15);
/// Idle HTTP/1.1 connections.
const IDLE_MAX: usize = 1_024;
/// Connections that turn out to be closed before anything was sent.
const TRIES_MAX: usize = 3;

/// Which versions of HTTP are spoken with an origin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Speaks {
    /// HTTP/2, also in the clear.
    Http2,
    /// Over TLS what both sides prefer, HTTP/1.1 in the clear.
    Either,
}

/// The connections to one origin.
pub(super) struct Origin {
    target: Target,
    /// The host as requests name it, in a header or in the URL; none if it cannot be named in one.
    host: Option<(HeaderValue, Authority)>,
    connector: Connector,
    tls: TlsProfile,
    speaks: Speaks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last one used is used next, so that the others can be let go.
    idle: Vec<Http1>,
    shared: Vec<Http2>,
    /// A connection that somebody makes for all.
    dialling: Option<Dialled>,
    /// The last connection was one of HTTP/1.1, so the next will be.
    is_http1: bool,
    is_looked_after: bool,
}

type Dialled = watch::Receiver<Option<Result<(), Failure>>>;

/// A request, ready for either version.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Bytes of a response's body that are read, if it tells of success and of failure.
    pub(super) bytes_max: (usize, usize),
}

/// Why there is no response.
enum Broken {
    /// Nothing was sent: the connection was closed before. The request is as it was.
    Unsent(hyper::Error, Box<Request<Full<Bytes>>>),
    /// Nobody knows.
    Lost(hyper::Error),
}

impl From<TrySendError<Request<Full<Bytes>>>> for Broken {
    fn from(mut error: TrySendError<Request<Full<Bytes>>>) -> Self {
        match error.take_message() {
            Some(request) => Self::Unsent(error.into_error(), Box::new(request)),
            None => Self::Lost(error.into_error()),
        }
    }
}

enum Next {
    Idle(Box<Http1>),
    Stream(Stream),
    /// Nobody else would have use for a new connection.
    Own,
    /// Somebody makes one for all.
    Wait(Dialled),
}

impl Origin {
    pub(super) fn new(target: Target, connector: Connector, tls: TlsProfile, speaks: Speaks) -> Self {
        let host = HeaderValue::from_str(target.authority()).ok().zip(target.authority().parse().ok());
        Self { target, host, connector, tls, speaks, state: Mutex::default() }
    }

    /// One request and its response. What fails before anything was sent has a known outcome, what fails later has none.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        outgoing: Outgoing,
        until: Instant,
    ) -> Result<Exchanged, Failure> {
        let too_late = || {
            let message = format!("{} took longer than the attempt may take", self.target);
            Failure::retryable("AttemptTimeout", message)
        };
        let Outgoing { path, headers, body, bytes_max } = outgoing;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        let mut unsent = None;
        for _ in 0..TRIES_MAX {
            let next = timeout_at(until, self.lease()).await.map_err(|_| too_late())??;
            // A connection that is there at the last moment may be there after it.
            if Instant::now() >= until {
                return Err(too_late());
            }
            let exchanged = match next {
                Lease::Http1(connection) => {
                    self.address(&mut request, &path, Version::HTTP_11)?;
                    let sent = connection.exchange(request, bytes_max);
                    timeout_at(until, sent).await.map(|exchanged| {
                        let (exchanged, connection) = exchanged?;
                        connection.into_iter().for_each(|connection| self.keep(connection));
                        Ok(exchanged)
                    })
                }
                Lease::Http2(stream) => {
                    self.address(&mut request, &path, Version::HTTP_2)?;
                    timeout_at(until, stream.exchange(request, bytes_max)).await
                }
            };
            match exchanged {
                Ok(Ok(exchanged)) => return Ok(exchanged),
                Ok(Err(Broken::Unsent(error, returned))) => {
                    unsent = Some(error);
                    request = *returned;
                }
                Ok(Err(Broken::Lost(error))) => return Err(crate::http::lost(&self.target, &error)),
                Err(_) => return Err(too_late().with_outcome_unknown()),
            }
        }
        Err(unsent.map_or_else(too_late, |error| not_connected(&self.target, &error)))
    }

    /// A connection to send over.
    async fn lease(self: &Arc<Self>) -> Result<Lease, Failure> {
        let mut made = 0;
        // A server that hangs up on every new connection is not dialled for ever.
        while made < TRIES_MAX {
            match self.next() {
                Next::Idle(mut connection) => {
                    if connection.is_open().await {
                        return Ok(Lease::Http1(*connection));
                    }
                }
                Next::Stream(stream) => return Ok(Lease::Http2(stream)),
                Next::Own => {
                    made += 1;
                    // A handshake is large and rare: every delivery would be as large as it is.
                    if let Some(connection) = Box::pin(self.establish()).await? {
                        return Ok(Lease::Http1(connection));
                    }
                }
                Next::Wait(mut dialled) => {
                    made += 1;
                    let told = dialled.wait_for(Option::is_some).await.map(|told| told.clone());
                    let gone = || Failure::retryable("ConnectFailed", "the connection was given up");
                    told.ok().flatten().ok_or_else(gone)??;
                }
            }
        }
        let message = format!("{} hung up before anything was sent", self.target);
        Err(Failure::retryable("ConnectFailed", message))
    }

    fn next(self: &Arc<Self>) -> Next {
        let now = Instant::now();
        let mut state = self.state();
        while let Some(connection) = state.idle.pop() {
            if now < connection.kept_until() {
                return Next::Idle(Box::new(connection));
            }
        }
        let stream = http2::least_used(&mut state.shared, now);
        if let Some(stream) = stream {
            // The next ones will be glad of another connection, but nobody waits for it.
            if http2::are_crowded(&state.shared) && state.dialling.is_none() {
                self.dial(&mut state);
            }
            return Next::Stream(stream);
        }
        let is_http1 = self.speaks == Speaks::Either && self.target.scheme() == Scheme::Http;
        if is_http1 || state.is_http1 {
            return Next::Own;
        }
        let dialled = state.dialling.clone().unwrap_or_else(|| self.dial(&mut state));
        Next::Wait(dialled)
    }

    /// Makes one connection for all who wait. A task of its own: whoever began it may leave before it is done.
    fn dial(self: &Arc<Self>, state: &mut State) -> Dialled {
        let (tell, dialled) = watch::channel(None);
        state.dialling = Some(dialled.clone());
        let origin = Arc::clone(self);
        tokio::spawn(async move {
            let dialling = Dialling(Arc::clone(&origin));
            let late = |_| {
                let message = format!("{}: the connection took too long to make", origin.target);
                Err(Failure::retryable("ConnectFailed", message))
            };
            let established = timeout(DIAL_MAX, origin.establish()).await.unwrap_or_else(late);
            let told = established.map(|connection| connection.into_iter().for_each(|one| origin.keep(one)));
            drop(dialling);
            // Nobody may be waiting any more.
            let _ = tell.send(Some(told));
        });
        dialled
    }

    /// A new connection: one of HTTP/1.1 is handed over, one of HTTP/2 is there for all.
    async fn establish(self: &Arc<Self>) -> Result<Option<Http1>, Failure> {
        let tls = self.tls.connector().await?;
        let connected = self.connector.connect(&self.target, &tls).await?;
        let in_the_clear = self.target.scheme() == Scheme::Http;
        let is_http2 = connected.is_http2 || (self.speaks == Speaks::Http2 && in_the_clear);
        if self.speaks == Speaks::Http2 && !is_http2 {
            let message = format!("{} does not speak HTTP/2", self.target);
            return Err(Failure::retryable("ConnectFailed", message));
        }
        let broken = |error: hyper::Error| not_connected(&self.target, &error);
        self.state().is_http1 = !is_http2;
        if is_http2 {
            let connection = Http2::over(connected.io).await.map_err(broken)?;
            self.state().shared.push(connection);
            self.look_after();
            return Ok(None);
        }
        Http1::over(connected.io).await.map(Some).map_err(broken)
    }

    /// Keeps a connection for the next request.
    fn keep(self: &Arc<Self>, connection: Http1) {
        let mut state = self.state();
        if state.idle.len() < IDLE_MAX {
            state.idle.push(connection);
        }
        drop(state);
        self.look_after();
    }

    /// Sees to it that connections that nobody uses are closed.
    fn look_after(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state().is_looked_after, true) {
            return;
        }
        let origin = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if Weak::upgrade(&origin).is_none_or(|origin| origin.close_unused(Instant::now())) {
                    return;
                }
            }
        });
    }

    /// Closes what is no longer kept; true if nothing is left.
    fn close_unused(&self, now: Instant) -> bool {
        let mut state = self.state();
        let unused: Vec<Http1> = state.idle.extract_if(.., |one| one.kept_until() <= now).collect();
        let unused_too: Vec<Http2> = state.shared.extract_if(.., |one| one.is_over(now)).collect();
        state.is_looked_after = !state.idle.is_empty() || !state.shared.is_empty();
        let is_empty = !state.is_looked_after;
        // Closing takes its time, and others wait for the lock.
        drop(state);
        drop((unused, unused_too));
        is_empty
    }

    /// Names the host as one version has it: HTTP/1.1 in a header, HTTP/2 in the URL.
    fn address(
        &self,
        request: &mut Request<Full<Bytes>>,
        path: &PathAndQuery,
        version: Version,
    ) -> Result<(), Failure> {
        let refused = || Failure::for_good("AddressDenied", "the host cannot be named in a request");
        let (header, authority) = self.host.as_ref().ok_or_else(refused)?;
        *request.version_mut() = version;
        if version == Version::HTTP_2 {
            let mut parts = uri::Parts::default();
            parts.scheme = Some(match self.target.scheme() {
                Scheme::Http => uri::Scheme::HTTP,
                Scheme::Https => uri::Scheme::HTTPS,
            });
            parts.authority = Some(authority.clone());
            parts.path_and_query = Some(path.clone());
            *request.uri_mut() = Uri::from_parts(parts).map_err(|_| refused())?;
            request.headers_mut().remove(HOST);
        } else {
            *request.uri_mut() = Uri::from(path.clone());
            request.headers_mut().insert(HOST, header.clone());
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody makes a connection. However that ends, the next one may begin: also if it panicked.
struct Dialling(Arc<Origin>);

impl Drop for Dialling {
    fn drop(&mut self) {
        self.0.state().dialling = None;
    }
}

/// A connection, or a part of one, that is one exchange's own.
enum Lease {
    Http1(Http1),
    Http2(Stream),
}
