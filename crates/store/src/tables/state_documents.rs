//! A poller's state document: its checkpoint and its lease in one row, changed together by compare-and-set.
//!
//! Each poller has a partition of its own, and this is the one row of it. The value is the document itself,
//! as JSON text: other programs read it, and it can be copied out and in as it is. So it has no format byte;
//! the document states its own schema in its member `version`, which is 1. What is in it is the poller's
//! business.

use super::json_text::JsonText;
use super::{KeyWriter, Table, TableError};
use crate::rows::Key;

/// The document. Its bytes in the row are [`JsonText::to_bytes`].
pub type StateDocument = JsonText;

/// The document's key, the same in every poller's partition.
pub fn key() -> Key {
    KeyWriter::new(Table::StateDocument).key()
}

/// The document in a row; refuses what is empty or not UTF-8.
pub fn from_bytes(bytes: &[u8]) -> Result<StateDocument, TableError> {
    JsonText::read(Table::StateDocument, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_stored_as_other_programs_read_it() {
        let json = r#"{ "version": 1, "poller_name": "orders" }"#;
        let document = from_bytes(json.as_bytes()).unwrap();
        assert_eq!(document, StateDocument { json: json.to_owned() });
        assert_eq!(document.to_bytes(), json.as_bytes());
        assert!(matches!(from_bytes(b""), Err(TableError::Value { table: Table::StateDocument, .. })));
    }
}
