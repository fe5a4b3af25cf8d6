//! Secrets in every usual encoding, whole, cut off and one inside another.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn shown(secrets: &[&str], failure: CallFailure) -> (String, String) {
    let mut sent = SentSecrets::default();
    secrets.iter().for_each(|secret| sent.add(secret));
    let CallFailure { code, message, .. } = sent.redact_failure(failure);
    (code, message)
}

fn message(secrets: &[&str], message: &str) -> String {
    shown(secrets, CallFailure::permanent("X", message)).1
}

#[test]
fn secrets_are_removed_from_the_code_and_message_of_a_service() {
    let failure =
        CallFailure::permanent("NO_hunter2", "abc: hunter2hunter2").with_status("400 INVALID_ARGUMENT");
    let expected = ("NO_[secret]".to_owned(), "abc: [secret][secret]".to_owned());
    assert_eq!(shown(&["hunter2", "abc", ""], failure), expected);
}

#[test]
fn escaped_truncated_and_nested_secrets_are_removed_too() {
    assert_eq!(message(&["a\"b\nc"], r#"got {"key":"a\"b\nc"}"#), r#"got {"key":"[secret]"}"#);
    assert_eq!(message(&["quote\""], r#"got {"key":"quote\""}"#), r#"got {"key":"[secret]"}"#);
    assert_eq!(message(&["hunter2-and-more"], "got hunter2-an"), "got [secret]");
    assert_eq!(message(&["abcd", "abcdefgh"], "got abcdefgh and abcd"), "got [secret] and [secret]");
}

#[test]
fn codes_of_this_side_are_not_redacted() {
    let own = CallFailure::retryable("AttemptTimeout", "no answer in Time");
    assert_eq!(shown(&["Time"], own), ("AttemptTimeout".to_owned(), "no answer in [secret]".to_owned()));
}

#[test]
fn secrets_in_other_encodings_are_removed() {
    let secret = "p@ss/wörd +1";
    for encoded in [
        "P@SS/WÖRD +1",
        "p%40ss%2Fw%C3%B6rd%20%2B1",
        "p%40ss%2fw%c3%b6rd+%2b1",
        "%70%40%73%73%2F%77%C3%B6%72%64%20%2B%31",
        r"p@ss\/wörd +1",
        r"p@ss/w\u00f6rd +1",
        r"\u0070@ss/w\u00F6rd \u002b1",
        r"p@ss\\/w\\u00f6rd +1",
        r"p%40ss%2Fw%5Cu00f6rd +1",
        "704073732f77c3b67264202b31",
        "704073732F77C3B67264202B31",
        r"\x70@ss/w\xc3\xb6rd +1",
    ] {
        assert_eq!(message(&[secret], &format!("got <{encoded}>.")), "got <[secret]>.", "{encoded}");
    }
    assert_eq!(message(&["pass 😀"], r"got <pass \ud83d\ude00>"), "got <[secret]>");
}

#[test]
fn a_secret_in_base64_is_removed_whatever_is_before_it() {
    let secret = "hunter2-is>secret?";
    for before in ["", "a", "me:", "admin:"] {
        for after in ["", "!", "  ", "end"] {
            let text = format!("{before}{secret}{after}");
            for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
                let encoded = engine.encode(&text);
                let redacted = message(&[secret], &format!("got Basic {encoded}, which is wrong"));
                assert!(redacted.contains("[secret]"), "{encoded}: {redacted}");
                // What is left has at most the bytes around the secret.
                let left = redacted.replace("got Basic ", "").replace(", which is wrong", "");
                let digits = left.replace("[secret]", "").replace('=', "").len();
                assert!(digits <= (before.len() + after.len()) * 4 / 3 + 1, "{encoded}: {redacted}");
            }
        }
    }
    let percent = STANDARD.encode("x>>>>hunter2").replace('+', "%2B").replace('/', "%2F");
    assert!(!message(&[">>>>hunter2"], &percent).contains("%2B"), "{percent}");
}

#[test]
fn the_beginning_of_an_encoded_secret_at_the_end_is_removed() {
    for cut in [
        "got 68756e74657",
        "got aHVudGVyMi1",
        "got %68%75%6e%74%6",
        r"got \u0068\u0075\u006e\u0074\u00",
        "got HUNTER2-",
    ] {
        assert_eq!(message(&["hunter2-and-more"], cut), "got [secret]", "{cut}");
    }
}

#[test]
fn other_text_is_left_as_it_is() {
    for text in
        ["100 % sure", "%", "\\", r"C:\users\unknown", "%zz %4", "", "größer", r"\ud800 \udc00", r"\u12"]
    {
        assert_eq!(message(&["hunter2"], text), text);
    }
}

/// One way to write a text.
fn encode(kind: u8, text: &str) -> String {
    match kind % 7 {
        0 => text.to_owned(),
        1 => Value::from(text).to_string(),
        2 => text.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        3 => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        4 => STANDARD.encode(text),
        5 => URL_SAFE_NO_PAD.encode(format!("user:{text}")),
        _ => text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect(),
    }
}

proptest! {
    #[test]
    fn an_encoded_secret_never_survives_in_any_text(
        secret in "[ -~ä😀]{6,24}",
        kind in 0_u8..7,
        outer in 0_u8..3,
        before in "[ -~ß]{0,12}",
        after in "[ -~ß]{0,12}",
    ) {
        let encoded = encode(outer, &encode(kind, &secret));
        let redacted = message(&[&secret], &format!("{before} {encoded} {after}"));
        prop_assert!(redacted.contains(REDACTED), "{redacted}");
        // The core: without what the quotes or the digits shared with other bytes may leave.
        let core: String = encoded.chars().skip(3).take(encoded.chars().count().saturating_sub(6)).collect();
        prop_assert!(core.len() < 8 || !redacted.contains(&core), "{redacted}");
    }
}
