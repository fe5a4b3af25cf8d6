//! Literals that look like secrets. A definition is stored, listed and logged; a secret belongs in `{"secretRef": …}`, which is
//! resolved at dispatch and never stored.
//!
//! Looks only where values travel: inputs and outputs, not names or descriptions.

use serde_json::Value;

use crate::definition::Definition;
use crate::finding::{Code, Finding, pointer_token};

/// Beginnings that only credentials have.
const PREFIXES: [&str; 14] = [
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk_live_",
    "sk-",
    "xoxb-",
    "xoxp-",
    "eyJhbGciOi",
    "-----BEGIN",
    "AIza",
];

/// Words in a key that say its value is secret.
const KEYS: [&str; 9] = [
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
const FRAGMENTS: [&str; 4] = ["AccountKey=", "SharedAccessKey=", "Password=", "Pwd="];

pub(super) fn check(definition: &Definition, findings: &mut Vec<Finding>) {
    walk(&definition.source, "", None, findings);
}

fn walk(value: &Value, pointer: &str, key: Option<&str>, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let is_reference = name == "secretRef";
                let is_schema = pointer.is_empty() && name == "input";
                if !is_reference && !is_schema && name != "description" {
                    walk(field, &format!("{pointer}/{}", pointer_token(name)), Some(name), findings);
                }
            }
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                walk(item, &format!("{pointer}/{position}"), key, findings);
            }
        }
        Value::String(text) => {
            if let Some(why) = looks_secret(text, key) {
                let hint = "store the secret and write {\"secretRef\": \"…\"} here";
                findings.push(Finding::new(
                    Code::LiteralSecret,
                    pointer,
                    format!("this looks like a secret: {why}"),
                    hint,
                ));
            }
        }
        _ => {}
    }
}

fn looks_secret(text: &str, key: Option<&str>) -> Option<&'static str> {
    if text.starts_with('$') && !text.starts_with("$$") {
        return None;
    }
    if PREFIXES.iter().any(|prefix| text.starts_with(prefix) && text.len() >= prefix.len() + 8) {
        return Some("it begins like a credential");
    }
    if FRAGMENTS.iter().any(|fragment| text.contains(fragment)) {
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
    if !text.is_empty() && KEYS.iter().any(|name| plain_key.ends_with(name)) {
        return Some("its key says so");
    }
    is_random(text).then_some("it is long and random")
}

/// Long, without spaces, of letters and digits mixed, and no character common: base64 of a key looks so, words do not.
fn is_random(text: &str) -> bool {
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

/// Shannon entropy per character.
fn entropy_bits(text: &str) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    for c in text.chars() {
        *counts.entry(c).or_insert(0_u32) += 1;
    }
    let length = f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX));
    counts.values().map(|count| f64::from(*count) / length).map(|share| -share * share.log2()).sum()
}
