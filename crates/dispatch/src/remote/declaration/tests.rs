//! Valid and invalid declarations, and the field that each error names.

use super::*;

fn plain() -> Value {
    json!({"name": "charge", "category": "externalApi", "transport": "rest", "endpoint": "https://pay.test/activities/charge"})
}

fn full() -> Value {
    json!({
        "name": "charge", "category": "externalApi", "transport": "grpc", "endpoint": "https://pay.test:8443",
        "input": {"type": "object"}, "output": true, "attemptTimeout": "PT30S",
        "retryPolicy": {"maxAttempts": 3}, "compensation": "refund",
        "concurrency": 8, "ratePerSecond": 2.5, "probe": true,
        "auth": {"bearer": {"secretRef": "env:TOKEN"}, "hmac": {"keyId": "k1", "secret": {"secretRef": "file:/run/key"}}},
        "tls": {"ca": {"secretRef": "file:/run/ca.pem"}, "certificate": {"secretRef": "file:/run/c.pem"}, "key": {"secretRef": "env:KEY"}},
    })
}

/// The plain declaration with this value in one field; null removes the field.
fn with(field: &str, value: Value) -> Value {
    let mut declared = plain();
    let fields = declared.as_object_mut().unwrap();
    match value {
        Value::Null => drop(fields.remove(field)),
        value => drop(fields.insert(field.to_owned(), value)),
    }
    declared
}

#[test]
fn a_plain_declaration_has_defaults() {
    let read = RemoteDeclaration::read(&plain()).unwrap();
    assert_eq!((read.activity.name.as_str(), read.transport), ("charge", WireFormat::Rest));
    assert_eq!(
        (read.concurrency.get(), read.rate_per_second, read.probe),
        (CONCURRENCY_DEFAULT, None, false)
    );
    assert_eq!((read.auth, read.tls), (AuthDeclaration::default(), TlsDeclaration::default()));
}

#[test]
fn a_declaration_round_trips_through_json_and_serde() {
    for written in [plain(), full()] {
        let read = RemoteDeclaration::read(&written).unwrap();
        let again: RemoteDeclaration = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
        for (field, value) in written.as_object().unwrap() {
            assert_eq!(&read.to_json()[field], value, "{field}");
        }
    }
    for wire in WireFormat::ALL {
        let read = RemoteDeclaration::read(&with("transport", json!(wire.as_str()))).unwrap();
        assert_eq!(read.transport, wire);
    }
}

#[test]
fn a_missing_field_is_reported_by_name() {
    for field in ["name", "category", "transport", "endpoint"] {
        let error = RemoteDeclaration::read(&with(field, Value::Null)).unwrap_err();
        assert_eq!(error, DeclarationError::Missing { field: field.to_owned() });
    }
    let reference = json!({"secretRef": "env:A"});
    for (field, value, missing) in [
        ("auth", json!({"hmac": {"secret": reference}}), "auth.hmac.keyId"),
        ("auth", json!({"hmac": {"keyId": "k"}}), "auth.hmac.secret"),
        ("tls", json!({"certificate": reference}), "tls.key"),
        ("tls", json!({"key": reference}), "tls.certificate"),
    ] {
        let error = RemoteDeclaration::read(&with(field, value)).unwrap_err();
        assert_eq!(error, DeclarationError::Missing { field: missing.to_owned() });
    }
}

#[test]
fn an_unknown_field_is_rejected() {
    let reference = json!({"secretRef": "env:A"});
    for (field, value, unknown) in [
        ("timeout", json!(1), "timeout"),
        ("attempttimeout", json!(1), "attempttimeout"),
        ("auth", json!({"basic": reference}), "auth.basic"),
        (
            "auth",
            json!({"hmac": {"keyId": "k", "secret": reference, "algorithm": "none"}}),
            "auth.hmac.algorithm",
        ),
        ("tls", json!({"insecure": true}), "tls.insecure"),
    ] {
        let error = RemoteDeclaration::read(&with(field, value)).unwrap_err();
        assert_eq!(error, DeclarationError::Unknown { field: unknown.to_owned() });
    }
}

#[test]
fn an_invalid_value_is_reported_by_its_field_and_not_shown() {
    let long = "s3cret".repeat(100);
    for (field, value, named) in [
        ("name", json!(7), "name"),
        ("name", json!(""), "name"),
        ("name", json!(long), "name"),
        ("name", json!("s3cret\n"), "name"),
        ("category", json!("s3cret"), "category"),
        ("transport", json!("REST"), "transport"),
        ("endpoint", json!(["s3cret"]), "endpoint"),
        ("attemptTimeout", json!("30s"), "attemptTimeout"),
        ("attemptTimeout", json!("PT0S"), "attemptTimeout"),
        ("attemptTimeout", json!("P2D"), "attemptTimeout"),
        ("attemptTimeout", json!(30), "attemptTimeout"),
        ("retryPolicy", json!("s3cret"), "retryPolicy"),
        ("compensation", json!(1), "compensation"),
        ("concurrency", json!(0), "concurrency"),
        ("concurrency", json!(10_001), "concurrency"),
        ("concurrency", json!(1.5), "concurrency"),
        ("concurrency", json!("64"), "concurrency"),
        ("ratePerSecond", json!(0), "ratePerSecond"),
        ("ratePerSecond", json!(-1), "ratePerSecond"),
        ("ratePerSecond", json!(1e9), "ratePerSecond"),
        ("probe", json!("yes"), "probe"),
        ("auth", json!("s3cret"), "auth"),
        ("auth", json!({"bearer": "s3cret"}), "auth.bearer"),
        ("auth", json!({"bearer": {"secretRef": "s3cret"}}), "auth.bearer"),
        ("auth", json!({"hmac": {"keyId": "s3 cret", "secret": {"secretRef": "env:A"}}}), "auth.hmac.keyId"),
        ("auth", json!({"hmac": {"keyId": "k", "secret": "s3cret"}}), "auth.hmac.secret"),
        ("tls", json!({"ca": "s3cret"}), "tls.ca"),
    ] {
        let error = RemoteDeclaration::read(&with(field, value.clone())).unwrap_err();
        assert!(
            matches!(&error, DeclarationError::Invalid { field, .. } if field == named),
            "{value}: {error}"
        );
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
    assert!(matches!(RemoteDeclaration::read(&json!("s3cret")), Err(DeclarationError::Invalid { .. })));
}

#[test]
fn an_invalid_schema_is_reported_by_its_field() {
    for field in ["input", "output"] {
        let error = RemoteDeclaration::read(&with(field, json!({"$ref": "http://a.test/"}))).unwrap_err();
        let DeclarationError::Contract(ContractError::Schema { field: named, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!(named, field);
    }
}

#[test]
fn an_endpoint_is_a_url_that_can_be_called() {
    for (endpoint, denied) in [
        ("", DenyReason::Malformed("cannot be parsed")),
        ("pay.test/charge", DenyReason::Malformed("cannot be parsed")),
        ("ftp://pay.test/", DenyReason::Scheme("ftp".to_owned())),
        ("https://user:s3cret@pay.test/", DenyReason::Userinfo),
    ] {
        let error = RemoteDeclaration::read(&with("endpoint", json!(endpoint))).unwrap_err();
        assert_eq!(error, DeclarationError::Endpoint(denied), "{endpoint}");
        assert!(!error.to_string().contains("s3cret"));
    }
    let mut grpc = with("endpoint", json!("https://pay.test/base?a=1"));
    grpc["transport"] = json!("grpc");
    let error = RemoteDeclaration::read(&grpc).unwrap_err();
    assert!(matches!(error, DeclarationError::Invalid { field, .. } if field == "endpoint"));
    let mut clear = with("endpoint", json!("http://pay.test/"));
    clear["tls"] = json!({"ca": {"secretRef": "file:/run/ca.pem"}});
    let error = RemoteDeclaration::read(&clear).unwrap_err();
    assert!(matches!(error, DeclarationError::Invalid { field, .. } if field == "tls"));
}
