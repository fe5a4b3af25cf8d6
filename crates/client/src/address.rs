//! Parses the server's URL and escapes the paths of API resources. It knows nothing about connections.

use std::fmt::Write;

use url::{Host, Url, form_urlencoded};

use crate::error::ClientError;

/// The server's address: `http://HOST:PORT`, with an optional path prefix for a server behind a proxy.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// `HOST:PORT`, the value of the `Host` header.
    pub(crate) authority: String,
    prefix: String,
}

impl ServerAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, ClientError> {
        let invalid =
            |reason: &str| ClientError::InvalidUrl { url: text.to_owned(), reason: reason.to_owned() };
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if url.scheme() != "http" {
            return Err(invalid("only http:// is supported"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it must have no user and no password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must have no query and no fragment"));
        }
        let host = url.host().ok_or_else(|| invalid("it has no host"))?.to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { authority: format!("{host}:{port}"), host, port, prefix })
    }

    /// The request target: the URL's path prefix, then the path of the resource.
    pub(crate) fn target(&self, path: &ApiPath) -> String {
        format!("{}{}", self.prefix, path.text)
    }
}

/// The escaped path and query of an API resource.
#[derive(Clone, Debug)]
pub(crate) struct ApiPath {
    text: String,
    has_query: bool,
}

impl ApiPath {
    /// A path that needs no escaping.
    pub(crate) fn new(path: &str) -> Self {
        Self { text: path.to_owned(), has_query: false }
    }

    /// Appends one segment. Everything but letters, digits and a few marks is escaped. The dots of a segment that
    /// consists of dots alone are escaped too: they would otherwise name another resource.
    pub(crate) fn segment(mut self, segment: &str) -> Self {
        self.text.push('/');
        let dots_only = segment.bytes().all(|byte| byte == b'.');
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !dots_only) {
                self.text.push(char::from(byte));
            } else {
                // Writing to a `String` cannot fail.
                let _ = write!(self.text, "%{byte:02X}");
            }
        }
        self
    }

    /// Appends a query parameter if it has a value.
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
    fn an_address_is_an_http_url_with_an_optional_path_prefix() {
        let path = ApiPath::new("/api/stats");
        for (text, authority, target) in [
            ("http://127.0.0.1:7070", "127.0.0.1:7070", "/api/stats"),
            ("http://localhost/", "localhost:80", "/api/stats"),
            ("http://[::1]:7070", "[::1]:7070", "/api/stats"),
            ("http://gate:81/abide/", "gate:81", "/abide/api/stats"),
        ] {
            let address = ServerAddress::parse(text).unwrap();
            assert_eq!((address.authority.as_str(), address.target(&path).as_str()), (authority, target));
        }
        for text in
            ["", "127.0.0.1:7070", "https://localhost", "http://u@h", "http://h?q", "http://h#f", "ftp://h"]
        {
            assert!(matches!(ServerAddress::parse(text), Err(ClientError::InvalidUrl { .. })), "{text}");
        }
    }

    #[test]
    fn no_segment_and_no_parameter_can_name_another_resource() {
        let path =
            ApiPath::new("/api/entities").segment("a/b").segment("..").segment("ä %?#").segment("v1.0");
        assert_eq!(path.text, "/api/entities/a%2Fb/%2E%2E/%C3%A4%20%25%3F%23/v1.0");
        let path = ApiPath::new("/x").query("a", Some("1&b=2")).query("c", None).query("d", Some("e f"));
        assert_eq!(path.text, "/x?a=1%26b%3D2&d=e+f");
    }
}
