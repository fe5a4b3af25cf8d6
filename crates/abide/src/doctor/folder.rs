//! Checks the data folder: that it exists, is writable, has its layout file and enough disk space, and that its lock
//! agrees with the server. It does not read the store; that is the job of `abide fsck`.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::DoctorFinding;
use super::server::ServerReachability;
use crate::table::group_digits;

/// The disk space that commits leave free. With less, the server accepts no commits.
const RESERVE_BYTES: u64 = 256 * 1024 * 1024;
/// With less free space than this, the operator should act.
const COMFORTABLE_BYTES: u64 = 2 * 1024 * 1024 * 1024;

pub(crate) fn check_folder(data: &Path, server: ServerReachability) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let shown = data.display();
    match fs::metadata(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let advice = "`abide serve` creates one; if the server uses another folder, give it with --data";
            findings.push(DoctorFinding::warning("data folder", format!("{shown} does not exist"), advice));
            return findings;
        }
        Err(error) => {
            let advice = "check that this user may read it and every folder above it";
            findings.push(DoctorFinding::error("data folder", format!("{shown}: {error}"), advice));
            return findings;
        }
        Ok(about) if !about.is_dir() => {
            let advice = "move the file away, or give another folder with --data";
            findings.push(DoctorFinding::error("data folder", format!("{shown} is not a folder"), advice));
            return findings;
        }
        Ok(_) => findings.push(check_writable(data)),
    }
    findings.push(check_layout(data));
    findings.push(check_disk_space(data));
    findings.push(check_lock(data, server));
    findings
}

fn check_writable(data: &Path) -> DoctorFinding {
    let probe = data.join(".abide-doctor");
    let written = File::create(&probe).and_then(|_| fs::remove_file(&probe));
    match written {
        Ok(()) => DoctorFinding::ok("data folder", format!("{} is writable", data.display())),
        Err(error) => DoctorFinding::error(
            "data folder",
            format!("{} is not writable: {error}", data.display()),
            "check that this user may write there, and that the disk is not mounted read-only",
        ),
    }
}

fn check_layout(data: &Path) -> DoctorFinding {
    let file = data.join("abide.json");
    let read = fs::read_to_string(&file).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| {
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        json.get("shards")
            .and_then(serde_json::Value::as_u64)
            .ok_or_else(|| "the field \"shards\" is missing or is not a number".to_owned())
    });
    match parsed {
        Ok(shards) => DoctorFinding::ok("layout", format!("{shards} shards")),
        Err(error) => DoctorFinding::error(
            "layout",
            format!("abide.json: {error}"),
            "check that this is the folder of a server; if it is, write {\"shards\": N} with the number it was created with, or restore a backup",
        ),
    }
}

fn check_disk_space(data: &Path) -> DoctorFinding {
    let free = match rustix::fs::statvfs(data) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => return DoctorFinding::warning("disk", error.to_string(), "check the disk with `df`"),
    };
    let message = format!("{} MiB free", group_digits(free / (1024 * 1024)));
    match free {
        ..RESERVE_BYTES => DoctorFinding::error(
            "disk",
            message,
            "free disk space now: below 256 MiB the server accepts no commits",
        ),
        RESERVE_BYTES..COMFORTABLE_BYTES => DoctorFinding::warning(
            "disk",
            message,
            "free disk space, or purge ended runs: `abide purge --created-to 7d`",
        ),
        _ => DoctorFinding::ok("disk", message),
    }
}

fn check_lock(data: &Path, server: ServerReachability) -> DoctorFinding {
    let file = match File::open(data.join("LOCK")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return DoctorFinding::warning(
                "lock",
                "there is no store in the folder",
                "`abide serve` creates one",
            );
        }
        Err(error) => {
            return DoctorFinding::error(
                "lock",
                error.to_string(),
                "check that this user may read the folder",
            );
        }
    };
    let is_free = match file.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => {
            return DoctorFinding::warning(
                "lock",
                error.to_string(),
                "check that the file system supports locks: network file systems often do not",
            );
        }
    };
    match (is_free, server) {
        (false, ServerReachability::Reachable) => DoctorFinding::ok("lock", "a process uses the folder"),
        (false, ServerReachability::Unreachable) => DoctorFinding::error(
            "lock",
            "a process uses the folder, but no server responds",
            "give --url if the server listens elsewhere; otherwise find the process with `fuser` and the file LOCK",
        ),
        (true, ServerReachability::Reachable) => DoctorFinding::warning(
            "lock",
            "no process uses the folder, but a server responds",
            "the server uses another data folder: give it with --data",
        ),
        (true, ServerReachability::Unreachable) => DoctorFinding::ok("lock", "no process uses the folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;

    fn verdicts(data: &Path, server: ServerReachability) -> Vec<(&'static str, CheckStatus)> {
        let findings = check_folder(data, server);
        // The free space depends on the machine that runs the test.
        findings
            .iter()
            .filter(|finding| finding.check != "disk")
            .map(|finding| (finding.check, finding.verdict))
            .collect()
    }

    #[test]
    fn a_missing_part_and_a_lock_that_contradicts_the_server_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            verdicts(&folder.path().join("none"), ServerReachability::Unreachable),
            [("data folder", CheckStatus::Warning)]
        );
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(verdicts(&file, ServerReachability::Unreachable), [("data folder", CheckStatus::Error)]);

        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let ok = CheckStatus::Ok;
        let warning = CheckStatus::Warning;
        let error = CheckStatus::Error;
        assert_eq!(
            verdicts(&data, ServerReachability::Unreachable),
            [("data folder", ok), ("layout", error), ("lock", warning)]
        );
        fs::write(data.join("abide.json"), "{\"shards\":4}\n").unwrap();
        let lock = File::create(data.join("LOCK")).unwrap();
        for (is_locked, server, verdict) in [
            (false, ServerReachability::Unreachable, ok),
            (false, ServerReachability::Reachable, warning),
            (true, ServerReachability::Unreachable, error),
            (true, ServerReachability::Reachable, ok),
        ] {
            if is_locked {
                lock.lock().unwrap();
            }
            assert_eq!(verdicts(&data, server), [("data folder", ok), ("layout", ok), ("lock", verdict)]);
        }
    }
}
