//! The JSON encoding over HTTP: a payload is the whole body; failures are `{"error": {…}}` with the details of
//! `google.rpc`.
//!
//! Knows nothing about headers or connections.

pub use abide_json::depth_within;
use serde_json::{Value, json};

use super::{
    FAILURE_BYTES_MAX, FailureContext, INPUT_BYTES_MAX, JSON_DEPTH_MAX, OUTPUT_BYTES_MAX, WireDecodeError,
    check_size,
};
use crate::status::{RpcCode, RpcStatus};

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const REQUEST_INFO: &str = "type.googleapis.com/google.rpc.RequestInfo";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Encodes a payload.
pub fn write(value: &Value) -> Vec<u8> {
    // Encoding JSON into memory cannot fail.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Decodes an input, as strictly as all JSON that enters: a value must not differ from what was sent.
pub fn read(bytes: &[u8]) -> Result<Value, WireDecodeError> {
    check_size(bytes.len(), INPUT_BYTES_MAX)?;
    Ok(abide_json::parse_bytes(bytes, JSON_DEPTH_MAX)?)
}

/// Decodes the output of a successful response: its body, or null if that is empty.
pub fn read_output(bytes: &[u8]) -> Result<Value, WireDecodeError> {
    check_size(bytes.len(), OUTPUT_BYTES_MAX)?;
    if bytes.is_empty() { Ok(Value::Null) } else { read(bytes) }
}

/// Encodes the body of a failure that is sent with this HTTP status.
pub fn write_failure(status: &RpcStatus, http: u16, about: FailureContext<'_>) -> Vec<u8> {
    let mut details = Vec::new();
    if status.reason.is_some() || status.domain.is_some() {
        let reason = status.reason.as_deref();
        let domain = status.domain.as_deref();
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
    let name = status.code.name();
    let message = &status.message;
    write(&json!({"error": {"code": http, "status": name, "message": message, "details": details}}))
}

/// Decodes the failure in a body. None if the body is anything else.
pub fn read_failure(bytes: &[u8]) -> Option<RpcStatus> {
    check_size(bytes.len(), FAILURE_BYTES_MAX).ok()?;
    let body = abide_json::parse_bytes(bytes, JSON_DEPTH_MAX).ok()?;
    let error = body.get("error")?;
    let code = RpcCode::from_name(error.get("status")?.as_str()?).filter(|code| *code != RpcCode::Ok)?;
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let mut status = RpcStatus::new(code, message);
    let details = error.get("details").and_then(Value::as_array);
    for detail in details.into_iter().flatten() {
        let field = |name| detail.get(name).and_then(Value::as_str);
        match field("@type") {
            Some(ERROR_INFO) => {
                let reason = field("reason");
                let domain = field("domain");
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

/// Parses a duration as protobuf spells it in JSON, such as `1.5s`.
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

pub(super) fn not_json(error: &serde_json::Error) -> WireDecodeError {
    WireDecodeError::NotJson { line: error.line(), column: error.column() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: FailureContext<'static> = FailureContext { execution_id: "device-7/1", activity: "charge" };

    #[test]
    fn a_failure_is_encoded_as_the_contract_requires() {
        let status = RpcStatus::new(RpcCode::InvalidArgument, "no")
            .with_reason("CARD_DECLINED")
            .with_domain("payments");
        let body: Value = serde_json::from_slice(&write_failure(&status, 400, ABOUT)).unwrap();
        let expected = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "no", "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CARD_DECLINED", "domain": "payments"},
            {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "device-7/1"},
        ]}});
        assert_eq!(body, expected);
    }

    #[test]
    fn a_failure_round_trips() {
        for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
            let plain = RpcStatus::new(code, "wrong");
            let full = plain.clone().with_reason("WHY").with_domain("us").with_retry_after_ms(1_005);
            for status in [plain, full] {
                assert_eq!(read_failure(&write_failure(&status, code.http_status(), ABOUT)), Some(status));
            }
        }
    }

    #[test]
    fn a_body_that_is_no_failure_is_ignored() {
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
            r#"{"error": {"status": "NOT_FOUND", "status": "ABORTED"}}"#,
            &"[".repeat(200),
            &long,
        ] {
            assert_eq!(read_failure(body.as_bytes()), None, "{}", body.get(..40).unwrap_or(body));
        }
        let bare = read_failure(
            br#"{"error": {"status": "NOT_FOUND", "details": [1, {"@type": 2}, {}], "more": 1}}"#,
        );
        assert_eq!(bare, Some(RpcStatus::new(RpcCode::NotFound, "")));
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
    fn a_payload_that_would_be_changed_by_reading_is_rejected() {
        let rounded = read(br#"{"id": 123456789012345678901234567890}"#);
        assert_eq!(rounded, Err(WireDecodeError::IntegerTooLarge { line: 1, column: 8 }));
        let doubled = read(br#"{"paid": true, "paid": false}"#);
        assert!(matches!(doubled, Err(WireDecodeError::DuplicateKey { line: 1, .. })), "{doubled:?}");
        assert_eq!(read(b"18446744073709551615"), Ok(json!(u64::MAX)));
    }

    #[test]
    fn payloads_are_bounded_in_size_and_nesting() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(read(nested(JSON_DEPTH_MAX + 1).as_bytes()), Err(WireDecodeError::TooDeep));
        assert!(matches!(read(nested(100_000).as_bytes()), Err(WireDecodeError::TooDeep)));
        let long = format!("\"{}\"", "x".repeat(INPUT_BYTES_MAX - 2));
        assert!(read(long.as_bytes()).is_ok());
        assert!(matches!(read(format!("{long} ").as_bytes()), Err(WireDecodeError::TooLarge { .. })));
        assert!(matches!(read_output(long.as_bytes()), Err(WireDecodeError::TooLarge { .. })));
        assert_eq!((read(b"").is_err(), read_output(b"")), (true, Ok(Value::Null)));
        let secret = read(br#"{"password": s3cret}"#).unwrap_err().to_string();
        assert!(!secret.contains("s3cret"), "{secret}");
    }
}
