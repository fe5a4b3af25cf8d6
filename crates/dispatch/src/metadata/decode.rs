//! Reading the canonical metadata: strictly, so that a receiver never works under an identity that nobody meant.
//!
//! One decoder for all wires; each hands over the pairs it found. Knows nothing of what is done with them.

use std::fmt::Write;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, Metadata, PARENT_ITEM_ID,
    RETRY_ATTEMPT,
};

/// Bytes of one value.
pub const VALUE_BYTES_MAX: usize = 512;

/// Metadata that cannot be understood. The same on every attempt, so nothing is tried again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedMetadata {
    /// A key twice: one of them would be chosen by chance.
    #[error("{key} is there more than once")]
    Repeated {
        /// Which.
        key: &'static str,
    },
    /// Some keys are there, and one that must be is not.
    #[error("{key} is missing")]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// A value that is too long.
    #[error("{key} has more than {VALUE_BYTES_MAX} bytes")]
    TooLong {
        /// Whose.
        key: &'static str,
    },
    /// A value that headers cannot carry everywhere.
    #[error("{key} has other characters than printable ASCII")]
    NotPrintable {
        /// Whose.
        key: &'static str,
    },
    /// Not a number of the kind that belongs there.
    #[error("{key} is not a decimal number from 0 to {max}")]
    NotANumber {
        /// Whose.
        key: &'static str,
        /// The largest there is.
        max: u64,
    },
    /// An envelope whose context says one thing and whose headers say another.
    #[error("the envelope's context and the headers do not say the same")]
    Disagreeing,
    /// The place where the metadata should be has something else.
    #[error("the metadata cannot be read: {reason}")]
    Unreadable {
        /// What is wrong.
        reason: String,
    },
}

/// The seven keys, in the order in which they are encoded.
const KEYS: [&str; 7] =
    [CORRELATION_ID, EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID];

impl Metadata {
    /// The metadata among these pairs; none if none of the seven keys is there. Other pairs are nobody's business.
    ///
    /// Names are compared without case. A blank value is an absent one, and spaces around a value are not part of it, as HTTP has it.
    /// A dispatch time that is absent is read as 0.
    pub fn decode<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p [u8])>,
    ) -> Result<Option<Self>, MalformedMetadata> {
        let mut found: [Option<&[u8]>; KEYS.len()] = [None; KEYS.len()];
        for (name, value) in pairs {
            let known = KEYS.iter().zip(&mut found).find(|(key, _)| key.eq_ignore_ascii_case(name));
            let Some((key, place)) = known else { continue };
            if place.replace(value).is_some() {
                return Err(MalformedMetadata::Repeated { key });
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
        ] = found;
        let correlation_id = text(CORRELATION_ID, correlation_id)?;
        let execution_id = text(EXECUTION_ID, execution_id)?;
        let idempotency_key = text(IDEMPOTENCY_KEY, idempotency_key)?;
        let retry_attempt = number::<u32>(RETRY_ATTEMPT, retry_attempt, u64::from(u32::MAX))?;
        let moment_max = i64::MAX.cast_unsigned();
        let deadline_epoch_ms = number::<i64>(DEADLINE, deadline, moment_max)?;
        let dispatched_at = number::<i64>(DISPATCHED_AT, dispatched_at, moment_max)?;
        let parent_item_id = text(PARENT_ITEM_ID, parent_item_id)?;
        let texts = [correlation_id, execution_id, idempotency_key, parent_item_id];
        let numbers_absent =
            retry_attempt.is_none() && deadline_epoch_ms.is_none() && dispatched_at.is_none();
        if numbers_absent && texts.iter().all(Option::is_none) {
            return Ok(None);
        }
        let missing = |key| MalformedMetadata::Missing { key };
        let execution_id = execution_id.ok_or_else(|| missing(EXECUTION_ID))?;
        Ok(Some(Self {
            correlation_id: correlation_id.unwrap_or(execution_id).to_owned(),
            execution_id: execution_id.to_owned(),
            idempotency_key: idempotency_key.ok_or_else(|| missing(IDEMPOTENCY_KEY))?.to_owned(),
            retry_attempt: retry_attempt.unwrap_or(0),
            deadline_epoch_ms,
            dispatched_at_epoch_ms: dispatched_at.unwrap_or(0),
            parent_item_id: parent_item_id.map(str::to_owned),
        }))
    }

    /// Whether every receiver can read it. Senders ask first: what cannot be read is refused for good.
    pub fn check(&self) -> Result<(), MalformedMetadata> {
        // What decoding would say of what is encoded, without doing either: every delivery is asked this.
        let text = |key, value: &str| match value.trim() {
            "" => Ok(false),
            _ => text(key, Some(value.as_bytes())).map(|text| text.is_some()),
        };
        let moment = |key, moment: i64| match moment {
            0.. => Ok(()),
            _ => Err(MalformedMetadata::NotANumber { key, max: i64::MAX.cast_unsigned() }),
        };
        text(CORRELATION_ID, &self.correlation_id)?;
        let has_execution_id = text(EXECUTION_ID, &self.execution_id)?;
        let has_key = text(IDEMPOTENCY_KEY, &self.idempotency_key)?;
        self.deadline_epoch_ms.map_or(Ok(()), |deadline| moment(DEADLINE, deadline))?;
        moment(DISPATCHED_AT, self.dispatched_at_epoch_ms)?;
        self.parent_item_id.as_deref().map_or(Ok(false), |id| text(PARENT_ITEM_ID, id))?;
        match (has_execution_id, has_key) {
            (true, true) => Ok(()),
            (true, false) => Err(MalformedMetadata::Missing { key: IDEMPOTENCY_KEY }),
            (false, _) => Err(MalformedMetadata::Missing { key: EXECUTION_ID }),
        }
    }

    /// What work without any metadata is known by: the activity and the bytes of its input, so that equal requests are one piece of work.
    pub fn of_body(activity: &str, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update(activity.as_bytes());
        digest.update([0]);
        digest.update(body);
        let mut idempotency_key = String::with_capacity(64);
        for byte in digest.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(idempotency_key, "{byte:02x}");
        }
        Self {
            correlation_id: String::new(),
            execution_id: String::new(),
            idempotency_key,
            retry_attempt: 0,
            deadline_epoch_ms: None,
            dispatched_at_epoch_ms: 0,
            parent_item_id: None,
        }
    }
}

fn text<'v>(key: &'static str, value: Option<&'v [u8]>) -> Result<Option<&'v str>, MalformedMetadata> {
    let Some(value) = value else { return Ok(None) };
    let value = trimmed(value);
    if value.len() > VALUE_BYTES_MAX {
        return Err(MalformedMetadata::TooLong { key });
    }
    let printable = value.iter().all(|byte| matches!(byte, 0x20..=0x7e));
    let text = str::from_utf8(value).ok().filter(|_| printable);
    let text = text.ok_or(MalformedMetadata::NotPrintable { key })?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Without what HTTP takes away around a value, and nothing else: a line end is not blank.
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn number<N: FromStr>(
    key: &'static str,
    value: Option<&[u8]>,
    max: u64,
) -> Result<Option<N>, MalformedMetadata> {
    let Some(text) = text(key, value)? else { return Ok(None) };
    // The standard reading takes a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.map(Some).ok_or(MalformedMetadata::NotANumber { key, max })
}

#[cfg(test)]
mod tests;
