//! A URL that may be called as far as its text can tell, and why one may not.
//!
//! The text is read once, by the parser of the WHATWG standard, which brings decimal, hexadecimal and octal hosts into one form. What is
//! sent is made of what was read, so there is no second reading to disagree with. Knows nothing of addresses behind names.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

/// How a target is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// Why a URL or an address may not be called. Shows no more of a URL than its host: paths and queries hold secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// Not a URL, or one that readers disagree about.
    #[error("not a URL that can be called: {0}")]
    Malformed(&'static str),
    /// Neither `http` nor `https`, or not configured.
    #[error("the scheme {0:?} is not allowed")]
    Scheme(String),
    /// User name or password in the URL: they end in logs. Headers are for credentials.
    #[error("a user name or password in the URL is not allowed")]
    Userinfo,
    /// Not a configured port.
    #[error("the port {0} is not allowed")]
    Port(u16),
    /// Not a configured host.
    #[error("the host {0:?} is not allowed")]
    Host(String),
    /// Not a public address, and not on the list of private targets.
    #[error("the address {address} is not allowed: {range}")]
    Address {
        /// Which.
        address: IpAddr,
        /// What such addresses are for.
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

/// Bytes of a URL.
const URL_BYTES_MAX: usize = 8 * 1024;

impl Target {
    /// Reads a URL.
    pub(crate) fn read(text: &str) -> Result<Self, Denied> {
        if text.len() > URL_BYTES_MAX {
            return Err(Denied::Malformed("it is longer than 8 KiB"));
        }
        // The parser drops some of these and takes a backslash for a slash; other readers do not.
        if text.chars().any(|c| c.is_ascii_control() || c == ' ' || c == '\\') {
            return Err(Denied::Malformed("it has blanks, control characters or backslashes"));
        }
        let url = Url::parse(text).map_err(|_| Denied::Malformed("it cannot be read"))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(Denied::Scheme(other.chars().take(40).collect())),
        };
        // An empty user name leaves no trace in what was read.
        let rest = text.split_once(':').map_or("", |(_, rest)| rest.trim_start_matches('/'));
        let has_at = rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'));
        if has_at || !url.username().is_empty() || url.password().is_some() {
            return Err(Denied::Userinfo);
        }
        let host = url.host().ok_or(Denied::Malformed("it has no host"))?.to_owned();
        let port = url.port_or_known_default().ok_or(Denied::Malformed("it has no port"))?;
        if port == 0 {
            return Err(Denied::Port(port));
        }
        let target = Self { url, host, scheme, port };
        if target.name() == Some("") {
            return Err(Denied::Malformed("it has no host"));
        }
        Ok(target)
    }

    /// How it is spoken to.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The port, the scheme's own if none was written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host's name, without a dot at the end; none if the host is an address.
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => Some(name.trim_end_matches('.')),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// The host's address; none if the host is a name.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        }
    }

    /// The host as it is written in the URL that was read.
    pub(super) fn host_text(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Host, and port if it is not the scheme's own: what a `Host` header says.
    pub fn authority(&self) -> &str {
        self.url.authority()
    }

    /// What a request line asks for: path and query, never the fragment.
    pub fn path_and_query(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }
}

impl fmt::Display for Target {
    /// Scheme, host and port: enough to tell people who was called, without the secrets of a path or a query.
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
    fn a_target_is_what_will_be_sent_and_shows_no_secrets() {
        let target = Target::read("HTTPS://Example.COM:8443/hooks/T0P?token=s3cret#part").unwrap();
        assert_eq!(
            (target.scheme(), target.port(), target.name()),
            (Scheme::Https, 8443, Some("example.com"))
        );
        assert_eq!((target.authority(), target.address()), ("example.com:8443", None));
        assert_eq!(target.path_and_query(), "/hooks/T0P?token=s3cret");
        assert_eq!(format!("{target:?}"), "Target(https://example.com:8443)");
        let plain = Target::read("http://1.1.1.1:80").unwrap();
        assert_eq!((plain.authority(), plain.port(), plain.path_and_query().as_str()), ("1.1.1.1", 80, "/"));
        assert_eq!(Target::read("http://example.com./").unwrap().name(), Some("example.com"));
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
            assert_eq!(Target::read(text), Err(Denied::Userinfo), "{text}");
        }
        assert!(Target::read("http://example.com/@user?a=b@c").is_ok());
    }

    #[test]
    fn a_text_that_readers_disagree_about_is_denied() {
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
            assert!(matches!(Target::read(text), Err(Denied::Malformed(_))), "{text:?}");
        }
        let long = format!("http://example.com/{}", "a".repeat(URL_BYTES_MAX));
        assert!(matches!(Target::read(&long), Err(Denied::Malformed(_))));
        assert_eq!(Target::read("http://example.com:0/"), Err(Denied::Port(0)));
        for text in
            ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:,x", "javascript:x"]
        {
            assert!(matches!(Target::read(text), Err(Denied::Scheme(_))), "{text}");
        }
    }
}
