//! Where the server is, and how a resource's path is written. Knows nothing of connections.

use std::fmt::Write;

use url::{Host, Url, form_urlencoded};

use crate::error::ClientError;

/// The server's address: `http://HOST:PORT`, and a path before all paths if it is behind something.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// As the header `Host` has it.
    pub(crate) authority: String,
    prefix: String,
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, ClientError> {
        let wrong = |reason: &str| ClientError::Url { url: text.to_owned(), reason: reason.to_owned() };
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        if url.scheme() != "http" {
            return Err(wrong("only http:// is spoken"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it must have no user and no password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it must have no query and no fragment"));
        }
        let host = url.host().ok_or_else(|| wrong("it has no host"))?.to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { authority: format!("{host}:{port}"), host, port, prefix })
    }

    /// A path of this server, as it stands in a request.
    pub(crate) fn target(&self, path: &Path) -> String {
        format!("{}{}", self.prefix, path.text)
    }
}

/// The path and the query of a resource, escaped.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    text: String,
    has_query: bool,
}

impl Path {
    /// A path that needs no escaping.
    pub(crate) fn of(path: &str) -> Self {
        Self { text: path.to_owned(), has_query: false }
    }

    /// One segment more. Everything but letters, digits and a few marks is escaped; so are the dots of a segment of nothing but dots,
    /// which would otherwise mean another resource.
    pub(crate) fn segment(mut self, segment: &str) -> Self {
        self.text.push('/');
        let dots_only = segment.bytes().all(|byte| byte == b'.');
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !dots_only) {
                self.text.push(char::from(byte));
            } else {
                // Writing to a string does not fail.
                let _ = write!(self.text, "%{byte:02X}");
            }
        }
        self
    }

    /// One parameter more, if it has a value.
    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        let Some(value) = value else { return self };
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(name);
        self.text.push('=');
        self.text.extend(form_urlencoded::byte_serialize(value.as_bytes()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_a_host_and_perhaps_a_path_before_all_paths() {
        let path = Path::of("/api/stats");
        for (text, authority, target) in [
            ("http://127.0.0.1:7070", "127.0.0.1:7070", "/api/stats"),
            ("http://localhost/", "localhost:80", "/api/stats"),
            ("http://[::1]:7070", "[::1]:7070", "/api/stats"),
            ("http://gate:81/abide/", "gate:81", "/abide/api/stats"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.authority.as_str(), address.target(&path).as_str()), (authority, target));
        }
        for text in
            ["", "127.0.0.1:7070", "https://localhost", "http://u@h", "http://h?q", "http://h#f", "ftp://h"]
        {
            assert!(matches!(Address::parse(text), Err(ClientError::Url { .. })), "{text}");
        }
    }

    #[test]
    fn nothing_in_a_segment_or_a_parameter_can_mean_another_resource() {
        let path = Path::of("/api/entities").segment("a/b").segment("..").segment("ä %?#").segment("v1.0");
        assert_eq!(path.text, "/api/entities/a%2Fb/%2E%2E/%C3%A4%20%25%3F%23/v1.0");
        let path = Path::of("/x").query("a", Some("1&b=2")).query("c", None).query("d", Some("e f"));
        assert_eq!(path.text, "/x?a=1%26b%3D2&d=e+f");
    }
}
