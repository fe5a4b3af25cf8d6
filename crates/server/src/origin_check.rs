//! Rejects requests that web pages of other sites make through a user's browser. Any program that can reach the address
//! is accepted: there is no authentication yet.
//!
//! A browser sends requests of any page to any address, and marks them with `Origin` and `Sec-Fetch-Site`. A page whose
//! own domain name resolves to this address (DNS rebinding) is recognised by the name in `Host`. Programs send neither
//! of the first two and put the server's real name into `Host`.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, HeaderValue, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};

use crate::error::ApiError;

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The host names under which this server accepts requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginPolicy {
    host_names: Vec<String>,
    /// Set if other machines may reach the server. An IP address in `Host` is safe: unlike a name, it cannot be
    /// rebound.
    accepts_any_address: bool,
}

impl OriginPolicy {
    /// The policy of a server that listens here and has these names besides `localhost`.
    pub fn new(listen: SocketAddr, names: &[String]) -> Self {
        let host_names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { host_names, accepts_any_address: !listen.ip().to_canonical().is_loopback() }
    }

    /// Rejects requests from pages of other sites and requests meant for another host. Applies to every request, health
    /// checks included, before anything else.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), ApiError> {
        let host = request_host(parts).ok_or_else(|| {
            misdirected(
                "the request must have exactly one Host header, with a name or address and an optional port",
            )
        })?;
        if !self.accepts_host(host.host()) {
            let message = format!(
                "this server does not accept requests for host {}; add the name to server.hosts in its configuration",
                host.host()
            );
            return Err(misdirected(message));
        }
        let foreign = |header: &str| {
            Err(ApiError::forbidden(header, "web pages of other sites may not call this server"))
        };
        if !header_values(&parts.headers, ORIGIN.as_str()).all(|origin| is_same_origin(origin, &host)) {
            return foreign("Origin");
        }
        let own = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
        if !header_values(&parts.headers, SEC_FETCH_SITE).all(own) {
            return foreign("Sec-Fetch-Site");
        }
        Ok(())
    }

    fn accepts_host(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return self.accepts_any_address || address.to_canonical().is_loopback();
        }
        let host = host.to_ascii_lowercase();
        host == "localhost" || self.host_names.contains(&host)
    }
}

/// True if this is a bare host name: no scheme, no port, no path. The configuration's `server.hosts` may have no
/// others.
pub(crate) fn is_host_name(name: &str) -> bool {
    let parsed = name.parse::<Authority>();
    parsed.is_ok_and(|authority| authority.host() == name && !name.starts_with('['))
}

fn misdirected(message: impl Into<String>) -> ApiError {
    ApiError::rejected(StatusCode::MISDIRECTED_REQUEST, message).with_target("Host")
}

/// The host a request is meant for: the authority in its request line, else its `Host` header. None if the header is
/// missing, duplicated or invalid.
fn request_host(parts: &Parts) -> Option<Authority> {
    let mut hosts = header_values(&parts.headers, HOST.as_str());
    let header: Authority = hosts.next()?.to_str().ok()?.parse().ok()?;
    let host = parts.uri.authority().cloned().unwrap_or(header);
    (hosts.next().is_none() && !host.as_str().contains('@')).then_some(host)
}

/// True if the page was served by this server.
fn is_same_origin(origin: &HeaderValue, host: &Authority) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

fn header_values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a HeaderValue> {
    headers.get_all(name).iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(policy: &OriginPolicy, headers: &[(&str, &str)]) -> u16 {
        let request =
            headers.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        policy.check(&parts).map_or_else(|error| error.status().as_u16(), |()| 200)
    }

    fn policy(listen: &str) -> OriginPolicy {
        OriginPolicy::new(listen.parse().unwrap(), &["Abide.Internal".to_owned()])
    }

    #[test]
    fn a_loopback_server_is_reached_as_localhost_or_by_its_configured_names() {
        let loopback = policy("127.0.0.1:7070");
        for host in
            ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.8.8.8", "[::1]:7070", "abide.internal:1"]
        {
            assert_eq!(status(&loopback, &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]", "me@localhost", "", "a b"]
        {
            assert_eq!(status(&loopback, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&loopback, &[]), 421);
        assert_eq!(status(&loopback, &[("host", "localhost"), ("host", "localhost")]), 421);
    }

    #[test]
    fn a_server_open_to_other_machines_is_reached_by_any_address_but_only_configured_names() {
        let open = policy("0.0.0.0:7070");
        for (host, expected) in
            [("10.0.0.1:7070", 200), ("[2001:db8::1]", 200), ("abide.internal", 200), ("evil.example", 421)]
        {
            assert_eq!(status(&open, &[("host", host)]), expected, "{host}");
        }
    }

    #[test]
    fn a_page_may_call_only_the_server_that_served_it() {
        let loopback = policy("127.0.0.1:7070");
        let status_with =
            |name: &str, value: &str| status(&loopback, &[("host", "localhost:7070"), (name, value)]);
        for origin in ["http://localhost:7070", "https://LOCALHOST:7070"] {
            assert_eq!(status_with("origin", origin), 200, "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost",
            "http://localhost:3000",
            "http://127.0.0.1:7070",
            "https://evil.example",
        ] {
            assert_eq!(status_with("origin", origin), 403, "{origin}");
        }
        for (site, expected) in
            [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("x", 403)]
        {
            assert_eq!(status_with("sec-fetch-site", site), expected, "{site}");
        }
    }

    #[test]
    fn a_host_name_has_no_scheme_no_port_and_no_path() {
        assert!(is_host_name("abide.internal") && is_host_name("abide"));
        for wrong in ["", "http://abide", "abide:7070", "abide/x", "a b", "me@abide", "[::1]"] {
            assert!(!is_host_name(wrong), "{wrong}");
        }
    }
}
