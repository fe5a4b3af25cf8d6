//! Parses the URL of a receiver, and derives the path of an activity from it. Opens no connection.

use url::{Host, Url};

/// The URL is not that of a receiver.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{url:?} is not the URL of a receiver: {reason}")]
pub struct ReceiverUrlError {
    url: String,
    reason: String,
}

/// The address of a receiver, and the path of its activity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReceiverUrl {
    pub(crate) is_tls: bool,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// Value of the header `Host`.
    pub(crate) authority: String,
    path: String,
    /// The path before the activity's name, if the path ends with `/` and that name.
    path_prefix: Option<String>,
}

impl ReceiverUrl {
    pub(crate) fn parse(text: &str, activity: &str) -> Result<Self, ReceiverUrlError> {
        let wrong = |reason: &str| ReceiverUrlError { url: text.to_owned(), reason: reason.to_owned() };
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("only http:// and https:// are supported")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it must have no user and no password"));
        }
        if url.fragment().is_some() || url.query().is_some() {
            return Err(wrong("it must have no query and no fragment"));
        }
        let host = url.host().ok_or_else(|| wrong("it has no host"))?.to_owned();
        let port = url.port_or_known_default().ok_or_else(|| wrong("it has no port"))?;
        let authority = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        let name: String = url::form_urlencoded::byte_serialize(activity.as_bytes()).collect();
        let name = name.replace('+', "%20");
        let path = match url.path() {
            "" | "/" => format!("/activities/{name}"),
            path => path.to_owned(),
        };
        let path_prefix = path.strip_suffix(&name).filter(|before| before.ends_with('/')).map(str::to_owned);
        Ok(Self { is_tls, host, port, authority, path, path_prefix })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The path of another activity; `None` if this path does not end with the activity's name.
    pub(crate) fn path_for(&self, activity: &str) -> Option<String> {
        self.path_prefix.as_ref().map(|prefix| format!("{prefix}{activity}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ReceiverUrl, ReceiverUrlError> {
        ReceiverUrl::parse(text, "conformance")
    }

    #[test]
    fn a_url_without_a_path_uses_the_default_activity_path() {
        for (url, path) in [
            ("http://a.test", "/activities/conformance"),
            ("http://a.test:8081/", "/activities/conformance"),
            ("http://a.test/activities/conformance", "/activities/conformance"),
            ("http://a.test/v1/checks", "/v1/checks"),
        ] {
            assert_eq!(parse(url).unwrap().path(), path);
        }
        assert_eq!(ReceiverUrl::parse("http://a.test", "my check").unwrap().path(), "/activities/my%20check");
    }

    #[test]
    fn the_path_of_another_activity_is_known_if_the_path_ends_with_the_name() {
        assert_eq!(parse("http://a.test").unwrap().path_for("x").as_deref(), Some("/activities/x"));
        assert_eq!(parse("http://a.test/do/conformance").unwrap().path_for("x").as_deref(), Some("/do/x"));
        assert_eq!(parse("http://a.test/do/myconformance").unwrap().path_for("x"), None);
    }

    #[test]
    fn the_authority_is_the_value_of_the_host_header() {
        let url = parse("https://a.test").unwrap();
        assert_eq!((url.is_tls, url.port, url.authority.as_str()), (true, 443, "a.test"));
        assert_eq!(parse("http://[::1]:8081").unwrap().authority, "[::1]:8081");
    }

    #[test]
    fn urls_that_are_not_of_a_receiver_are_rejected() {
        for wrong in
            ["", "a.test", "ftp://a.test", "http://u:p@a.test", "http://a.test?x=1", "http://a.test#x"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
