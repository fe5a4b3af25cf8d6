//! Who may call while nobody is asked who they are: whoever can reach the address, but no web page that a person on this machine has open.
//!
//! A browser sends what any page tells it to, to any address, and says so: in `Origin` and `Sec-Fetch-Site`. A page that had its own name
//! lead to this address (DNS rebinding) shows by the name in `Host`. Programs send neither of the first two and name the server they mean.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, HeaderValue, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};

use crate::error::ApiError;

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The names this server goes by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callers {
    names: Vec<String>,
    /// Whether every address will do, because others may reach it. An address is no name that could be made to lead elsewhere.
    any_address: bool,
}

impl Callers {
    /// Those of a server that listens here and has these names besides `localhost`.
    pub fn new(listen: SocketAddr, names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { names, any_address: !listen.ip().to_canonical().is_loopback() }
    }

    /// Refuses what a page of another site has sent, and what is meant for somebody else.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), ApiError> {
        let host = host_of(parts).ok_or_else(|| {
            misdirected("there must be one Host, and nothing but a name or an address and a port in it")
        })?;
        if !self.knows(host.host()) {
            let message = format!(
                "{} is no name of this server; server.hosts in its configuration has those it is reached by",
                host.host()
            );
            return Err(misdirected(message));
        }
        let foreign =
            |header: &str| Err(ApiError::foreign(header, "pages of other sites may not call this server"));
        if !values(&parts.headers, ORIGIN.as_str()).all(|origin| is_own(origin, &host)) {
            return foreign("Origin");
        }
        let own = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
        if !values(&parts.headers, SEC_FETCH_SITE).all(own) {
            return foreign("Sec-Fetch-Site");
        }
        Ok(())
    }

    fn knows(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return self.any_address || address.to_canonical().is_loopback();
        }
        let host = host.to_ascii_lowercase();
        host == "localhost" || self.names.contains(&host)
    }
}

/// Whether this can be a name of a server: no scheme, no port, no path.
pub(crate) fn is_name(name: &str) -> bool {
    let parsed = name.parse::<Authority>();
    parsed.is_ok_and(|authority| authority.host() == name && !name.starts_with('['))
}

fn misdirected(message: impl Into<String>) -> ApiError {
    ApiError::refused(StatusCode::MISDIRECTED_REQUEST, message).at("Host")
}

/// Whom a request is meant for: what stands in its first line, if anything does, else its `Host`. One that has two of these, or one that
/// is none, is for nobody.
fn host_of(parts: &Parts) -> Option<Authority> {
    let mut hosts = values(&parts.headers, HOST.as_str());
    let header: Authority = hosts.next()?.to_str().ok()?.parse().ok()?;
    let host = parts.uri.authority().cloned().unwrap_or(header);
    (hosts.next().is_none() && !host.as_str().contains('@')).then_some(host)
}

/// Whether a page came from this very server.
fn is_own(origin: &HeaderValue, host: &Authority) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a HeaderValue> {
    headers.get_all(name).iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(callers: &Callers, headers: &[(&str, &str)]) -> u16 {
        let request =
            headers.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        callers.check(&parts).map_or_else(|error| error.status().as_u16(), |()| 200)
    }

    fn callers(listen: &str) -> Callers {
        Callers::new(listen.parse().unwrap(), &["Abide.Internal".to_owned()])
    }

    #[test]
    fn a_server_for_this_machine_is_reached_as_localhost_or_by_its_own_names() {
        let own = callers("127.0.0.1:7070");
        for host in
            ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.8.8.8", "[::1]:7070", "abide.internal:1"]
        {
            assert_eq!(status(&own, &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "[2001:db8::1]", "me@localhost", "", "a b"]
        {
            assert_eq!(status(&own, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&own, &[]), 421);
        assert_eq!(status(&own, &[("host", "localhost"), ("host", "localhost")]), 421);
    }

    #[test]
    fn a_server_that_others_can_reach_is_reached_by_any_address_and_by_no_other_name() {
        let open = callers("0.0.0.0:7070");
        for (host, expected) in
            [("10.0.0.1:7070", 200), ("[2001:db8::1]", 200), ("abide.internal", 200), ("evil.example", 421)]
        {
            assert_eq!(status(&open, &[("host", host)]), expected, "{host}");
        }
    }

    #[test]
    fn a_page_may_call_the_server_it_came_from_and_no_other() {
        let own = callers("127.0.0.1:7070");
        let ask = |name: &str, value: &str| status(&own, &[("host", "localhost:7070"), (name, value)]);
        for origin in ["http://localhost:7070", "https://LOCALHOST:7070"] {
            assert_eq!(ask("origin", origin), 200, "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost",
            "http://localhost:3000",
            "http://127.0.0.1:7070",
            "https://evil.example",
        ] {
            assert_eq!(ask("origin", origin), 403, "{origin}");
        }
        for (site, expected) in
            [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("x", 403)]
        {
            assert_eq!(ask("sec-fetch-site", site), expected, "{site}");
        }
    }

    #[test]
    fn a_name_has_no_scheme_no_port_and_no_path() {
        assert!(is_name("abide.internal") && is_name("abide"));
        for wrong in ["", "http://abide", "abide:7070", "abide/x", "a b", "me@abide", "[::1]"] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
