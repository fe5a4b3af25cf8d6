//! The context's registry: one JSON document, changed by compare-and-set.
//!
//! The value is the document itself, as JSON text: members that this program does not know are kept, and other programs
//! read the document unchanged. So it has no format byte. Its member `registryVersion` is not a format version: it
//! counts the changes of the document, and a writer gives the one it has seen. The content, including its lock, is not
//! known here.

use super::json_text::JsonDocument;
use super::{KeyWriter, TableError, TableId};
use crate::rows::Key;

/// The document. Its bytes in the row are [`JsonDocument::to_bytes`].
pub type RegistryDocument = JsonDocument;

/// The key of the only row of the registry's partition.
pub fn key() -> Key {
    KeyWriter::new(TableId::Registry).key()
}

/// Reads the registry of a row. Rejects bytes that are empty or not UTF-8.
pub fn from_bytes(bytes: &[u8]) -> Result<RegistryDocument, TableError> {
    JsonDocument::from_row_bytes(TableId::Registry, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_keeps_unknown_members() {
        let json = r#"{"registryVersion":7,  "ofAnotherProgram":1.0}"#;
        let registry = from_bytes(json.as_bytes()).unwrap();
        assert_eq!(registry, RegistryDocument { json: json.to_owned() });
        assert_eq!(registry.to_bytes(), json.as_bytes());
        assert!(matches!(
            from_bytes(&[0xff]),
            Err(TableError::InvalidValue { table: TableId::Registry, .. })
        ));
    }
}
