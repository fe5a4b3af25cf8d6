//! Decodes the canonical metadata strictly, so that a receiver never works under an identity the sender did not mean.
//!
//! There is one decoder for all wire formats; each passes in the pairs that it received. Knows nothing about their use.

use std::str::FromStr;

use abide_ids::{IdempotencyKey, Timestamp};
use sha2::{Digest as _, Sha256};

use super::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, Metadata, PARENT_ITEM_ID,
    RETRY_ATTEMPT,
};

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 512;

/// Invalid metadata. It is the same on every attempt, so it is not retried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetadataError {
    /// A key occurs twice: picking one of its values would be arbitrary.
    #[error("duplicate {key}")]
    Duplicate { key: &'static str },
    /// Some keys are present, but a required one is not.
    #[error("{key} is missing")]
    Missing { key: &'static str },
    /// The value is too long.
    #[error("{key} is longer than {VALUE_BYTES_MAX} bytes")]
    TooLong { key: &'static str },
    /// The value has characters that not every header can carry.
    #[error("{key} must be printable ASCII")]
    NotPrintable { key: &'static str },
    /// The value is not a number in the allowed range.
    #[error("{key} must be a decimal number from 0 to {max}")]
    NotANumber {
        key: &'static str,
        /// The largest allowed value.
        max: u64,
    },
    /// The context and the headers of an envelope have different values.
    #[error("the envelope's context and the headers disagree")]
    Conflicting,
    /// The metadata does not have the expected form.
    #[error("cannot decode the metadata: {reason}")]
    Unreadable { reason: String },
}

/// The seven keys, in the order in which they are encoded.
const KEYS: [&str; 7] =
    [CORRELATION_ID, EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID];

impl Metadata {
    /// The metadata among these pairs; none if none of the seven keys is present. Other pairs are ignored.
    ///
    /// Names are compared without case. As in HTTP, a blank value counts as absent, and spaces around a value are not
    /// part of it. An absent dispatch time is read as 0.
    pub fn decode<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p [u8])>,
    ) -> Result<Option<Self>, MetadataError> {
        let mut values: [Option<&[u8]>; KEYS.len()] = [None; KEYS.len()];
        for (name, value) in pairs {
            let known = KEYS.iter().zip(&mut values).find(|(key, _)| key.eq_ignore_ascii_case(name));
            let Some((key, entry)) = known else { continue };
            if entry.replace(value).is_some() {
                return Err(MetadataError::Duplicate { key });
            }
        }
        let [
            correlation_id,
            execution_id,
            idempotency_key,
            retry_attempt,
            deadline,
            dispatched_at,
            parent_item_id,
        ] = values;
        let correlation_id = decode_text(CORRELATION_ID, correlation_id)?;
        let execution_id = decode_text(EXECUTION_ID, execution_id)?;
        let idempotency_key = decode_text(IDEMPOTENCY_KEY, idempotency_key)?;
        let retry_attempt = decode_number::<u32>(RETRY_ATTEMPT, retry_attempt, u64::from(u32::MAX))?;
        let epoch_ms_max = i64::MAX.cast_unsigned();
        let deadline = decode_number::<i64>(DEADLINE, deadline, epoch_ms_max)?;
        let dispatched_at = decode_number::<i64>(DISPATCHED_AT, dispatched_at, epoch_ms_max)?;
        let parent_item_id = decode_text(PARENT_ITEM_ID, parent_item_id)?;
        let texts = [correlation_id, execution_id, idempotency_key, parent_item_id];
        let numbers_absent = retry_attempt.is_none() && deadline.is_none() && dispatched_at.is_none();
        if numbers_absent && texts.iter().all(Option::is_none) {
            return Ok(None);
        }
        let missing = |key| MetadataError::Missing { key };
        let execution_id = execution_id.ok_or_else(|| missing(EXECUTION_ID))?;
        Ok(Some(Self {
            correlation_id: correlation_id.unwrap_or(execution_id).to_owned(),
            execution_id: execution_id.to_owned(),
            idempotency_key: idempotency_key.ok_or_else(|| missing(IDEMPOTENCY_KEY))?.to_owned(),
            retry_attempt: retry_attempt.unwrap_or(0),
            deadline: deadline.map(Timestamp),
            dispatched_at: Timestamp(dispatched_at.unwrap_or(0)),
            parent_item_id: parent_item_id.map(str::to_owned),
        }))
    }

    /// Checks that every receiver can decode it. Senders check before they send, because receivers reject invalid
    /// metadata permanently.
    pub fn check(&self) -> Result<(), MetadataError> {
        // The same answer as encoding and then decoding would give, but cheaper: this runs for every attempt.
        let text = |key, value: &str| match value.trim() {
            "" => Ok(false),
            _ => decode_text(key, Some(value.as_bytes())).map(|text| text.is_some()),
        };
        let epoch_ms = |key, time: Timestamp| match time.0 {
            0.. => Ok(()),
            _ => Err(MetadataError::NotANumber { key, max: i64::MAX.cast_unsigned() }),
        };
        text(CORRELATION_ID, &self.correlation_id)?;
        let has_execution_id = text(EXECUTION_ID, &self.execution_id)?;
        let has_key = text(IDEMPOTENCY_KEY, &self.idempotency_key)?;
        self.deadline.map_or(Ok(()), |deadline| epoch_ms(DEADLINE, deadline))?;
        epoch_ms(DISPATCHED_AT, self.dispatched_at)?;
        self.parent_item_id.as_deref().map_or(Ok(false), |id| text(PARENT_ITEM_ID, id))?;
        match (has_execution_id, has_key) {
            (true, true) => Ok(()),
            (true, false) => Err(MetadataError::Missing { key: IDEMPOTENCY_KEY }),
            (false, _) => Err(MetadataError::Missing { key: EXECUTION_ID }),
        }
    }

    /// The metadata of a request that came without any. The key is derived from the activity and the bytes of its
    /// input, so that equal requests are one piece of work.
    pub fn derive_from_body(activity: &str, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update(activity.as_bytes());
        digest.update([0]);
        digest.update(body);
        let idempotency_key = IdempotencyKey(digest.finalize().into()).to_string();
        Self {
            correlation_id: String::new(),
            execution_id: String::new(),
            idempotency_key,
            retry_attempt: 0,
            deadline: None,
            dispatched_at: Timestamp(0),
            parent_item_id: None,
        }
    }
}

fn decode_text<'v>(key: &'static str, value: Option<&'v [u8]>) -> Result<Option<&'v str>, MetadataError> {
    let Some(value) = value else { return Ok(None) };
    let value = trim_http_whitespace(value);
    if value.len() > VALUE_BYTES_MAX {
        return Err(MetadataError::TooLong { key });
    }
    let printable = value.iter().all(|byte| matches!(byte, 0x20..=0x7e));
    let text = str::from_utf8(value).ok().filter(|_| printable);
    let text = text.ok_or(MetadataError::NotPrintable { key })?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Strips what HTTP strips around a value, and nothing else: a line end is kept.
fn trim_http_whitespace(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn decode_number<N: FromStr>(
    key: &'static str,
    value: Option<&[u8]>,
    max: u64,
) -> Result<Option<N>, MetadataError> {
    let Some(text) = decode_text(key, value)? else { return Ok(None) };
    // `parse` alone would accept a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.map(Some).ok_or(MetadataError::NotANumber { key, max })
}

#[cfg(test)]
mod tests;
