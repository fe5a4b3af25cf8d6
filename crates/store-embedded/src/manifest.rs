//! Checks the engine's manifests before the engine is opened.
//!
//! Each keyspace of the engine has a manifest, the list of its sorted files, and a pointer to it with the manifest's
//! checksum. The engine does not compare the two, deletes sorted files that the manifest does not name, and removes a
//! keyspace whose pointer is missing. So one flipped bit could show old rows, hide new ones, or lose them permanently.
//! This file compares manifest and pointer before anything is changed. It repairs nothing.
//!
//! It knows the engine's pointer format (`keyspaces/<n>/current`: number of the manifest, its xxh3 checksum, the kind
//! of checksum), but not the content of a manifest.

use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::folder::read_if_exists;
use crate::journal_recovery::FileDamage;

/// The engine's own keyspace and ours, in the order of their creation. All of them are created before the store counts
/// as complete, so none may be missing.
const KEYSPACES: [&str; 5] = ["0", "1", "2", "3", "4"];

/// Returns the first damaged or missing file of the engine, if there is one. Only for stores that were created
/// completely.
pub(crate) fn check(engine: &Path) -> io::Result<Option<FileDamage>> {
    if !engine.join("version").try_exists()? {
        let reason = "the file is missing, and the engine would create a new database";
        return Ok(Some(FileDamage { file: engine.join("version"), at: 0, reason: reason.into() }));
    }
    for keyspace in KEYSPACES {
        let keyspace = engine.join("keyspaces").join(keyspace);
        let pointer = keyspace.join("current");
        let Some((number, checksum)) = read_if_exists(&pointer)?.and_then(|bytes| parse(&bytes)) else {
            return Ok(Some(FileDamage {
                file: pointer,
                at: 0,
                reason: "the file is missing or does not point to a manifest".into(),
            }));
        };
        let manifest = keyspace.join(format!("v{number}"));
        let intact = read_if_exists(&manifest)?.is_some_and(|bytes| xxh3_128(&bytes) == checksum);
        if !intact {
            let reason = "the manifest is missing or does not match the checksum in its pointer";
            return Ok(Some(FileDamage { file: manifest, at: 0, reason: reason.into() }));
        }
    }
    Ok(None)
}

fn parse(bytes: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    (rest == [0]).then_some((u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
}
