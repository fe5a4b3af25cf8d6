//! Values that are JSON documents of other people: kept as the text they came as, byte for byte.
//!
//! Other programs read and write these documents, so there is no format byte in front and nothing is spelled
//! anew. That the text is JSON, and what it says, is not known here; it is UTF-8, and it is not empty.

use super::{Table, TableError};

/// A JSON document as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonText {
    /// The text.
    pub json: String,
}

impl JsonText {
    /// The bytes of the row: the text itself.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.json.as_bytes().to_vec()
    }

    /// The document in a row of `table`. An empty row is damage: there is no empty JSON text.
    pub(super) fn read(table: Table, bytes: &[u8]) -> Result<Self, TableError> {
        let malformed = |reason: &str| TableError::Value { table, reason: reason.to_owned() };
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
        fn a_document_survives_as_it_is(json in ".{1,40}") {
            let document = JsonText { json: json.clone() };
            prop_assert_eq!(document.to_bytes(), json.into_bytes());
            prop_assert_eq!(JsonText::read(Table::Registry, &document.to_bytes()), Ok(document));
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for bytes in [&b""[..], &b"\xff\xfe"[..]] {
            let refused = JsonText::read(Table::StateDocument, bytes);
            assert!(matches!(refused, Err(TableError::Value { table: Table::StateDocument, .. })));
        }
    }
}
