//! Checks the engine's manifests before the engine is opened.
//!
//! Each keyspace of the engine has a manifest, the list of its sorted files, and a pointer to it with the manifest's checksum. The
//! engine does not compare the two, and deletes sorted files that the manifest does not name: one flipped bit in it shows old rows, hides
//! new ones, or costs them for good. So it is compared here, while nothing has been touched.
//!
//! Knows the engine's pointer format (`keyspaces/<n>/current`: number of the manifest, its xxh3 checksum, the kind of checksum).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use crate::journal::Damage;

/// The first manifest of the engine that is not what was written, if there is one.
pub(crate) fn check(engine: &Path) -> io::Result<Option<Damage>> {
    let mut keyspaces: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(engine.join("keyspaces"))? {
        keyspaces.push(entry?.path());
    }
    keyspaces.sort();
    for keyspace in keyspaces {
        let pointer = keyspace.join("current");
        // A keyspace without a pointer was never completed: nothing was ever in it, and the engine removes it.
        let Some(bytes) = read_if_there(&pointer)? else { continue };
        let Some((number, checksum)) = parse(&bytes) else {
            return Ok(Some(Damage { file: pointer, at: 0, reason: "it does not point to a manifest" }));
        };
        let manifest = keyspace.join(format!("v{number}"));
        let intact = read_if_there(&manifest)?.is_some_and(|bytes| xxh3_128(&bytes) == checksum);
        if !intact {
            let reason = "the manifest is missing or not the one its pointer was made for";
            return Ok(Some(Damage { file: manifest, at: 0, reason }));
        }
    }
    Ok(None)
}

fn parse(bytes: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    (rest == [0]).then_some((u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
