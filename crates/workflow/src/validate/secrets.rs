//! Finds literals that look like secrets. It searches only values that become data: inputs, outputs and conditions, not
//! names or descriptions.
//!
//! A definition is stored, listed and logged. A secret belongs in `{"secretRef": …}`, which is resolved at dispatch and
//! never stored.

use serde_json::Value;

use crate::definition::Definition;
use crate::finding::{Code, Finding, pointer_token};

/// Prefixes that only credentials have, and how many letters and digits follow at least.
const CREDENTIAL_PREFIXES: [(&str, usize); 14] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghs_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("sk_live_", 16),
    ("sk-", 32),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("eyJhbGciOi", 8),
    ("-----BEGIN ", 0),
    ("AIza", 30),
];

/// Ends of a key that mark its value as secret.
const SECRET_KEY_WORDS: [&str; 11] = [
    "accesstoken",
    "authtoken",
    "password",
    "passwd",
    "secret",
    "apikey",
    "accesskey",
    "privatekey",
    "connectionstring",
    "clientsecret",
    "bearertoken",
];

/// Parts of connection strings that carry a credential.
const CONNECTION_STRING_FRAGMENTS: [&str; 4] = ["AccountKey=", "SharedAccessKey=", "Password=", "Pwd="];

/// Fields of a state whose values become data.
const VALUE_FIELDS: [&str; 5] = ["input", "output", "error", "message", "match"];

pub(super) fn check(definition: &Definition, findings: &mut Vec<Finding>) {
    let notify = "/configuration/escalation/notify/input";
    if let Some(value) = definition.source.pointer(notify) {
        walk(value, notify, None, findings);
    }
    for state in &definition.states {
        let Some(source) = definition.source.pointer(&state.pointer) else { continue };
        for (name, value) in VALUE_FIELDS.iter().filter_map(|name| Some((name, source.get(name)?))) {
            walk(value, &format!("{}/{name}", state.pointer), None, findings);
        }
        if let Some(value) = source.pointer("/compensateWith/input") {
            walk(value, &format!("{}/compensateWith/input", state.pointer), None, findings);
        }
        for (list, field) in [("steps", "input"), ("choices", "when")] {
            let entries = source.get(list).and_then(Value::as_array).into_iter().flatten().enumerate();
            for (position, value) in
                entries.filter_map(|(position, entry)| Some((position, entry.get(field)?)))
            {
                walk(value, &format!("{}/{list}/{position}/{field}", state.pointer), None, findings);
            }
        }
    }
}

fn walk(value: &Value, pointer: &str, key: Option<&str>, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields)
            if fields.len() == 1 && fields.get("secretRef").is_some_and(Value::is_string) => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                walk(field, &format!("{pointer}/{}", pointer_token(name)), Some(name), findings);
            }
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                walk(item, &format!("{pointer}/{position}"), key, findings);
            }
        }
        Value::String(text) => {
            if let Some(reason) = looks_secret(text, key) {
                let hint = "store the secret and write {\"secretRef\": \"…\"} here";
                findings.push(Finding::new(
                    Code::LiteralSecret,
                    pointer,
                    format!("this looks like a secret: {reason}"),
                    hint,
                ));
            }
        }
        _ => {}
    }
}

fn has_credential_prefix(text: &str) -> bool {
    CREDENTIAL_PREFIXES.iter().any(|(prefix, letters)| {
        let rest = text.strip_prefix(prefix);
        rest.is_some_and(|rest| {
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').count() >= *letters
        })
    })
}

fn looks_secret(text: &str, key: Option<&str>) -> Option<&'static str> {
    if text.starts_with('$') && !text.starts_with("$$") {
        return None;
    }
    if has_credential_prefix(text) {
        return Some("it starts like a credential");
    }
    if CONNECTION_STRING_FRAGMENTS.iter().any(|fragment| text.contains(fragment)) {
        return Some("it is a connection string with a credential");
    }
    let has_credentials = text.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    });
    if has_credentials {
        return Some("it is a URL with a password");
    }
    let plain_key: String = key.unwrap_or_default().chars().filter(char::is_ascii_alphanumeric).collect();
    let plain_key = plain_key.to_lowercase();
    if !text.is_empty() && SECRET_KEY_WORDS.iter().any(|name| plain_key.ends_with(name)) {
        return Some("its key names a secret");
    }
    looks_random(text).then_some("it is long and random")
}

/// True for a long text of mixed letters and digits without spaces and without frequent characters: a key in base64
/// looks like that, words do not.
fn looks_random(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c);
    if text.len() < 40 || text.len() > 512 || !text.chars().all(plain) {
        return false;
    }
    let has = |test: fn(&char) -> bool| text.chars().any(|c| test(&c));
    if !(has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit)) {
        return false;
    }
    entropy_bits(text) > 4.3
}

/// Shannon entropy per character, in bits.
fn entropy_bits(text: &str) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    for c in text.chars() {
        *counts.entry(c).or_insert(0_u32) += 1;
    }
    let length = f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX));
    counts.values().map(|count| f64::from(*count) / length).map(|share| -share * share.log2()).sum()
}
