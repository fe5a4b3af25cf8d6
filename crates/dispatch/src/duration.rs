//! Parses ISO-8601 durations of a fixed length: weeks, days, hours, minutes and seconds.
//!
//! Years and months are rejected, because their length varies.

use std::time::Duration;

/// Reads `P[nW][nD][T[nH][nM][n[.n]S]]`; a day is 24 hours, and fractions below a millisecond are dropped.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let text = text.to_ascii_uppercase();
    let rest = text.strip_prefix('P')?;
    let (date, time) = rest.split_once('T').map_or((rest, None), |(date, time)| (date, Some(time)));
    if time.unwrap_or(date).is_empty() {
        return None;
    }
    let mut total_ms = 0_u64;
    let date = parse_component(date, 'W', 7 * 24 * 3_600_000, &mut total_ms)?;
    let date = parse_component(date, 'D', 24 * 3_600_000, &mut total_ms)?;
    let time = parse_component(time.unwrap_or_default(), 'H', 3_600_000, &mut total_ms)?;
    let time = parse_component(time, 'M', 60_000, &mut total_ms)?;
    if !date.is_empty() {
        return None;
    }
    if let Some(seconds) = time.strip_suffix('S') {
        total_ms = total_ms.checked_add(seconds_in_ms(seconds)?)?;
    } else if !time.is_empty() {
        return None;
    }
    Some(Duration::from_millis(total_ms))
}

/// Takes a number and its unit off the front, if present, and adds them to the total.
fn parse_component<'t>(text: &'t str, unit: char, unit_ms: u64, total_ms: &mut u64) -> Option<&'t str> {
    let Some((number, rest)) = text.split_once(unit) else { return Some(text) };
    *total_ms = parse_digits(number)?.checked_mul(unit_ms)?.checked_add(*total_ms)?;
    Some(rest)
}

fn seconds_in_ms(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    parse_digits(fraction)?;
    let thousandths: String = fraction.chars().chain("00".chars()).take(3).collect();
    parse_digits(whole)?.checked_mul(1000)?.checked_add(parse_digits(&thousandths)?)
}

/// A number that consists of digits alone: no sign, and at least one digit.
fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_a_fixed_length_are_parsed() {
        for (text, ms) in [
            ("PT5S", 5_000),
            ("PT0S", 0),
            ("PT0.25S", 250),
            ("PT0,5S", 500),
            ("PT1.0009S", 1_000),
            ("PT90M", 5_400_000),
            ("P1D", 86_400_000),
            ("P1W", 604_800_000),
            ("P1W2DT3H4M5.006S", 604_800_000 + 172_800_000 + 10_800_000 + 240_000 + 5_006),
            ("pt5s", 5_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn any_other_text_is_rejected() {
        for text in [
            "",
            "P",
            "PT",
            "P1DT",
            "5s",
            "T5S",
            "PT5",
            "P5S",
            "PTS",
            "PT.5S",
            "PT5.S",
            "PT1e3S",
            "-PT5S",
            "PT-5S",
            "PT+5S",
            "P1M",
            "P1Y",
            "P1D1W",
            "PT1S1M",
            "PT1M1H",
            "PT1H1H",
            "P1.5D",
            "PT5S ",
            "PT1ST1S",
            "P99999999999999999999W",
            "P9999999999999W",
            "PT٥S",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
