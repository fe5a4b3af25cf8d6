//! Values that are JSON documents shared with other programs: stored as the text they arrived as, byte for byte.
//!
//! Other programs read and write these documents, so there is no format byte and the text is never re-encoded. This
//! file does not check that the text is JSON, and does not know its content. The text is UTF-8 and not empty.

use super::{TableError, TableId};

/// A JSON document as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonDocument {
    pub json: String,
}

impl JsonDocument {
    /// The bytes of the row: the text itself.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.json.as_bytes().to_vec()
    }

    /// Reads the document of a row of `table`. An empty row is damage: there is no empty JSON text.
    pub(super) fn from_row_bytes(table: TableId, bytes: &[u8]) -> Result<Self, TableError> {
        let malformed = |reason: &str| TableError::InvalidValue { table, reason: reason.to_owned() };
        let json = std::str::from_utf8(bytes).map_err(|error| malformed(&error.to_string()))?;
        if json.is_empty() {
            return Err(malformed("it is empty"));
        }
        Ok(Self { json: json.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_document_is_stored_unchanged(json in ".{1,40}") {
            let document = JsonDocument { json: json.clone() };
            prop_assert_eq!(document.to_bytes(), json.into_bytes());
            prop_assert_eq!(JsonDocument::from_row_bytes(TableId::Registry, &document.to_bytes()), Ok(document));
        }
    }

    #[test]
    fn empty_bytes_and_bytes_that_are_not_utf_8_are_rejected() {
        for bytes in [&b""[..], &b"\xff\xfe"[..]] {
            let refused = JsonDocument::from_row_bytes(TableId::StateDocument, bytes);
            assert!(matches!(refused, Err(TableError::InvalidValue { table: TableId::StateDocument, .. })));
        }
    }
}
