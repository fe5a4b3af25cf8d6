//! The kill rig itself, a few cycles: in every test run the store is killed at full load and must have what it acknowledged.

use std::process::Command;

#[test]
fn killed_writers_lose_nothing_they_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Command::new(env!("CARGO_BIN_EXE_crash"))
        .args(["store-kill", "--cycles", "6", "--folder"])
        .arg(folder.path().join("store"))
        .output()
        .unwrap();
    let (said, complained) = (String::from_utf8_lossy(&rig.stdout), String::from_utf8_lossy(&rig.stderr));
    assert!(rig.status.success(), "{said}{complained}");
    assert!(said.contains("acknowledged and lost       0"), "{said}");
}
