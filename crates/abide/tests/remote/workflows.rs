//! `publish`, and what is wrong with a definition shown where it is wrong.

use serde_json::json;

use crate::world::{World, has, root};

#[test]
fn what_is_published_is_named_and_published_again_without_harm() {
    let world = World::new();
    let told = world.publish("echo", "1.0.0", &json!({"Begin": {"type": "succeed"}}));
    has(&told, &["echo-1.0.0.json: published echo 1.0.0 ("]);
    let file = world.path("echo-1.0.0.json");
    let again = world.abide(&["publish", &file, "--json"]).json();
    assert_eq!(
        (&again[0]["id"], &again[0]["version"], again[0]["hash"].as_str().unwrap().len()),
        (&json!("echo"), &json!("1.0.0"), 64)
    );
}

#[test]
fn a_refused_definition_is_told_with_its_place_and_the_others_are_published() {
    let world = World::new();
    let broken = root().join("crates/workflow/tests/spec/onboarding-as-specified.json").display().to_string();
    let good = world.file(
        "good.json",
        r#"{"$schema": "workflow-schema-v1.json", "id": "good", "version": "1.0.0", "startAt": "E", "states": {"E": {"type": "succeed"}}}"#,
    );
    let told = world.abide(&["publish", &broken, &good]).with(1);
    has(
        &told.out,
        &[
            "error[dangling-target]: there is no state \"HandleTimeout\" to go to",
            "onboarding-as-specified.json:42:7 /states/WaitForExternalProcess/timeoutNext\n",
            "  do: ",
            "onboarding-as-specified.json: refused, ",
            "good.json: published good 1.0.0",
        ],
    );
    let told = world.abide(&["publish", &broken, "--json"]).with(1);
    let error: serde_json::Value = serde_json::from_str(&told.err).unwrap();
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
    has(&world.abide(&["publish", "no-such-file.json"]).with(2).err, &["no-such-file.json"]);
}
