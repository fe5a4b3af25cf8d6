//! What is read, and what is refused, from text and from bytes alike.

use serde_json::json;

use super::*;

const DEPTH_MAX: usize = 64;

fn both(text: &str) -> Result<Value, JsonError> {
    let (read, from_bytes) = (parse(text, DEPTH_MAX), parse_bytes(text.as_bytes(), DEPTH_MAX));
    assert_eq!(read, from_bytes, "{text}");
    read
}

#[test]
fn a_duplicate_key_is_rejected_with_its_position() {
    let error = both("{\"a\": 1,\n \"a\": 2}").unwrap_err();
    assert!(matches!(&error, JsonError::DuplicateKey { line: 2, key, .. } if key == "a"), "{error}");
    assert!(both(r#"[{"b": {"a": 1, "\u0061": 2}}]"#).is_err(), "the same key, written as an escape");
    assert!(both(r#"[{"a": 1}, {"a": 2}]"#).is_ok());
}

#[test]
fn integers_are_kept_exactly_or_rejected() {
    for text in ["18446744073709551615", "-9223372036854775808", "9007199254740993", "0"] {
        assert_eq!(both(text).unwrap().to_string(), text);
    }
    let long = "9".repeat(400);
    for text in
        ["18446744073709551616", "[-9223372036854775809]", "123456789012345678901234567890", long.as_str()]
    {
        assert!(matches!(both(text), Err(JsonError::IntegerTooLarge { .. })), "{text}");
    }
    assert_eq!(both("\"18446744073709551616\"").unwrap(), json!("18446744073709551616"));
    assert_eq!(both(r#""\"99999999999999999999""#).unwrap(), json!("\"99999999999999999999"));
    assert!(both("1e300").is_ok(), "a float is a float");
    assert!(both("[18446744073709551616.5, 1e19, -0]").is_ok());
    let error = both("{\"a\":\n 99999999999999999999}").unwrap_err();
    assert_eq!(error.position(), (2, 2), "{error}");
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(both(&nested(DEPTH_MAX)).is_ok());
    assert!(matches!(both(&nested(DEPTH_MAX + 1)), Err(JsonError::TooDeep { .. })));
    assert!(both(&nested(100_000)).is_err());
    assert!(depth_within(&both(&nested(5)).unwrap(), 5) && !depth_within(&both(&nested(5)).unwrap(), 4));
}

#[test]
fn what_is_no_json_is_rejected_without_a_position_in_the_reason() {
    for text in ["", "{", "1 2", "<html>", "{\"a\" 1}", "nul"] {
        let error = both(text).unwrap_err();
        assert!(
            matches!(&error, JsonError::Malformed { reason, .. } if !reason.contains(" at line ")),
            "{error}"
        );
    }
    assert!(parse_bytes(b"\"\xff\"", DEPTH_MAX).is_err());
    assert!(parse_bytes(b"99999999999999999999\xff", DEPTH_MAX).is_err());
}

#[test]
fn what_a_terminal_obeys_is_escaped() {
    let text = "a\u{1b}]0;x\u{7}\n\u{9b}31m\u{202e}\u{2066}\u{61c}\u{200f}\u{2028}\u{7f}b\tc";
    let shown = escape_controls(text);
    assert_eq!(shown, r"a\u001b]0;x\u0007\n\u009b31m\u202e\u2066\u061c\u200f\u2028\u007fb\tc");
    assert!(!shown.contains(is_obeyed));
    for plain in ["", "größer 😀", "\u{200d}family"] {
        assert_eq!(escape_controls(plain), plain);
    }
}
