//! Moments and durations as people write and read them. The one place of the command line that reads the clock.

use std::time::Duration;

use abide_client::Timestamp;

/// Now.
#[expect(clippy::disallowed_methods, reason = "the command line is a composition root")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Reads a duration: a number and its unit (`500ms`, `30s`, `5m`, `2h`, `7d`), or as definitions have it (`PT30S`).
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with(['P', 'p']) {
        let parsed = abide_workflow::Duration::parse(text).map_err(|error| error.to_string())?;
        return Ok(Duration::from_millis(parsed.0));
    }
    let wrong = || format!("{text:?} is not a duration such as 500ms, 30s, 5m, 2h, 7d or PT30S");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// Reads a moment: a timestamp, or how long ago.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let wrong =
        || format!("{text:?} is neither a moment such as 2026-01-31T12:00:00Z nor how long ago, such as 2h");
    let ago = duration(text).map_err(|_| wrong())?;
    now().checked_sub(ago).map_err(|_| wrong())
}

/// A moment as it is printed.
pub(crate) fn stamp(moment: Timestamp) -> String {
    format!("{moment:.3}")
}

/// How long before now, in one word.
pub(crate) fn ago(moment: Timestamp) -> String {
    short(between(moment, now()))
}

/// How long until then, in one word; none if it is past.
pub(crate) fn until(moment: Timestamp) -> String {
    short(between(now(), moment))
}

/// The time from one moment to a later one; none if it is earlier.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    let ms = to.as_millisecond().saturating_sub(from.as_millisecond());
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A duration in its two largest units.
pub(crate) fn short(duration: Duration) -> String {
    let (seconds, ms) = (duration.as_secs(), duration.subsec_millis());
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{ms}ms"),
        (0, 0, 0, 1..10) if ms > 0 => format!("{seconds}.{}s", ms / 100),
        (0, 0, 0, _) => format!("{seconds}s"),
        (0, 0, _, _) => two(minutes, "m", seconds % 60, "s"),
        (0, _, _, _) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
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
    fn durations_are_read_in_both_ways_and_nothing_else_is_guessed() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("PT1.5S", 1_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1y", "5 m", "P1Y", "99999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_timestamp_or_how_long_ago() {
        assert_eq!(moment("2026-01-01T00:00:00Z").unwrap().as_millisecond(), 1_767_225_600_000);
        let (hour_ago, now) = (moment("1h").unwrap(), now());
        assert!((3_599..=3_601).contains(&between(hour_ago, now).as_secs()));
        for text in ["yesterday", "2026-01-01", "", "99999999999d"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_told_in_its_two_largest_units() {
        for (ms, told) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(short(Duration::from_millis(ms)), told);
        }
    }
}
