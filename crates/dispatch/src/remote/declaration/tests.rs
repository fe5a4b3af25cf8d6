//! What is read as a declaration, and by which field each mistake is told.

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

/// The plain declaration with this in one field; null takes the field away.
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
    assert_eq!((read.activity.name.as_str(), read.transport), ("charge", Wire::Rest));
    assert_eq!(
        (read.concurrency.get(), read.rate_per_second, read.probe),
        (CONCURRENCY_DEFAULT, None, false)
    );
    assert_eq!((read.auth, read.tls), (Auth::default(), Tls::default()));
}

#[test]
fn a_declaration_survives_its_json_also_by_way_of_serde() {
    for written in [plain(), full()] {
        let read = RemoteDeclaration::read(&written).unwrap();
        let again: RemoteDeclaration = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
        for (field, value) in written.as_object().unwrap() {
            assert_eq!(&read.to_json()[field], value, "{field}");
        }
    }
    for wire in Wire::ALL {
        let read = RemoteDeclaration::read(&with("transport", json!(wire.as_str()))).unwrap();
        assert_eq!(read.transport, wire);
    }
}

#[test]
fn a_field_that_must_be_there_is_asked_for_by_name() {
    for field in ["name", "category", "transport", "endpoint"] {
        let refused = RemoteDeclaration::read(&with(field, Value::Null)).unwrap_err();
        assert_eq!(refused, DeclarationError::Missing { field: field.to_owned() });
    }
    let reference = json!({"secretRef": "env:A"});
    for (field, value, missing) in [
        ("auth", json!({"hmac": {"secret": reference}}), "auth.hmac.keyId"),
        ("auth", json!({"hmac": {"keyId": "k"}}), "auth.hmac.secret"),
        ("tls", json!({"certificate": reference}), "tls.key"),
        ("tls", json!({"key": reference}), "tls.certificate"),
    ] {
        let refused = RemoteDeclaration::read(&with(field, value)).unwrap_err();
        assert_eq!(refused, DeclarationError::Missing { field: missing.to_owned() });
    }
}

#[test]
fn a_field_that_nobody_knows_is_refused() {
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
        let refused = RemoteDeclaration::read(&with(field, value)).unwrap_err();
        assert_eq!(refused, DeclarationError::Unknown { field: unknown.to_owned() });
    }
}

#[test]
fn a_wrong_value_is_told_by_its_field_and_not_shown() {
    let long = "s3cret".repeat(100);
    for (field, value, told) in [
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
        let refused = RemoteDeclaration::read(&with(field, value.clone())).unwrap_err();
        assert!(
            matches!(&refused, DeclarationError::Wrong { field, .. } if field == told),
            "{value}: {refused}"
        );
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }
    assert!(matches!(RemoteDeclaration::read(&json!("s3cret")), Err(DeclarationError::Wrong { .. })));
}

#[test]
fn schemas_are_compiled_and_told_apart() {
    for field in ["input", "output"] {
        let refused = RemoteDeclaration::read(&with(field, json!({"$ref": "http://a.test/"}))).unwrap_err();
        let DeclarationError::Contract(ContractError::Schema { field: told, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(told, field);
    }
}

#[test]
fn an_endpoint_is_a_url_that_can_be_called() {
    for (endpoint, denied) in [
        ("", Denied::Malformed("it cannot be read")),
        ("pay.test/charge", Denied::Malformed("it cannot be read")),
        ("ftp://pay.test/", Denied::Scheme("ftp".to_owned())),
        ("https://user:s3cret@pay.test/", Denied::Userinfo),
    ] {
        let refused = RemoteDeclaration::read(&with("endpoint", json!(endpoint))).unwrap_err();
        assert_eq!(refused, DeclarationError::Endpoint(denied), "{endpoint}");
        assert!(!refused.to_string().contains("s3cret"));
    }
    let mut grpc = with("endpoint", json!("https://pay.test/base?a=1"));
    grpc["transport"] = json!("grpc");
    let refused = RemoteDeclaration::read(&grpc).unwrap_err();
    assert!(matches!(refused, DeclarationError::Wrong { field, .. } if field == "endpoint"));
    let mut clear = with("endpoint", json!("http://pay.test/"));
    clear["tls"] = json!({"ca": {"secretRef": "file:/run/ca.pem"}});
    let refused = RemoteDeclaration::read(&clear).unwrap_err();
    assert!(matches!(refused, DeclarationError::Wrong { field, .. } if field == "tls"));
}
