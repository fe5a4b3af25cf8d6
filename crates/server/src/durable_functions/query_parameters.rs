//! Query parameters as clients of Durable Functions send them: names are case-insensitive, unknown parameters are
//! ignored, and empty values count as absent.
//!
//! A known parameter with an invalid value is rejected. Durable Functions would ignore it, and show or purge
//! everything.

use abide_workflow::{Status, Timestamp};
use url::form_urlencoded;

use super::response::DurableError;
use crate::api_request::ApiRequest;

#[derive(Debug)]
pub(super) struct QueryParameters(Vec<(String, String)>);

/// All statuses except the one that only this server has: a parked run is shown as suspended.
const STATUSES: [Status; 8] = [
    Status::Pending,
    Status::Running,
    Status::Suspended,
    Status::Completed,
    Status::ContinuedAsNew,
    Status::Failed,
    Status::Canceled,
    Status::Terminated,
];

impl QueryParameters {
    pub(super) fn from_request(request: &ApiRequest) -> Self {
        let query = request.uri().query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes());
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The values of a parameter, in order, without empty ones.
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        values.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let values = self.0.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.map(|(_, value)| value.trim()).find(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, DurableError> {
        match self.text(name) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(DurableError::invalid(name, "must be true or false")),
        }
    }

    /// An integer above zero.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, DurableError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let count = text.parse().ok().filter(|count| *count > 0);
        count.map(Some).ok_or_else(|| DurableError::invalid(name, "must be an integer above zero"))
    }

    /// Seconds with an optional fraction, in milliseconds, capped at `ms_max`.
    pub(super) fn seconds_as_ms(&self, name: &str, ms_max: u64) -> Result<Option<u64>, DurableError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let invalid = || DurableError::invalid(name, "must be a number of seconds");
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(invalid());
        }
        let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
        let ms = format!("{whole}{fraction}").parse().unwrap_or(ms_max);
        Ok(Some(ms_max.min(ms)))
    }

    /// An RFC 3339 timestamp; without an offset it is UTC, without a time it is midnight.
    pub(super) fn timestamp(&self, name: &str) -> Result<Option<Timestamp>, DurableError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // A plus sign that was not escaped has become a space.
        let text = if text.contains(['T', 't']) { text.replace(' ', "+") } else { text.to_owned() };
        let candidates = [text.clone(), format!("{text}Z"), format!("{text}T00:00:00Z")];
        let timestamp = candidates.iter().find_map(|text| Timestamp::parse(text).ok());
        let invalid = || DurableError::invalid(name, "must be a timestamp such as 2026-01-31T12:00:00Z");
        timestamp.map(Some).ok_or_else(invalid)
    }

    /// The requested statuses, separated by commas or in repeated parameters. An empty list means no filter.
    pub(super) fn statuses(&self) -> Result<Vec<Status>, DurableError> {
        let names = self.values("runtimeStatus").flat_map(|value| value.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        let parse_status = |name: &str| {
            let known = STATUSES.iter().find(|status| status.to_string().eq_ignore_ascii_case(name));
            known.copied().ok_or_else(|| DurableError::invalid("runtimeStatus", "unknown status"))
        };
        names.map(parse_status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> QueryParameters {
        let pairs = form_urlencoded::parse(query.as_bytes());
        QueryParameters(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    #[test]
    fn names_are_case_insensitive_and_empty_values_are_absent() {
        let parameters = parse("TaskHub=&reason=&REASON=late&showInput=True&x=1");
        assert_eq!((parameters.text("taskHub"), parameters.text("reason")), (None, Some("late")));
        assert!(
            parameters.flag("showInput", false).unwrap() && parameters.flag("showHistory", true).unwrap()
        );
        assert!(parse("showInput=yes").flag("showInput", true).is_err());
    }

    #[test]
    fn timestamps_are_accepted_in_the_forms_that_scripts_use() {
        let timestamp = |text: &str| parse(&format!("at={text}")).timestamp("at");
        let noon = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.000000Z",
            "2026-01-31T12:00:00",
            "2026-01-31T14:00:00+02:00",
            "2026-01-31T14:00:00%2B02:00",
        ] {
            assert_eq!(timestamp(text).unwrap(), Some(noon), "{text}");
        }
        assert_eq!(timestamp("2026-01-31").unwrap(), Some(Timestamp(noon.0 - 12 * 3_600_000)));
        assert_eq!(timestamp("").unwrap(), None);
        assert!(timestamp("yesterday").is_err() && timestamp("2026-13-01").is_err());
    }

    #[test]
    fn statuses_are_separated_by_commas_or_in_repeated_parameters() {
        let statuses = parse("runtimeStatus=Running,completed&runtimeStatus=Failed").statuses().unwrap();
        assert_eq!(statuses, [Status::Running, Status::Completed, Status::Failed]);
        assert_eq!(parse("runtimeStatus=&top=3").statuses().unwrap(), []);
        assert!(parse("runtimeStatus=Running,Compleeted").statuses().is_err());
    }

    #[test]
    fn numbers_are_capped_or_rejected() {
        let seconds = |text: &str| parse(&format!("timeout={text}")).seconds_as_ms("timeout", 300_000);
        assert_eq!(seconds("10").unwrap(), Some(10_000));
        assert_eq!(seconds("0.25").unwrap(), Some(250));
        assert_eq!(seconds("99999999999999999999").unwrap(), Some(300_000));
        assert!(seconds("-1").is_err() && seconds("1e3").is_err() && seconds("ten").is_err());
        assert!(parse("top=0").count("top").is_err() && parse("top=-1").count("top").is_err());
        assert_eq!(parse("top=3").count("top").unwrap(), Some(3));
    }
}
