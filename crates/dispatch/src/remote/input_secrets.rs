//! Resolves secrets in the input of a call: where the author of the definition refers to them, in the copy that is
//! sent.
//!
//! Knows nothing about where secrets come from, or which activity is called.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::redact::SentSecrets;
use super::secrets::{SecretError, SecretRef, Secrets};
use crate::transport::{CallAttempt, CallFailure};

/// The call with its secrets in place, and the secrets. If this fails, nothing was sent.
pub(crate) async fn resolve_input_secrets(
    mut call: CallAttempt,
    secrets: &dyn Secrets,
) -> Result<(CallAttempt, SentSecrets), CallFailure> {
    let mut sent = SentSecrets::default();
    if call.secret_pointers.is_empty() {
        return Ok((call, sent));
    }
    let pointers = std::mem::take(&mut call.secret_pointers);
    let mut input = Value::clone(&call.input);
    let all = async {
        for pointer in &pointers {
            let value = input.pointer_mut(pointer);
            let missing = || unavailable(format!("no reference to a secret at {pointer}"));
            let value = value.ok_or_else(missing)?;
            let reference = SecretRef::read(value);
            let reference = reference.map_err(|error| unavailable(format!("at {pointer}: {error}")))?;
            let secret = secrets.reveal(&reference).await?;
            let text = str::from_utf8(secret.expose());
            let unusable = |_| SecretError::Unusable { reference, expected: "text in UTF-8" };
            let text = text.map_err(unusable)?;
            sent.add(text);
            *value = Value::String(text.to_owned());
        }
        Ok::<_, CallFailure>(())
    };
    let begun = Instant::now();
    let limit = Duration::from_millis(call.attempt_timeout_ms);
    let late = |_| secrets_late(limit).with_not_sent();
    tokio::time::timeout(limit, all).await.map_err(late)??;
    call.elapsed_since_dispatch += begun.elapsed();
    call.input = Arc::new(input);
    Ok((call, sent))
}

/// The secrets of a call could not be read within its time.
pub(super) fn secrets_late(limit: Duration) -> CallFailure {
    let message = format!("reading the secrets timed out after {} ms", limit.as_millis());
    CallFailure::retryable("SecretUnavailable", message)
}

fn unavailable(message: String) -> CallFailure {
    CallFailure::permanent("SecretUnavailable", message).with_not_sent()
}
