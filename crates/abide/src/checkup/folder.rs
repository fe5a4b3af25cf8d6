//! The data folder: whether it is there, can be written, has room, and who has it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::Finding;
use super::server::Seen;
use crate::table::grouped;

/// Commits leave so much of the disk free; with less, none is taken.
const RESERVE_BYTES: u64 = 256 * 1024 * 1024;
/// With less than this it is time to act.
const ROOM_BYTES: u64 = 2 * 1024 * 1024 * 1024;

pub(crate) fn examine(data: &Path, server: Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    let shown = data.display();
    match fs::metadata(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let advice =
                "`abide serve` makes one; a server elsewhere has its own: say --data to look at another";
            findings.push(Finding::doubtful("data folder", format!("{shown} is not there"), advice));
            return findings;
        }
        Err(error) => {
            let advice = "see that this user may read it, and every folder above it";
            findings.push(Finding::bad("data folder", format!("{shown}: {error}"), advice));
            return findings;
        }
        Ok(about) if !about.is_dir() => {
            let advice = "move the file out of the way, or say --data";
            findings.push(Finding::bad("data folder", format!("{shown} is not a folder"), advice));
            return findings;
        }
        Ok(_) => findings.push(writable(data)),
    }
    findings.push(layout(data));
    findings.push(room(data));
    findings.push(lock(data, server));
    findings
}

fn writable(data: &Path) -> Finding {
    let probe = data.join(".abide-doctor");
    let tried = File::create(&probe).and_then(|_| fs::remove_file(&probe));
    match tried {
        Ok(()) => Finding::fine("data folder", format!("{} can be written", data.display())),
        Err(error) => Finding::bad(
            "data folder",
            format!("{} cannot be written: {error}", data.display()),
            "see that this user may write there, and that the disk is not mounted read-only",
        ),
    }
}

fn layout(data: &Path) -> Finding {
    let file = data.join("abide.json");
    let read = fs::read_to_string(&file).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| {
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        json.get("shards").and_then(serde_json::Value::as_u64).ok_or_else(|| "it names no shards".to_owned())
    });
    match parsed {
        Ok(shards) => Finding::fine("layout", format!("{shards} shards")),
        Err(error) => Finding::bad(
            "layout",
            format!("abide.json: {error}"),
            "is it the folder of a server? if it is, write {\"shards\": N} with the number it was made with, or restore a backup",
        ),
    }
}

fn room(data: &Path) -> Finding {
    let free = match rustix::fs::statvfs(data) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => return Finding::doubtful("disk", error.to_string(), "look at the disk with `df`"),
    };
    let told = format!("{} MiB free", grouped(free / (1024 * 1024)));
    match free {
        ..RESERVE_BYTES => {
            Finding::bad("disk", told, "free some now: with less than 256 MiB the server takes no commits")
        }
        RESERVE_BYTES..ROOM_BYTES => {
            Finding::doubtful("disk", told, "free some, or purge ended runs: `abide purge --created-to 7d`")
        }
        _ => Finding::fine("disk", told),
    }
}

fn lock(data: &Path, server: Seen) -> Finding {
    let file = match File::open(data.join("LOCK")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::doubtful("lock", "there is no store in the folder", "`abide serve` makes one");
        }
        Err(error) => {
            return Finding::bad("lock", error.to_string(), "see that this user may read the folder");
        }
    };
    let is_free = match file.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => {
            return Finding::doubtful(
                "lock",
                error.to_string(),
                "does the file system know locks? network file systems often do not",
            );
        }
    };
    match (is_free, server) {
        (false, Seen::Answers) => Finding::fine("lock", "a process has the folder"),
        (false, Seen::Silent) => Finding::bad(
            "lock",
            "a process has the folder, and no server answers",
            "say --url if it listens elsewhere; else look for the process: `fuser` with the file LOCK",
        ),
        (true, Seen::Answers) => Finding::doubtful(
            "lock",
            "nobody has the folder, though a server answers",
            "the server keeps its data elsewhere: say --data to look there",
        ),
        (true, Seen::Silent) => Finding::fine("lock", "nobody has the folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkup::Verdict;

    fn verdicts(data: &Path, seen: Seen) -> Vec<(&'static str, Verdict)> {
        let findings = examine(data, seen);
        // Whatever the machine that tests this has.
        findings
            .iter()
            .filter(|finding| finding.check != "disk")
            .map(|finding| (finding.check, finding.verdict))
            .collect()
    }

    #[test]
    fn what_is_missing_or_held_by_others_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(verdicts(&folder.path().join("none"), Seen::Silent), [("data folder", Verdict::Doubtful)]);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(verdicts(&file, Seen::Silent), [("data folder", Verdict::Bad)]);

        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let (fine, doubtful, bad) = (Verdict::Fine, Verdict::Doubtful, Verdict::Bad);
        assert_eq!(
            verdicts(&data, Seen::Silent),
            [("data folder", fine), ("layout", bad), ("lock", doubtful)]
        );
        fs::write(data.join("abide.json"), "{\"shards\":4}\n").unwrap();
        let lock = File::create(data.join("LOCK")).unwrap();
        for (held, seen, verdict) in [
            (false, Seen::Silent, fine),
            (false, Seen::Answers, doubtful),
            (true, Seen::Silent, bad),
            (true, Seen::Answers, fine),
        ] {
            if held {
                lock.lock().unwrap();
            }
            assert_eq!(verdicts(&data, seen), [("data folder", fine), ("layout", fine), ("lock", verdict)]);
        }
    }
}
