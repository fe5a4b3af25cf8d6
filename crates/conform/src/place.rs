//! Where a receiver is: what a URL says, and where on it an activity is.

use url::{Host, Url};

/// A URL that does not say where a receiver is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{url:?} is not the URL of a receiver: {reason}")]
pub struct PlaceError {
    url: String,
    reason: String,
}

/// A place that can be dialled, and a path there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) is_tls: bool,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// As the header `Host` has it.
    pub(crate) authority: String,
    /// Where the activity is.
    path: String,
    /// The path before the activity's name, if it ends with the name as the convention has it.
    before_name: Option<String>,
}

impl Place {
    pub(crate) fn parse(text: &str, activity: &str) -> Result<Self, PlaceError> {
        let wrong = |reason: &str| PlaceError { url: text.to_owned(), reason: reason.to_owned() };
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("only http:// and https:// are spoken")),
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
        let before_name = path.strip_suffix(&name).filter(|before| before.ends_with('/')).map(str::to_owned);
        Ok(Self { is_tls, host, port, authority, path, before_name })
    }

    /// Where the activity is.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Where an activity of another name would be; none if the path does not tell.
    pub(crate) fn path_of(&self, activity: &str) -> Option<String> {
        self.before_name.as_ref().map(|before| format!("{before}{activity}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Place, PlaceError> {
        Place::parse(text, "conformance")
    }

    #[test]
    fn of_a_server_alone_the_activity_is_where_the_convention_has_it() {
        for (url, path) in [
            ("http://a.test", "/activities/conformance"),
            ("http://a.test:8081/", "/activities/conformance"),
            ("http://a.test/activities/conformance", "/activities/conformance"),
            ("http://a.test/v1/checks", "/v1/checks"),
        ] {
            assert_eq!(of(url).unwrap().path(), path);
        }
        assert_eq!(Place::parse("http://a.test", "my check").unwrap().path(), "/activities/my%20check");
    }

    #[test]
    fn another_activity_is_beside_it_if_the_path_ends_with_the_name() {
        assert_eq!(of("http://a.test").unwrap().path_of("x").as_deref(), Some("/activities/x"));
        assert_eq!(of("http://a.test/do/conformance").unwrap().path_of("x").as_deref(), Some("/do/x"));
        assert_eq!(of("http://a.test/do/myconformance").unwrap().path_of("x"), None);
    }

    #[test]
    fn the_authority_is_as_headers_have_it() {
        let place = of("https://a.test").unwrap();
        assert_eq!((place.is_tls, place.port, place.authority.as_str()), (true, 443, "a.test"));
        assert_eq!(of("http://[::1]:8081").unwrap().authority, "[::1]:8081");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for wrong in
            ["", "a.test", "ftp://a.test", "http://u:p@a.test", "http://a.test?x=1", "http://a.test#x"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
