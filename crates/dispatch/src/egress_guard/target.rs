//! A URL that may be called as far as its text can tell, and the reasons why one may not.
//!
//! The text is parsed once, by the parser of the WHATWG standard, which normalises decimal, hexadecimal and octal
//! hosts. Requests are built from the parsed form, so there is no second parser that could disagree. Knows nothing
//! about the addresses behind names.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

/// The protocol of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Why a URL or an address may not be called. Shows no more of a URL than its host: paths and queries may hold secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DenyReason {
    /// Not a URL, or one that parsers disagree about.
    #[error("invalid URL: {0}")]
    Malformed(&'static str),
    /// Neither `http` nor `https`, or not among the configured ones.
    #[error("the scheme {0:?} is not allowed")]
    Scheme(String),
    /// The URL contains a user name or password, which would end up in logs. Credentials belong in headers.
    #[error("a user name or password in the URL is not allowed")]
    Userinfo,
    /// The port is not among the configured ones.
    #[error("the port {0} is not allowed")]
    Port(u16),
    /// The host is not among the configured ones.
    #[error("the host {0:?} is not allowed")]
    Host(String),
    /// Not a public address, and not on the allowlist.
    #[error("the address {address} is not allowed: {range}")]
    Address {
        address: IpAddr,
        /// The purpose of this range of addresses.
        range: &'static str,
    },
}

/// A URL whose text has been checked; its addresses have not.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: Host<String>,
    scheme: Scheme,
    port: u16,
}

/// The longest URL, in bytes.
const URL_BYTES_MAX: usize = 8 * 1024;

impl Target {
    /// Parses a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, DenyReason> {
        if text.len() > URL_BYTES_MAX {
            return Err(DenyReason::Malformed("longer than 8 KiB"));
        }
        // The parser drops some of these characters and takes a backslash for a slash; other parsers do not.
        if text.chars().any(|c| c.is_ascii_control() || c == ' ' || c == '\\') {
            return Err(DenyReason::Malformed("contains blanks, control characters or backslashes"));
        }
        let url = Url::parse(text).map_err(|_| DenyReason::Malformed("cannot be parsed"))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(DenyReason::Scheme(other.chars().take(40).collect())),
        };
        // An empty user name leaves no trace in the parsed URL.
        let rest = text.split_once(':').map_or("", |(_, rest)| rest.trim_start_matches('/'));
        let has_at = rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'));
        if has_at || !url.username().is_empty() || url.password().is_some() {
            return Err(DenyReason::Userinfo);
        }
        let host = url.host().ok_or(DenyReason::Malformed("no host"))?.to_owned();
        let port = url.port_or_known_default().ok_or(DenyReason::Malformed("no port"))?;
        if port == 0 {
            return Err(DenyReason::Port(port));
        }
        let target = Self { url, host, scheme, port };
        if target.name() == Some("") {
            return Err(DenyReason::Malformed("no host"));
        }
        Ok(target)
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The port; the default of the scheme if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name of the host, without a trailing dot; none if the host is an address.
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => Some(name.trim_end_matches('.')),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// The address of the host; none if the host is a name.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        }
    }

    /// The host as it is spelled in the parsed URL.
    pub(super) fn host_text(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The host, and the port if it is not the default of the scheme, as in a `Host` header.
    pub fn authority(&self) -> &str {
        self.url.authority()
    }

    /// The path and query of the request line, never the fragment.
    pub fn path_and_query(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }

    /// The URL without its query, for messages about a target that an operator declared. Data of a run may have secrets
    /// in the path, too.
    pub(crate) fn without_query(&self) -> String {
        format!("{self}{}", Some(self.url.path()).filter(|path| *path != "/").unwrap_or_default())
    }
}

impl fmt::Display for Target {
    /// Scheme, host and port: enough to identify the target, without the secrets of a path or a query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.url.scheme(), self.url.authority())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_normalised_and_shows_no_secrets() {
        let target = Target::parse("HTTPS://Example.COM:8443/hooks/T0P?token=s3cret#part").unwrap();
        assert_eq!(
            (target.scheme(), target.port(), target.name()),
            (Scheme::Https, 8443, Some("example.com"))
        );
        assert_eq!((target.authority(), target.address()), ("example.com:8443", None));
        assert_eq!(target.path_and_query(), "/hooks/T0P?token=s3cret");
        assert_eq!(format!("{target:?}"), "Target(https://example.com:8443)");
        assert_eq!(target.without_query(), "https://example.com:8443/hooks/T0P");
        let plain = Target::parse("http://1.1.1.1:80").unwrap();
        assert_eq!(plain.without_query(), "http://1.1.1.1");
        assert_eq!((plain.authority(), plain.port(), plain.path_and_query().as_str()), ("1.1.1.1", 80, "/"));
        assert_eq!(Target::parse("http://example.com./").unwrap().name(), Some("example.com"));
    }

    #[test]
    fn a_user_name_or_password_is_denied_however_it_is_hidden() {
        for text in [
            "http://user:password@example.com/",
            "http://user@example.com/",
            "http://@example.com/",
            "http://:@example.com/",
            "http:////@example.com/",
            "http:@example.com/",
            "http:/@example.com/",
            "https://example.com%2f@127.0.0.1/",
        ] {
            assert_eq!(Target::parse(text), Err(DenyReason::Userinfo), "{text}");
        }
        assert!(Target::parse("http://example.com/@user?a=b@c").is_ok());
    }

    #[test]
    fn a_url_that_parsers_disagree_about_is_denied() {
        for text in [
            "",
            "example.com",
            "//example.com/",
            "http://",
            "http:///",
            "http://exam ple.com/",
            " http://example.com/",
            "http://example.com/\r\nHost: x",
            "http://exa\tmple.com/",
            "http:\\\\example.com\\",
            "http://a\0b/",
            "http://./",
            "http://1.2.3.4.5/",
            "http://[::1/",
            "http://example.com:99999/",
            "http://256.256.256.256/",
        ] {
            assert!(matches!(Target::parse(text), Err(DenyReason::Malformed(_))), "{text:?}");
        }
        let long = format!("http://example.com/{}", "a".repeat(URL_BYTES_MAX));
        assert!(matches!(Target::parse(&long), Err(DenyReason::Malformed(_))));
        assert_eq!(Target::parse("http://example.com:0/"), Err(DenyReason::Port(0)));
        for text in
            ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:,x", "javascript:x"]
        {
            assert!(matches!(Target::parse(text), Err(DenyReason::Scheme(_))), "{text}");
        }
    }
}
