//! `publish`: definitions are published, and findings are shown with their place in the file.

use serde_json::json;

use crate::testbed::{CliTestbed, assert_contains, root};

#[test]
fn publishing_names_the_version_and_can_be_repeated() {
    let world = CliTestbed::new();
    let output = world.publish("echo", "1.0.0", &json!({"Begin": {"type": "succeed"}}));
    assert_contains(&output, &["echo-1.0.0.json: published echo 1.0.0 ("]);
    let file = world.path("echo-1.0.0.json");
    let again = world.abide(&["publish", &file, "--json"]).json();
    assert_eq!(
        (&again[0]["id"], &again[0]["version"], again[0]["hash"].as_str().unwrap().len()),
        (&json!("echo"), &json!("1.0.0"), 64)
    );
}

#[test]
fn a_rejected_definition_is_shown_with_its_findings_and_the_others_are_published() {
    let world = CliTestbed::new();
    let broken = root().join("crates/workflow/tests/spec/onboarding-as-specified.json").display().to_string();
    let good = world.file(
        "good.json",
        r#"{"$schema": "workflow-schema-v1.json", "id": "good", "version": "1.0.0", "startAt": "E", "states": {"E": {"type": "succeed"}}}"#,
    );
    let output = world.abide(&["publish", &broken, &good]).expect_code(1);
    assert_contains(
        &output.out,
        &[
            "error[dangling-target]: there is no state \"HandleTimeout\" to go to",
            "onboarding-as-specified.json:42:7 /states/WaitForExternalProcess/timeoutNext\n",
            "  hint: ",
            "onboarding-as-specified.json: rejected, ",
            "good.json: published good 1.0.0",
        ],
    );
    let output = world.abide(&["publish", &broken, "--json"]).expect_code(1);
    let error: serde_json::Value = serde_json::from_str(&output.err).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["status"]),
        (&json!("VALIDATION_ERROR"), &json!(400))
    );
    assert!(
        error["error"]["details"]
            .as_array()
            .unwrap()
            .iter()
            .any(|detail| detail["code"] == "dangling-target")
    );
    assert_contains(
        &world.abide(&["publish", "no-such-file.json"]).expect_code(2).err,
        &["no-such-file.json"],
    );
}
