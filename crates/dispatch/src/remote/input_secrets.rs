//! Secrets in the input of a call: put where the author of the definition refers to them, in the copy that is delivered and nowhere else.
//!
//! Knows nothing of where secrets are from, or of who is called.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::redact::Sent;
use super::secrets::{SecretError, SecretRef, Secrets};
use crate::transport::{Call, Failure};

/// The call with its secrets in place, and what they are. What fails here was not sent.
pub(super) async fn reveal(mut call: Call, secrets: &dyn Secrets) -> Result<(Call, Sent), Failure> {
    let mut sent = Sent::default();
    if call.secrets.is_empty() {
        return Ok((call, sent));
    }
    let places = std::mem::take(&mut call.secrets);
    let mut input = Value::clone(&call.input);
    let all = async {
        for place in &places {
            let found = input.pointer_mut(place);
            let missing = || unavailable(format!("there is no reference to a secret at {place}"));
            let found = found.ok_or_else(missing)?;
            let reference = SecretRef::read(found);
            let reference = reference.map_err(|error| unavailable(format!("at {place}: {error}")))?;
            let secret = secrets.reveal(&reference).await?;
            let text = str::from_utf8(secret.expose());
            let unusable = |_| SecretError::Unusable { reference, expected: "text in UTF-8" };
            let text = text.map_err(unusable)?;
            sent.add(text);
            *found = Value::String(text.to_owned());
        }
        Ok::<_, Failure>(())
    };
    let late =
        |_| Failure::retryable("SecretUnavailable", "the secrets did not come in time").with_not_sent();
    let begun = Instant::now();
    tokio::time::timeout(Duration::from_millis(call.attempt_timeout_ms), all).await.map_err(late)??;
    call.waited += begun.elapsed();
    call.input = Arc::new(input);
    Ok((call, sent))
}

fn unavailable(message: String) -> Failure {
    Failure::for_good("SecretUnavailable", message).with_not_sent()
}
