//! The error message for an invalid configuration file: the problem, the key and the position, but never the value.
//!
//! The value may be a secret that was written in place of a reference to one, and messages end up in logs.

use toml::de::Error;

/// The error in one line.
pub(super) fn redacted_message(error: &Error, text: &str) -> String {
    // Without the file's text the error cannot quote from it; it still names the keys.
    let mut unquoted = error.clone();
    unquoted.set_input(None);
    let message = redact_values(unquoted.to_string().trim_end());
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            let line = before.split('\n').count();
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            format!("line {line}, column {column}: {message}")
        }
        None => message,
    }
}

/// Removes the values that serde quotes when a type or a variant is wrong.
fn redact_values(message: &str) -> String {
    let message = message.replace('\n', ", ");
    for (prefix, quote) in
        [("invalid type: string \"", '"'), ("invalid value: string \"", '"'), ("unknown variant `", '`')]
    {
        if let Some((before, rest)) = message.split_once(prefix) {
            // The text after the value. The value may contain quotes too, but the last one followed by this ends it.
            let after = rest.rsplit_once(&format!("{quote}, expected")).map_or("", |(_, after)| after);
            let kind = prefix.trim_end_matches(quote).trim_end();
            return format!("{before}{kind}, expected{after}");
        }
    }
    message
}
