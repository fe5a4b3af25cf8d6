//! JSON over HTTP: payloads are bodies as they are, failures are `{"error": {…}}` with the details of `google.rpc`.

use serde_json::{Value, json};

use super::{About, FAILURE_BYTES_MAX, JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX, Unreadable, within};
use crate::status::{Code, Status};

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const REQUEST_INFO: &str = "type.googleapis.com/google.rpc.RequestInfo";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// A payload's bytes.
pub fn write(value: &Value) -> Vec<u8> {
    // JSON into memory: there is nothing that could fail.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The payload of these bytes.
pub fn read(bytes: &[u8]) -> Result<Value, Unreadable> {
    within(bytes.len(), PAYLOAD_BYTES_MAX)?;
    // The reader gives up at twice the depth by itself, before the stack does.
    let value = serde_json::from_slice(bytes).map_err(|error| not_json(&error))?;
    if depth_within(&value, JSON_DEPTH_MAX) { Ok(value) } else { Err(Unreadable::TooDeep) }
}

/// The output of a successful response: its body, or null if there is none.
pub fn read_output(bytes: &[u8]) -> Result<Value, Unreadable> {
    if bytes.is_empty() { Ok(Value::Null) } else { read(bytes) }
}

/// The body of a failure that is answered with this HTTP status.
pub fn write_failure(status: &Status, http: u16, about: About<'_>) -> Vec<u8> {
    let mut details = Vec::new();
    if status.reason.is_some() || status.domain.is_some() {
        let (reason, domain) = (status.reason.as_deref(), status.domain.as_deref());
        let info = json!({
            "@type": ERROR_INFO,
            "reason": reason.unwrap_or_default(),
            "domain": domain.unwrap_or_default(),
        });
        details.push(info);
    }
    if !about.execution_id.is_empty() {
        details.push(json!({"@type": REQUEST_INFO, "requestId": about.execution_id}));
    }
    if let Some(wait_ms) = status.retry_after_ms {
        let delay = format!("{}.{:03}s", wait_ms / 1_000, wait_ms % 1_000);
        details.push(json!({"@type": RETRY_INFO, "retryDelay": delay}));
    }
    let (name, message) = (status.code.name(), &status.message);
    write(&json!({"error": {"code": http, "status": name, "message": message, "details": details}}))
}

/// The failure of a body, if it is one. Whatever else it may be, it says nothing.
pub fn read_failure(bytes: &[u8]) -> Option<Status> {
    within(bytes.len(), FAILURE_BYTES_MAX).ok()?;
    let body: Value = serde_json::from_slice(bytes).ok()?;
    let error = body.get("error")?;
    let code = Code::from_name(error.get("status")?.as_str()?).filter(|code| *code != Code::Ok)?;
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let mut status = Status::new(code, message);
    let details = error.get("details").and_then(Value::as_array);
    for detail in details.into_iter().flatten() {
        let field = |name| detail.get(name).and_then(Value::as_str);
        match field("@type") {
            Some(ERROR_INFO) => {
                let (reason, domain) = (field("reason"), field("domain"));
                status =
                    status.with_reason(reason.unwrap_or_default()).with_domain(domain.unwrap_or_default());
            }
            Some(RETRY_INFO) => {
                if let Some(wait_ms) = field("retryDelay").and_then(delay_ms) {
                    status = status.with_retry_after_ms(wait_ms);
                }
            }
            _ => {}
        }
    }
    Some(status)
}

/// A duration as protobuf spells it in JSON, such as `1.5s`.
fn delay_ms(text: &str) -> Option<u64> {
    let (seconds, fraction) =
        text.strip_suffix('s')?.split_once('.').unwrap_or((text.strip_suffix('s')?, "0"));
    let digits =
        |text: &str| !text.is_empty() && text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) {
        return None;
    }
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    seconds.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(thousandths.parse().ok()?)
}

pub(super) fn not_json(error: &serde_json::Error) -> Unreadable {
    Unreadable::NotJson { line: error.line(), column: error.column() }
}

/// Whether a value is nested at most so deep.
pub fn depth_within(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| depth_within(item, left - 1)),
        Value::Object(fields) => left > 0 && fields.values().all(|field| depth_within(field, left - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About<'static> = About { execution_id: "device-7/1", activity: "charge" };

    #[test]
    fn a_failure_is_written_as_the_contract_has_it() {
        let status =
            Status::new(Code::InvalidArgument, "no").with_reason("CARD_DECLINED").with_domain("payments");
        let body: Value = serde_json::from_slice(&write_failure(&status, 400, ABOUT)).unwrap();
        let expected = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "no", "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CARD_DECLINED", "domain": "payments"},
            {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "device-7/1"},
        ]}});
        assert_eq!(body, expected);
    }

    #[test]
    fn a_failure_survives_its_bytes() {
        for code in Code::all().filter(|code| *code != Code::Ok) {
            let plain = Status::new(code, "wrong");
            let full = plain.clone().with_reason("WHY").with_domain("us").with_retry_after_ms(1_005);
            for status in [plain, full] {
                assert_eq!(read_failure(&write_failure(&status, code.http(), ABOUT)), Some(status));
            }
        }
    }

    #[test]
    fn what_is_no_failure_says_nothing() {
        let long = format!(
            r#"{{"error": {{"status": "ABORTED", "message": "{}"}}}}"#,
            "x".repeat(FAILURE_BYTES_MAX)
        );
        for body in [
            "",
            "not found",
            "<html>",
            "null",
            "[]",
            r#"{"error": "no"}"#,
            r#"{"error": {"code": 404}}"#,
            r#"{"error": {"status": 5}}"#,
            r#"{"error": {"status": "NOT-FOUND"}}"#,
            r#"{"error": {"status": "OK"}}"#,
            &"[".repeat(200),
            &long,
        ] {
            assert_eq!(read_failure(body.as_bytes()), None, "{}", body.get(..40).unwrap_or(body));
        }
        let bare = read_failure(
            br#"{"error": {"status": "NOT_FOUND", "details": [1, {"@type": 2}, {}], "more": 1}}"#,
        );
        assert_eq!(bare, Some(Status::new(Code::NotFound, "")));
    }

    #[test]
    fn delays_are_seconds_with_or_without_a_fraction() {
        assert_eq!(
            (delay_ms("3s"), delay_ms("0.5s"), delay_ms("1.000000001s")),
            (Some(3_000), Some(500), Some(1_000))
        );
        for wrong in ["", "s", "3", "-1s", "1.s", ".5s", "1e3s", "99999999999999s"] {
            assert_eq!(delay_ms(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn payloads_are_bounded_in_size_and_nesting() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(read(nested(JSON_DEPTH_MAX + 1).as_bytes()), Err(Unreadable::TooDeep));
        assert!(matches!(read(nested(100_000).as_bytes()), Err(Unreadable::NotJson { .. })));
        let long = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
        assert!(read(long.as_bytes()).is_ok());
        assert!(matches!(read(format!("{long} ").as_bytes()), Err(Unreadable::TooLarge { .. })));
        assert_eq!((read(b"").is_err(), read_output(b"")), (true, Ok(Value::Null)));
        let secret = read(br#"{"password": s3cret}"#).unwrap_err().to_string();
        assert!(!secret.contains("s3cret"), "{secret}");
    }
}
