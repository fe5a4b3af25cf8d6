//! The context's registry: one JSON document, changed by compare-and-set.
//!
//! The value is the document itself, as JSON text: members that this program does not know are kept, and
//! other programs read it as it is. So it has no format byte. Its member `registryVersion` is not one either:
//! it counts the changes of the document, and a writer names the one it has seen. What is in the document,
//! its lock included, is not known here.

use super::json_text::JsonText;
use super::{KeyWriter, Table, TableError};
use crate::rows::Key;

/// The document. Its bytes in the row are [`JsonText::to_bytes`].
pub type Registry = JsonText;

/// The registry's key, the one row of the registry's partition.
pub fn key() -> Key {
    KeyWriter::new(Table::Registry).key()
}

/// The registry in a row; refuses what is empty or not UTF-8.
pub fn from_bytes(bytes: &[u8]) -> Result<Registry, TableError> {
    JsonText::read(Table::Registry, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_keeps_what_it_does_not_know() {
        let json = r#"{"registryVersion":7,  "ofAnotherProgram":1.0}"#;
        let registry = from_bytes(json.as_bytes()).unwrap();
        assert_eq!(registry, Registry { json: json.to_owned() });
        assert_eq!(registry.to_bytes(), json.as_bytes());
        assert!(matches!(from_bytes(&[0xff]), Err(TableError::Value { table: Table::Registry, .. })));
    }
}
