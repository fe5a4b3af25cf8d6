//! A query as their clients write it: names without regard to case, parameters nobody here knows, empty ones that mean nothing.
//!
//! What is known and cannot be read is refused: theirs would ignore it, and show or purge everything.

use abide_workflow::{Status, Timestamp};
use url::form_urlencoded;

use super::answer::Otherwise;
use crate::asked::Asked;

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

/// All statuses there are, but for the one that only this server has: what is parked is shown as suspended.
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

impl Parameters {
    pub(super) fn of(asked: &Asked) -> Self {
        let query = asked.uri().query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes());
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The values of a parameter, in order, without empty ones.
    fn all<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim()).find(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str, otherwise: bool) -> Result<bool, Otherwise> {
        match self.text(name) {
            None => Ok(otherwise),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(Otherwise::invalid(name, "it must be true or false")),
        }
    }

    /// A whole number above zero.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, Otherwise> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let count = text.parse().ok().filter(|count| *count > 0);
        count.map(Some).ok_or_else(|| Otherwise::invalid(name, "it must be a whole number above zero"))
    }

    /// Seconds, with a fraction or without, in milliseconds.
    pub(super) fn seconds_ms(&self, name: &str, ms_max: u64) -> Result<Option<u64>, Otherwise> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let invalid = || Otherwise::invalid(name, "it must be a number of seconds");
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(invalid());
        }
        let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
        let ms = format!("{whole}{fraction}").parse().unwrap_or(ms_max);
        Ok(Some(ms_max.min(ms)))
    }

    /// A moment: RFC 3339; without an offset it is UTC, without a time it is midnight.
    pub(super) fn moment(&self, name: &str) -> Result<Option<Timestamp>, Otherwise> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // A plus sign that was not escaped has become a space.
        let text = if text.contains(['T', 't']) { text.replace(' ', "+") } else { text.to_owned() };
        let spellings = [text.clone(), format!("{text}Z"), format!("{text}T00:00:00Z")];
        let moment = spellings.iter().find_map(|text| Timestamp::parse(text).ok());
        let refused = || Otherwise::invalid(name, "it must be a moment such as 2026-01-31T12:00:00Z");
        moment.map(Some).ok_or_else(refused)
    }

    /// The statuses that are asked for, by commas or one by one; empty means all.
    pub(super) fn statuses(&self) -> Result<Vec<Status>, Otherwise> {
        let names = self.all("runtimeStatus").flat_map(|value| value.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        let status = |name: &str| {
            let known = STATUSES.iter().find(|status| status.to_string().eq_ignore_ascii_case(name));
            known.copied().ok_or_else(|| Otherwise::invalid("runtimeStatus", "there is no such status"))
        };
        names.map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Parameters {
        let pairs = form_urlencoded::parse(query.as_bytes());
        Parameters(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    #[test]
    fn names_have_no_case_and_empty_values_are_none() {
        let parameters = of("TaskHub=&reason=&REASON=late&showInput=True&x=1");
        assert_eq!((parameters.text("taskHub"), parameters.text("reason")), (None, Some("late")));
        assert!(
            parameters.flag("showInput", false).unwrap() && parameters.flag("showHistory", true).unwrap()
        );
        assert!(of("showInput=yes").flag("showInput", true).is_err());
    }

    #[test]
    fn moments_are_read_as_scripts_write_them() {
        let of = |text: &str| of(&format!("at={text}")).moment("at");
        let noon = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.000000Z",
            "2026-01-31T12:00:00",
            "2026-01-31T14:00:00+02:00",
            "2026-01-31T14:00:00%2B02:00",
        ] {
            assert_eq!(of(text).unwrap(), Some(noon), "{text}");
        }
        assert_eq!(of("2026-01-31").unwrap(), Some(Timestamp(noon.0 - 12 * 3_600_000)));
        assert_eq!(of("").unwrap(), None);
        assert!(of("yesterday").is_err() && of("2026-13-01").is_err());
    }

    #[test]
    fn statuses_come_by_commas_and_one_by_one() {
        let statuses = of("runtimeStatus=Running,completed&runtimeStatus=Failed").statuses().unwrap();
        assert_eq!(statuses, [Status::Running, Status::Completed, Status::Failed]);
        assert_eq!(of("runtimeStatus=&top=3").statuses().unwrap(), []);
        assert!(of("runtimeStatus=Running,Compleeted").statuses().is_err());
    }

    #[test]
    fn numbers_are_bounded_or_refused() {
        let seconds = |text: &str| of(&format!("timeout={text}")).seconds_ms("timeout", 300_000);
        assert_eq!(seconds("10").unwrap(), Some(10_000));
        assert_eq!(seconds("0.25").unwrap(), Some(250));
        assert_eq!(seconds("99999999999999999999").unwrap(), Some(300_000));
        assert!(seconds("-1").is_err() && seconds("1e3").is_err() && seconds("ten").is_err());
        assert!(of("top=0").count("top").is_err() && of("top=-1").count("top").is_err());
        assert_eq!(of("top=3").count("top").unwrap(), Some(3));
    }
}
