//! Activities by name: added, replaced and removed while calls are in progress.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fixtures::*;
use super::server::Server;
use crate::ActivityRouter;
use crate::declaration::{ActivityCategory, ActivityDeclaration};
use crate::egress_guard::DenyReason;
use crate::local::{LocalActivities, LocalInvocation};
use crate::remote::{DeclarationError, RemoteDeclaration, RemoteRegistry, RemoteRegistryError, WireFormat};
use crate::transport::{ActivityTransport, CallAttempt};

fn named(name: &str, server: &Server) -> RemoteDeclaration {
    let mut declared = declared(WireFormat::Rest, &http(server.address), json!({"probe": true}));
    declared.activity.name = name.to_owned();
    declared
}

fn call_of(name: &str) -> CallAttempt {
    CallAttempt { activity: name.to_owned(), ..call(json!("in")) }
}

fn router() -> ActivityRouter {
    let mut local = LocalActivities::default();
    let echo = |invocation: LocalInvocation| async move { Ok(invocation.input) };
    local.register(ActivityDeclaration::new("echo", ActivityCategory::Other), echo).unwrap();
    ActivityRouter::new(local, Arc::new(RemoteRegistry::new(outbound())))
}

#[tokio::test]
async fn an_activity_in_process_comes_before_a_remote_one_and_others_are_unknown() {
    let router = router();
    let server = Server::always(200, "\"out\"").await;
    for name in ["echo", "charge"] {
        router.remote().put(named(name, &server)).unwrap();
    }
    let call = async |name| result(router.run_attempt(call_of(name)).await);
    assert_eq!(call("echo").await, Ok(json!("in")));
    assert_eq!(call("charge").await, Ok(json!("out")));
    let missing = call("missing").await;
    assert_eq!(failure_summary(&missing), permanent("ActivityNotFound"));
    assert!(missing.unwrap_err().not_sent);
}

#[tokio::test]
async fn a_replaced_activity_is_used_at_once_and_a_removed_one_no_longer() {
    let (router, one, two) = (router(), Server::always(200, "1").await, Server::always(200, "2").await);
    let call = async || result(router.run_attempt(call_of("charge")).await);
    router.remote().put(named("charge", &one)).unwrap();
    assert_eq!(call().await, Ok(json!(1)));
    router.remote().put(named("charge", &two)).unwrap();
    assert_eq!(call().await, Ok(json!(2)));
    assert!(router.remote().remove("charge") && !router.remote().remove("charge"));
    assert_eq!(failure_summary(&call().await), permanent("ActivityNotFound"));
}

#[tokio::test]
async fn a_call_in_progress_keeps_its_activity() {
    let router = Arc::new(router());
    let silent = Server::silent().await;
    router.remote().put(named("charge", &silent)).unwrap();
    let calling = tokio::spawn({
        let router = Arc::clone(&router);
        async move { result(router.run_attempt(call_of("charge")).await) }
    });
    silent.received(1).await;
    router.remote().remove("charge");
    tokio::time::pause();
    assert_eq!(failure_summary(&calling.await.unwrap()), unknown("AttemptTimeout"));
}

#[tokio::test]
async fn an_unchanged_declaration_keeps_its_activity() {
    let router = router();
    let server = Server::always(200, "1").await;
    let registry = router.remote();
    registry.put(named("charge", &server)).unwrap();
    let before = registry.get("charge").unwrap();
    registry.put(named("charge", &server)).unwrap();
    registry.replace([named("charge", &server), named("more", &server)]).unwrap();
    assert!(Arc::ptr_eq(&before, &registry.get("charge").unwrap()));
    let mut changed = named("charge", &server);
    changed.probe = false;
    registry.put(changed).unwrap();
    assert!(!Arc::ptr_eq(&before, &registry.get("charge").unwrap()));
}

#[tokio::test]
async fn all_activities_are_replaced_or_none() {
    let router = router();
    let server = Server::always(200, "1").await;
    let registry = router.remote();
    registry.replace([named("a", &server), named("b", &server)]).unwrap();
    let duplicate = registry.replace([named("c", &server), named("c", &server)]);
    assert_eq!(duplicate, Err(RemoteRegistryError::Duplicate { activity: "c".to_owned() }));
    let mut denied = named("d", &server);
    denied.endpoint = "http://10.0.0.1/".to_owned();
    let error = registry.replace([named("c", &server), denied.clone()]).unwrap_err();
    assert!(
        matches!(&error, RemoteRegistryError::Declaration { activity, .. } if activity == "d"),
        "{error}"
    );
    assert!(matches!(registry.check(&denied), Err(DeclarationError::Endpoint(DenyReason::Address { .. }))));
    assert!(registry.put(denied).is_err());
    assert_eq!(format!("{registry:?}"), r#"{"a", "b"}"#);
}

#[tokio::test]
async fn the_registry_json_has_both_kinds_sorted_and_each_name_once() {
    let router = router();
    let server = Server::always(200, "1").await;
    for name in ["zebra", "echo", "charge"] {
        router.remote().put(named(name, &server)).unwrap();
    }
    let registry: Value = serde_json::from_str(&router.registry_json()).unwrap();
    let names: Vec<&str> = registry["activities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["charge", "echo", "zebra"]);
    assert_eq!(
        registry["activities"][0],
        json!({"name": "charge", "category": "other"}),
        "without the endpoint"
    );
}

#[tokio::test]
async fn the_registry_json_can_be_previewed() {
    let router = router();
    let server = Server::always(200, "1").await;
    router.remote().put(named("charge", &server)).unwrap();
    let names = |registry: String| -> Vec<String> {
        let registry: Value = serde_json::from_str(&registry).unwrap();
        let entries = registry["activities"].as_array().unwrap();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    let more = named("more", &server).activity;
    assert_eq!(names(router.registry_json_with("more", Some(&more))), ["charge", "echo", "more"]);
    assert_eq!(names(router.registry_json_with("charge", None)), ["echo"]);
    assert_eq!(names(router.registry_json()), ["charge", "echo"], "nothing was changed");
}

#[tokio::test]
async fn the_target_label_of_an_activity_hides_its_path() {
    let router = router();
    let server = Server::always(200, "1").await;
    router.remote().put(named("charge", &server)).unwrap();
    router.remote().put(named("echo", &server)).unwrap();
    let address = server.address;
    assert_eq!(router.target_label("charge"), Some(format!("rest http://{address}")));
    assert_eq!((router.target_label("echo"), router.target_label("missing")), (None, None));
}

#[tokio::test]
async fn secrets_are_resolved_where_the_author_refers_to_them_and_nowhere_else() {
    let server = Server::always(200, "1").await;
    let known = FixedSecrets([("env:KEY".to_owned(), b"s3cret".to_vec())].into());
    let registry = RemoteRegistry::new(outbound_with(known));
    registry.put(named("charge", &server)).unwrap();
    let router = ActivityRouter::new(LocalActivities::default(), Arc::new(registry));
    let reference = json!({"secretRef": "env:KEY"});
    let input = json!({"auth": {"key": reference}, "from": {"data": reference}});
    let call =
        |pointer: &str| CallAttempt { secret_pointers: vec![pointer.to_owned()], ..call(input.clone()) };
    assert_eq!(result(router.run_attempt(call("/auth/key")).await), Ok(json!(1)));
    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(sent, json!({"auth": {"key": "s3cret"}, "from": {"data": reference}}));
    assert!(!format!("{:?}", call("/auth/key")).contains("s3cret"));
    for nowhere in ["/auth", "/elsewhere"] {
        assert_eq!(
            failure_summary(&result(router.run_attempt(call(nowhere)).await)),
            permanent("SecretUnavailable")
        );
    }
    let unknown = CallAttempt {
        input: Arc::new(json!({"auth": {"key": {"secretRef": "env:OTHER"}}})),
        ..call("/auth/key")
    };
    let failure = result(router.run_attempt(unknown).await);
    assert_eq!(failure_summary(&failure), permanent("SecretUnavailable"));
    assert!(failure.unwrap_err().message.contains("env:OTHER"), "the message names the secret");
    assert_eq!(server.requests().len(), 1, "nothing was sent");
}

#[test]
fn a_remote_activity_shows_no_path() {
    let declared = declared(WireFormat::Rest, "http://127.0.0.1:1/s3cret", json!({}));
    let remote = crate::remote::RemoteActivity::new(declared, &outbound()).unwrap();
    assert!(!format!("{remote:?}").contains("s3cret"), "{remote:?}");
}
