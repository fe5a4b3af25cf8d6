//! SHA-256 digests. What was digested is not known here.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The SHA-256 digest of some content. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of length-prefixed parts, so that ("ab", "c") and ("a", "bc") differ.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The digest of an idempotency key that a client sent: a repeated request has the same. It is not a digest of the
/// request's content, and not the [`IdempotencyKey`](crate::IdempotencyKey) of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct KeyDigest(pub Digest);

impl KeyDigest {
    /// The digest of the parts that make up the key, with their lengths.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        Self(Digest::of_parts(parts))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

/// Two hexadecimal digits for each byte.
pub(crate) fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_sha_256_and_depend_on_part_boundaries() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(
            (Digest::of(b"").to_string(), Digest::of_parts(&[]).to_string()),
            (empty.into(), empty.into())
        );
        assert_ne!(Digest::of_parts(&[b"ab", b"c"]), Digest::of_parts(&[b"a", b"bc"]));
    }

    #[test]
    fn a_digest_is_stored_as_its_bytes() {
        assert_eq!(postcard::to_stdvec(&Digest([7; 32])).unwrap(), [7; 32]);
        assert_eq!(postcard::to_stdvec(&KeyDigest(Digest([7; 32]))).unwrap(), [7; 32]);
    }
}
