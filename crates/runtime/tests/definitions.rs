//! Definitions are published once, however many nodes publish them and whatever the store returns.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use abide_runtime::definitions::{DefinitionError, Definitions, PublishOutcome, RetireOutcome};
use abide_store::conformance::join_all;
use abide_store::memory::{BackendProfile, FaultRates, MemoryStore};
use abide_store::rows::{Partition, PrivateRows, Scan};
use abide_workflow::Timestamp;
use semver::{Version, VersionReq};

const NOW: Timestamp = Timestamp(1_000);

fn text(version: &str, output: &str) -> String {
    format!(
        r#"{{"$schema": "workflow-schema-v1.json", "id": "hello", "version": "{version}", "startAt": "Done",
            "states": {{"Done": {{"type": "succeed", "output": "{output}"}}}}}}"#
    )
}

fn definitions(store: &Arc<MemoryStore>) -> Definitions<MemoryStore> {
    Definitions::new(Arc::clone(store)).unwrap()
}

async fn publish(definitions: &Definitions<MemoryStore>, version: &str) -> PublishOutcome {
    definitions.publish(&text(version, "a"), None, NOW).await.unwrap().1
}

#[tokio::test]
async fn a_version_is_published_once_and_never_replaced_by_different_content() {
    let store = Arc::new(MemoryStore::default());
    let definitions = definitions(&store);
    assert_eq!(publish(&definitions, "1.0.0").await, PublishOutcome::New);
    assert_eq!(publish(&definitions, "1.0.0").await, PublishOutcome::Identical);
    let partition = Partition::new("definitions").unwrap();
    let before = store.scan(&partition, Scan::all()).await.unwrap();
    let other = definitions.publish(&text("1.0.0", "b"), None, NOW).await.unwrap_err();
    assert!(matches!(other, DefinitionError::ContentMismatch { .. }), "{other}");
    assert_eq!(store.scan(&partition, Scan::all()).await.unwrap(), before, "nothing was changed");
}

#[tokio::test]
async fn an_invalid_definition_is_rejected_with_its_findings() {
    let definitions = definitions(&Arc::new(MemoryStore::default()));
    match definitions.publish("{}", None, NOW).await {
        Err(DefinitionError::Rejected { findings }) => assert!(!findings.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_version_is_the_default_until_another_one_is_set() {
    let definitions = definitions(&Arc::new(MemoryStore::default()));
    for version in ["1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1", "2.0.0"] {
        publish(&definitions, version).await;
    }
    let picked = async |range: Option<&str>| {
        let range = range.map(|range| VersionReq::parse(range).unwrap());
        definitions.resolve("hello", range.as_ref()).await.map(|plan| plan.version().to_string())
    };
    assert_eq!(picked(None).await.unwrap(), "1.0.0");
    assert_eq!(picked(Some("^1")).await.unwrap(), "1.10.0", "versions are compared as numbers, not as text");
    assert_eq!(picked(Some("=2.0.0-rc.1")).await.unwrap(), "2.0.0-rc.1");
    assert!(matches!(picked(Some("^3")).await, Err(DefinitionError::NotFound { .. })));
    definitions.set_default("hello", &Version::new(2, 0, 0), NOW).await.unwrap();
    assert_eq!(picked(None).await.unwrap(), "2.0.0");
    let missing = definitions.set_default("hello", &Version::new(9, 0, 0), NOW).await;
    assert!(matches!(missing, Err(DefinitionError::NotFound { .. })));
    assert!(matches!(definitions.resolve("missing", None).await, Err(DefinitionError::NotFound { .. })));
}

#[tokio::test]
async fn of_many_publishers_of_one_version_exactly_one_is_first() {
    let store = Arc::new(MemoryStore::default());
    let nodes: Vec<_> = (0..8).map(|_| definitions(&store)).collect();
    let published = join_all(nodes.iter().map(|node| publish(node, "1.0.0")).collect()).await;
    assert_eq!(published.iter().filter(|publication| **publication == PublishOutcome::New).count(), 1);
}

#[tokio::test]
async fn a_plan_is_compiled_with_the_activities_it_was_published_with() {
    let store = Arc::new(MemoryStore::default());
    let registry = r#"{"activities": [{"name": "Work", "category": "other", "attemptTimeout": "PT3S"}]}"#;
    let task = r#"{"$schema": "workflow-schema-v1.json", "id": "work", "version": "1.0.0", "startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "Work", "next": "Done"}, "Done": {"type": "succeed"}}}"#;
    let (plan, _) = definitions(&store).publish(task, Some(registry), NOW).await.unwrap();
    let again = definitions(&store).load_plan("work", &Version::new(1, 0, 0)).await.unwrap();
    assert_eq!(again.hash(), plan.hash());
    let unknown =
        definitions(&store).publish(&task.replace("1.0.0", "1.0.1"), Some("{\"activities\": []}"), NOW).await;
    assert!(matches!(unknown, Err(DefinitionError::Rejected { .. })), "the activity is not registered");
}

/// Whatever the store returns, a definition whose publication was acknowledged exists, and a failed publication can be
/// repeated.
#[tokio::test]
async fn publishing_survives_conflicts_and_unknown_outcomes() {
    for seed in 0..300 {
        let faults =
            FaultRates { seed, conflict_per_mille: 150, unavailable_per_mille: 150, unknown_per_mille: 300 };
        let store =
            Arc::new(MemoryStore::new(BackendProfile { faults: Some(faults), ..BackendProfile::AZURE }));
        let definitions = definitions(&store);
        let mut tries = 0;
        let first = loop {
            tries += 1;
            assert!(tries < 200, "seed {seed} never succeeds");
            match definitions.publish(&text("1.0.0", "a"), None, NOW).await {
                Ok((_, publication)) => break publication,
                Err(DefinitionError::Store(_) | DefinitionError::Busy { .. }) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
        };
        let picked = loop {
            match definitions.resolve("hello", None).await {
                Ok(plan) => break plan,
                Err(DefinitionError::Store(_)) => {}
                Err(other) => panic!("seed {seed}: acknowledged with {first:?}, and then {other}"),
            }
        };
        assert_eq!(picked.version(), &Version::new(1, 0, 0), "seed {seed}");
    }
}

#[tokio::test]
async fn a_retirement_is_reverted_only_with_its_own_mark() {
    let definitions = definitions(&Arc::new(MemoryStore::default()));
    publish(&definitions, "1.0.0").await;
    publish(&definitions, "2.0.0").await;
    let second = Version::new(2, 0, 0);
    let range = VersionReq::parse("=2.0.0").unwrap();
    let picked = async || definitions.resolve("hello", Some(&range)).await.is_ok();
    assert_eq!(definitions.retire("hello", &second, NOW).await.unwrap(), RetireOutcome::New(NOW));
    let later = Timestamp(NOW.0 + 1);
    assert_eq!(definitions.retire("hello", &second, later).await.unwrap(), RetireOutcome::Already);
    assert!(matches!(
        definitions.check_not_retired("hello", &second).await,
        Err(DefinitionError::Retired { .. })
    ));
    definitions.revert_retirement("hello", &second, later).await.unwrap();
    assert!(!picked().await, "the mark is another one");
    definitions.revert_retirement("hello", &second, NOW).await.unwrap();
    assert!(picked().await && definitions.check_not_retired("hello", &second).await.is_ok());
}
