//! Describes a body that is no result: by the words of a usual shape of error, or by its beginning.
//!
//! A description ends with the text of the service and is cut nowhere else, so that a secret cut off at its end is
//! still found. Knows nothing about statuses.

use abide_json::escape_controls;
use serde_json::Value;

use crate::wire::{FAILURE_BYTES_MAX, JSON, JSON_DEPTH_MAX, media_type};

/// The longest text of a service that is shown, in bytes.
pub const EXCERPT_BYTES_MAX: usize = 1_024;

/// The body of a response, and what it says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnsweredBody<'r> {
    pub bytes: &'r [u8],
    /// The value of the `Content-Type` header.
    pub content_type: Option<&'r str>,
}

impl AnsweredBody<'_> {
    /// What follows "answered 500": the words of the service, or else its text. Empty if the body is.
    pub(crate) fn describe_failure(self) -> String {
        let json = Some(self.bytes).filter(|bytes| bytes.len() <= FAILURE_BYTES_MAX);
        let json = json.and_then(|bytes| abide_json::parse_bytes(bytes, JSON_DEPTH_MAX).ok());
        match json.as_ref().map(words_of_error) {
            Some(Some(words)) => format!(": {}", cut(&escape_controls(&words))),
            Some(None) => format!(": {}", self.beginning()),
            None => self.describe(),
        }
    }

    /// What follows "is not JSON": the content type and the beginning of the text. Empty if the body is.
    pub(crate) fn describe(self) -> String {
        if self.bytes.is_empty() {
            return String::new();
        }
        let kind = self.content_type.map_or("no content type".to_owned(), media_type);
        let kind: String = escape_controls(&kind).chars().take(64).collect();
        let is_cut = if self.bytes.len() > EXCERPT_BYTES_MAX { ", cut off" } else { "" };
        format!(" ({kind}{is_cut}): {}", self.beginning())
    }

    /// True if the service says that it is JSON.
    pub(crate) fn is_json(self) -> bool {
        let kind = self.content_type.map(media_type).unwrap_or_default();
        kind == JSON || kind.ends_with("+json")
    }

    fn beginning(self) -> String {
        let mut end = self.bytes.len().min(EXCERPT_BYTES_MAX);
        // Never in the middle of a character: its rest would be shown as a character of its own.
        while self.bytes.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) && end > 0 {
            end -= 1;
        }
        let text = String::from_utf8_lossy(self.bytes.get(..end).unwrap_or_default());
        cut(&escape_controls(text.trim())).to_owned()
    }
}

/// The words in `{"error": "…"}`, `{"error": {"message": "…"}}` and `{"message": "…"}`, and in problem details as RFC
/// 9457 defines them.
fn words_of_error(body: &Value) -> Option<String> {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).filter(|text| !text.trim().is_empty()).map(str::to_owned)
    };
    let error = body.get("error");
    let problem = || match (text(body.get("title")), text(body.get("detail"))) {
        (Some(title), Some(detail)) => Some(format!("{title}: {detail}")),
        (title, detail) => title.or(detail),
    };
    text(error).or_else(|| text(error?.get("message"))).or_else(problem).or_else(|| text(body.get("message")))
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(EXCERPT_BYTES_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(body: &str, content_type: Option<&str>) -> String {
        AnsweredBody { bytes: body.as_bytes(), content_type }.describe_failure()
    }

    #[test]
    fn the_usual_shapes_of_an_error_are_read() {
        for (body, words) in [
            (r#"{"error": "card declined"}"#, ": card declined"),
            (r#"{"error": {"code": 7, "message": "card declined"}}"#, ": card declined"),
            (r#"{"message": "card declined"}"#, ": card declined"),
            (r#"{"type": "about:blank", "title": "Declined", "detail": "no funds"}"#, ": Declined: no funds"),
            (r#"{"title": "Declined", "status": 400}"#, ": Declined"),
            (r#"{"detail": "no funds", "message": "x"}"#, ": no funds"),
            (r#"{"error": "two\nlines\u001b[31m"}"#, r": two\nlines\u001b[31m"),
            // Any other JSON is shown as it is.
            (r#"{"error": {"code": 7}}"#, r#": {"error": {"code": 7}}"#),
            (r#"{"error": ""}"#, r#": {"error": ""}"#),
            (r#"["a"]"#, r#": ["a"]"#),
        ] {
            for content_type in [None, Some("application/json"), Some("application/problem+json")] {
                assert_eq!(failure(body, content_type), words, "{body}");
            }
        }
    }

    #[test]
    fn a_body_that_is_no_json_is_shown_with_its_content_type() {
        assert_eq!(failure("", Some("text/plain")), "");
        assert_eq!(failure(" boom \n", Some("Text/Plain; charset=utf-8")), " (text/plain): boom");
        assert_eq!(failure("<h1>\r\nno</h1>", None), r" (no content type): <h1>\r\nno</h1>");
        assert_eq!(failure("{\"a\": \u{202e}", Some(JSON)), r#" (application/json): {"a": \u202e"#);
        let bytes = AnsweredBody { bytes: b"\xffabc\x00", content_type: Some("a/b") }.describe_failure();
        assert_eq!(bytes, " (a/b): \u{fffd}abc\\u0000");
    }

    #[test]
    fn what_is_shown_is_bounded_and_cut_between_characters() {
        for unit in ["x", "ä", "😀", "\u{1b}", "\u{9b}"] {
            let long = unit.repeat(40_000 / unit.len());
            let shown = failure(&long, Some("text/plain"));
            let text = shown.strip_prefix(" (text/plain, cut off): ").unwrap();
            assert!(text.len() <= EXCERPT_BYTES_MAX && text.len() > EXCERPT_BYTES_MAX - 8, "{unit:?}");
            assert!(!text.contains(char::REPLACEMENT_CHARACTER), "{unit:?}");
            let long = unit.repeat(4_000 / unit.len());
            let words = failure(&serde_json::json!({"error": long}).to_string(), None);
            assert!(words.len() <= EXCERPT_BYTES_MAX + 2, "{unit:?}");
        }
    }
}
