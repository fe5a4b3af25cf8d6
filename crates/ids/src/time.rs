//! Moments and ISO-8601 durations as data. This file parses, formats and adds time, and never reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

/// Why a text is not a timestamp or a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimeError {
    /// Not RFC 3339, or outside the years that can be written.
    #[error("{text:?} is not an RFC 3339 timestamp such as 2026-01-31T12:00:00Z")]
    Timestamp { text: String },
    /// Not an ISO-8601 duration.
    #[error("{text:?} is not an ISO-8601 duration such as PT30S, PT48H or P7D")]
    Duration { text: String },
    /// Months and years have no fixed length.
    #[error("{text:?} counts years or months, whose length varies: write days, such as P30D")]
    CalendarUnit { text: String },
    /// Negative, or longer than [`Duration::MAX`].
    #[error("{text:?} is outside PT0S to P36500D")]
    DurationRange { text: String },
}

impl Timestamp {
    /// Before every other timestamp.
    pub const MIN: Self = Self(i64::MIN);
    /// After every other timestamp.
    pub const MAX: Self = Self(i64::MAX);

    /// Parses an RFC 3339 timestamp.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let malformed = || TimeError::Timestamp { text: excerpt(text) };
        // jiff also reads week dates, basic forms and zone names; definitions have one way to write a timestamp.
        if !is_rfc_3339(text) {
            return Err(malformed());
        }
        let parsed: jiff::Timestamp = text.parse().map_err(|_| malformed())?;
        Ok(Self(parsed.as_millisecond()))
    }

    /// This timestamp plus a duration; saturates at the last timestamp instead of overflowing.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.0).unwrap_or(i64::MAX)))
    }

    /// This timestamp minus a duration; saturates at the first timestamp instead of overflowing.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.0).unwrap_or(i64::MAX)))
    }

    /// The first multiple of `step` after this timestamp; saturates at the last timestamp instead of overflowing.
    #[must_use]
    pub fn next_multiple_of(self, step: Duration) -> Self {
        let step = i64::try_from(step.0).unwrap_or(i64::MAX).max(1);
        Self(self.0.div_euclid(step).saturating_add(1).saturating_mul(step))
    }

    /// The time from `earlier` to this timestamp; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            // Always three digits, so that timestamps compare as strings do.
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Duration(pub u64);

impl Duration {
    pub const ZERO: Self = Self(0);
    /// About a hundred years: a longer duration is a mistake.
    pub const MAX: Self = Self(36_500 * 24 * 3_600_000);

    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1000)
    }

    pub const fn hours(hours: u64) -> Self {
        Self(hours * 3_600_000)
    }

    /// Parses `P[nW][nD][T[nH][nM][nS]]`; a day is 24 hours.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let malformed = || TimeError::Duration { text: excerpt(text) };
        // jiff also reads "2 hours"; definitions have one way to write a duration.
        if !text.starts_with(['P', 'p']) {
            return Err(malformed());
        }
        let span: jiff::Span = text.parse().map_err(|_| malformed())?;
        let date = text.split(['T', 't']).next().unwrap_or_default();
        if date.contains(['Y', 'y', 'M', 'm']) {
            return Err(TimeError::CalendarUnit { text: excerpt(text) });
        }
        let hours =
            i64::from(span.get_weeks()) * 168 + i64::from(span.get_days()) * 24 + i64::from(span.get_hours());
        let ms = hours
            .checked_mul(3_600_000)
            .and_then(|ms| ms.checked_add(span.get_minutes().checked_mul(60_000)?));
        let ms = ms.and_then(|ms| ms.checked_add(span.get_seconds().checked_mul(1000)?));
        let ms = ms.and_then(|ms| ms.checked_add(span.get_milliseconds()));
        match ms.and_then(|ms| u64::try_from(ms).ok()) {
            Some(ms) if ms <= Self::MAX.0 => Ok(Self(ms)),
            _ => Err(TimeError::DurationRange { text: excerpt(text) }),
        }
    }

    /// The sum of both durations; saturates instead of overflowing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<std::time::Duration> for Duration {
    /// Drops fractions of a millisecond; saturates instead of overflowing.
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Duration {
    /// Formats as ISO-8601 with days as the largest unit: `P2DT3H`, `PT0.250S`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (hours, minutes, ms) = (rest / 3_600_000, rest / 60_000 % 60, rest % 60_000);
        f.write_str("P")?;
        if days > 0 {
            write!(f, "{days}D")?;
        }
        if rest > 0 || days == 0 {
            f.write_str("T")?;
        }
        if hours > 0 {
            write!(f, "{hours}H")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}M")?;
        }
        match (ms / 1000, ms % 1000) {
            (0, 0) if self.0 > 0 => Ok(()),
            (seconds, 0) => write!(f, "{seconds}S"),
            (seconds, fraction) => write!(f, "{seconds}.{fraction:03}S"),
        }
    }
}

/// True for `2026-01-31T12:00:00`, an optional fraction, then `Z` or an offset such as `+02:00`.
fn is_rfc_3339(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let fits = |(byte, shape): (u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape };
    let Some((date_time, rest)) = text.split_at_checked(SHAPE.len()) else { return false };
    if !date_time.bytes().map(|byte| byte.to_ascii_uppercase()).zip(SHAPE).all(fits) {
        return false;
    }
    let zone = match rest.strip_prefix('.') {
        Some(fraction) if fraction.starts_with(|c: char| c.is_ascii_digit()) => {
            fraction.trim_start_matches(|c: char| c.is_ascii_digit())
        }
        Some(_) => return false,
        None => rest,
    };
    match zone.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', offset @ ..] => offset.len() == 5 && offset.iter().copied().zip(b"00:00").all(fits),
        _ => false,
    }
}

/// Enough of a wrong text to recognise it.
fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_iso_8601() {
        for (text, ms, written) in [
            ("PT5S", 5_000, "PT5S"),
            ("PT48H", 172_800_000, "P2D"),
            ("P1DT2H3M4.5S", 93_784_500, "P1DT2H3M4.500S"),
            ("P1W", 604_800_000, "P7D"),
            ("PT0S", 0, "PT0S"),
            ("PT0.25S", 250, "PT0.250S"),
            ("PT90M", 5_400_000, "PT1H30M"),
        ] {
            let duration = Duration::parse(text).unwrap();
            assert_eq!((duration.0, duration.to_string().as_str()), (ms, written), "{text}");
            assert_eq!(Duration::parse(written).unwrap(), duration);
        }
    }

    #[test]
    fn durations_without_a_fixed_length_are_rejected() {
        assert!(matches!(Duration::parse("P1M"), Err(TimeError::CalendarUnit { .. })));
        assert!(matches!(Duration::parse("P0Y1D"), Err(TimeError::CalendarUnit { .. })));
        assert!(matches!(Duration::parse("-PT5S"), Err(TimeError::Duration { .. })));
        assert!(matches!(Duration::parse("P99999D"), Err(TimeError::DurationRange { .. })));
        for text in ["", "5s", "PT", "2 hours", "P", "PT5", "PT1e9S"] {
            assert!(matches!(Duration::parse(text), Err(TimeError::Duration { .. })), "{text}");
        }
    }

    #[test]
    fn timestamps_are_read_and_written_as_rfc_3339() {
        let timestamp = Timestamp::parse("2026-01-31T12:00:00.250+02:00").unwrap();
        assert_eq!(timestamp.to_string(), "2026-01-31T10:00:00.250Z");
        for text in [
            "tomorrow",
            "2026-01-31",
            "2026-01-31T12Z",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00[Europe/Berlin]",
            "20260131T120000Z",
            "2026-W05-6T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-01-31T12:00:00+02",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
        assert_eq!(Timestamp::MAX.plus(Duration::seconds(1)), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.minus(Duration::seconds(1)), Timestamp::MIN);
    }

    #[test]
    fn the_next_multiple_is_always_later() {
        let minute = Duration::seconds(60);
        for (at, next) in
            [(-60_001, -60_000), (-60_000, 0), (-1, 0), (0, 60_000), (59_999, 60_000), (60_000, 120_000)]
        {
            assert_eq!(Timestamp(at).next_multiple_of(minute), Timestamp(next));
        }
        assert_eq!(Timestamp::MAX.next_multiple_of(minute), Timestamp::MAX);
    }
}
