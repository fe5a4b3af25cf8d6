//! The idempotency key of an activity call. `abide-dispatch` derives it from the identity of the call; this file does
//! not know how.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::write_hex;

/// The key by which a receiver deduplicates. Shown as 64 hexadecimal digits, in headers too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IdempotencyKey(pub [u8; 32]);

impl IdempotencyKey {
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key that is shown as this text: exactly 64 digits, the letters in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut key = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() || pairs.len() != key.len() {
            return None;
        }
        for (byte, [high, low]) in key.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(key))
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_shown_and_in_no_other_way() {
        let key = IdempotencyKey(std::array::from_fn(|place| u8::try_from(place * 8).unwrap()));
        let shown = key.to_string();
        assert_eq!(IdempotencyKey::parse(&shown), Some(key));
        for wrong in
            ["", "0", &shown[1..], &shown[2..], &shown.to_uppercase(), &format!("{shown}00"), &"é".repeat(32)]
        {
            assert_eq!(IdempotencyKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_is_stored_as_its_bytes() {
        assert_eq!(postcard::to_stdvec(&IdempotencyKey([7; 32])).unwrap(), [7; 32]);
    }
}
