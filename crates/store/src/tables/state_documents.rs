//! A poller's state document: its checkpoint and its lease in one row, changed together by compare-and-set.
//!
//! Each poller has a partition of its own, and this is its only row. The value is the document itself, as JSON text:
//! other programs read it, and it can be exported and imported unchanged. So it has no format byte; the document states
//! its own schema in its member `version`, which is 1. The content is not known here.

use super::json_text::JsonDocument;
use super::{KeyWriter, TableError, TableId};
use crate::rows::Key;

/// The document. Its bytes in the row are [`JsonDocument::to_bytes`].
pub type StateDocument = JsonDocument;

/// The document's key, the same in every poller's partition.
pub fn key() -> Key {
    KeyWriter::new(TableId::StateDocument).key()
}

/// Reads the document of a row. Rejects bytes that are empty or not UTF-8.
pub fn from_bytes(bytes: &[u8]) -> Result<StateDocument, TableError> {
    JsonDocument::from_row_bytes(TableId::StateDocument, bytes)
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
        assert!(matches!(
            from_bytes(b""),
            Err(TableError::InvalidValue { table: TableId::StateDocument, .. })
        ));
    }
}
