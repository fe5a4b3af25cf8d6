//! The rot rig itself, a few flips: no flipped bit of any file goes unnoticed.

use std::process::Command;

#[test]
fn flipped_bits_are_found_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Command::new(env!("CARGO_BIN_EXE_crash"))
        .args(["store-rot", "--flips", "60", "--folder"])
        .arg(folder.path())
        .output()
        .unwrap();
    let (said, complained) = (String::from_utf8_lossy(&rig.stdout), String::from_utf8_lossy(&rig.stderr));
    assert!(rig.status.success(), "{said}{complained}");
    assert!(said.contains("60 flipped bits, 0 of them silent or fatal"), "{said}");
}
