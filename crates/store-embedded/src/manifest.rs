//! Checks the engine's manifests before the engine is opened.
//!
//! Each keyspace of the engine has a manifest, the list of its sorted files, and a pointer to it with the manifest's checksum. The
//! engine does not compare the two, deletes sorted files that the manifest does not name, and removes a keyspace whose pointer is
//! missing: one flipped bit shows old rows, hides new ones, or costs them for good. So it is compared here, while nothing has been
//! touched.
//!
//! Knows the engine's pointer format (`keyspaces/<n>/current`: number of the manifest, its xxh3 checksum, the kind of checksum).

use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::folder::read_if_there;
use crate::journal::Damage;

/// The engine's own keyspace and ours, in the order they are made. All of them are made before the store is, so none can be missing.
const KEYSPACES: [&str; 5] = ["0", "1", "2", "3", "4"];

/// The first file of the engine that is not what was written, if there is one. Called for stores that were completed once.
pub(crate) fn check(engine: &Path) -> io::Result<Option<Damage>> {
    if !engine.join("version").try_exists()? {
        let reason = "it is missing, and the engine would take the folder for a new one";
        return Ok(Some(Damage { file: engine.join("version"), at: 0, reason }));
    }
    for keyspace in KEYSPACES {
        let keyspace = engine.join("keyspaces").join(keyspace);
        let pointer = keyspace.join("current");
        let Some((number, checksum)) = read_if_there(&pointer)?.and_then(|bytes| parse(&bytes)) else {
            return Ok(Some(Damage {
                file: pointer,
                at: 0,
                reason: "it is missing or does not point to a manifest",
            }));
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
