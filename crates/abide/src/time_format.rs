//! Parses and formats timestamps and durations. It is the only file of the command line that reads the wall clock.

use std::time::Duration;

use abide_client::Timestamp;

#[expect(clippy::disallowed_methods, reason = "the command line is a composition root")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Parses a duration: a number with a unit (`500ms`, `30s`, `5m`, `2h`, `7d`), or ISO 8601 as in definitions (`PT30S`).
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.starts_with(['P', 'p']) {
        let parsed = abide_workflow::Duration::parse(text).map_err(|error| error.to_string())?;
        return Ok(Duration::from_millis(parsed.0));
    }
    let invalid = || format!("{text:?} is not a duration such as 500ms, 30s, 5m, 2h, 7d or PT30S");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| invalid())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(invalid()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(invalid)
}

/// Parses a timestamp, or a duration before now.
pub(crate) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(timestamp);
    }
    let invalid = || {
        format!(
            "{text:?} is neither a timestamp such as 2026-01-31T12:00:00Z nor a duration before now, such as 2h"
        )
    };
    let ago = parse_duration(text).map_err(|_| invalid())?;
    now().checked_sub(ago).map_err(|_| invalid())
}

/// A timestamp in milliseconds.
pub(crate) fn format_timestamp(timestamp: Timestamp) -> String {
    format!("{timestamp:.3}")
}

/// The time since a timestamp.
pub(crate) fn format_age(timestamp: Timestamp) -> String {
    format_duration(duration_between(timestamp, now()))
}

/// The time until a timestamp, zero if it has passed.
pub(crate) fn format_remaining(timestamp: Timestamp) -> String {
    format_duration(duration_between(now(), timestamp))
}

/// The time between two timestamps, zero if `to` is the earlier one.
pub(crate) fn duration_between(from: Timestamp, to: Timestamp) -> Duration {
    let ms = to.as_millisecond().saturating_sub(from.as_millisecond());
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A duration in its two largest units.
pub(crate) fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let ms = duration.subsec_millis();
    let days = seconds / 86_400;
    let hours = seconds / 3_600 % 24;
    let minutes = seconds / 60 % 60;
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{ms}ms"),
        (0, 0, 0, 1..10) if ms > 0 => format!("{seconds}.{}s", ms / 100),
        (0, 0, 0, _) => format!("{seconds}s"),
        (0, 0, _, _) => format_two_units(minutes, "m", seconds % 60, "s"),
        (0, _, _, _) => format_two_units(hours, "h", minutes, "m"),
        _ => format_two_units(days, "d", hours, "h"),
    }
}

fn format_two_units(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit} {small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_or_is_iso_8601() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("PT1.5S", 1_500),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1y", "5 m", "P1Y", "99999999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_timestamp_is_absolute_or_a_duration_before_now() {
        assert_eq!(parse_timestamp("2026-01-01T00:00:00Z").unwrap().as_millisecond(), 1_767_225_600_000);
        let hour_ago = parse_timestamp("1h").unwrap();
        let now = now();
        assert!((3_599..=3_601).contains(&duration_between(hour_ago, now).as_secs()));
        for text in ["yesterday", "2026-01-01", "", "99999999999d"] {
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_printed_in_its_two_largest_units() {
        for (ms, printed) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(ms)), printed);
        }
    }
}
