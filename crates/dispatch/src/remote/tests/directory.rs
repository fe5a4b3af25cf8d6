//! Activities by name: added, replaced and removed while calls are under way.

use std::sync::Arc;

use serde_json::{Value, json};

use super::parts::*;
use super::server::Server;
use crate::declaration::{Category, Declaration};
use crate::guard::Denied;
use crate::local::{Activities, Invocation};
use crate::remote::{DeclarationError, Directory, DirectoryError, Everywhere, RemoteDeclaration, Wire};
use crate::transport::{Call, Transport};

fn named(name: &str, server: &Server) -> RemoteDeclaration {
    let mut declared = declared(Wire::Rest, &http(server.address), json!({"probe": true}));
    declared.activity.name = name.to_owned();
    declared
}

fn call_of(name: &str) -> Call {
    Call { activity: name.to_owned(), ..call(json!("in")) }
}

fn everywhere() -> Everywhere {
    let mut local = Activities::default();
    let echo = |invocation: Invocation| async move { Ok(invocation.input) };
    local.register(Declaration::new("echo", Category::Other), echo).unwrap();
    Everywhere::new(local, Arc::new(Directory::new(outbound())))
}

#[tokio::test]
async fn an_activity_in_process_comes_first_then_a_remote_one_then_none() {
    let (everywhere, server) = (everywhere(), Server::always(200, "\"out\"").await);
    for name in ["echo", "charge"] {
        everywhere.remote().put(named(name, &server)).unwrap();
    }
    let answer = async |name| result(everywhere.deliver(call_of(name)).await);
    assert_eq!(answer("echo").await, Ok(json!("in")));
    assert_eq!(answer("charge").await, Ok(json!("out")));
    let nobody = answer("nobody").await;
    assert_eq!(told(&nobody), last("ActivityNotFound"));
    assert!(nobody.unwrap_err().not_sent);
}

#[tokio::test]
async fn what_is_replaced_is_used_at_once_and_what_is_removed_no_longer() {
    let (everywhere, one, two) =
        (everywhere(), Server::always(200, "1").await, Server::always(200, "2").await);
    let answer = async || result(everywhere.deliver(call_of("charge")).await);
    everywhere.remote().put(named("charge", &one)).unwrap();
    assert_eq!(answer().await, Ok(json!(1)));
    everywhere.remote().put(named("charge", &two)).unwrap();
    assert_eq!(answer().await, Ok(json!(2)));
    assert!(everywhere.remote().remove("charge") && !everywhere.remote().remove("charge"));
    assert_eq!(told(&answer().await), last("ActivityNotFound"));
}

#[tokio::test]
async fn a_call_under_way_ends_as_it_began() {
    let (everywhere, silent) = (Arc::new(everywhere()), Server::silent().await);
    everywhere.remote().put(named("charge", &silent)).unwrap();
    let calling = tokio::spawn({
        let everywhere = Arc::clone(&everywhere);
        async move { result(everywhere.deliver(call_of("charge")).await) }
    });
    silent.received(1).await;
    everywhere.remote().remove("charge");
    tokio::time::pause();
    assert_eq!(told(&calling.await.unwrap()), unknown("AttemptTimeout"));
}

#[tokio::test]
async fn what_stays_the_same_keeps_what_is_under_way() {
    let (everywhere, server) = (everywhere(), Server::always(200, "1").await);
    let directory = everywhere.remote();
    directory.put(named("charge", &server)).unwrap();
    let before = directory.get("charge").unwrap();
    directory.put(named("charge", &server)).unwrap();
    directory.replace([named("charge", &server), named("more", &server)]).unwrap();
    assert!(Arc::ptr_eq(&before, &directory.get("charge").unwrap()));
    let mut changed = named("charge", &server);
    changed.probe = false;
    directory.put(changed).unwrap();
    assert!(!Arc::ptr_eq(&before, &directory.get("charge").unwrap()));
}

#[tokio::test]
async fn all_are_replaced_or_none() {
    let (everywhere, server) = (everywhere(), Server::always(200, "1").await);
    let directory = everywhere.remote();
    directory.replace([named("a", &server), named("b", &server)]).unwrap();
    let twice = directory.replace([named("c", &server), named("c", &server)]);
    assert_eq!(twice, Err(DirectoryError::Duplicate { activity: "c".to_owned() }));
    let mut denied = named("d", &server);
    denied.endpoint = "http://10.0.0.1/".to_owned();
    let refused = directory.replace([named("c", &server), denied.clone()]).unwrap_err();
    assert!(matches!(&refused, DirectoryError::Declaration { activity, .. } if activity == "d"), "{refused}");
    assert!(matches!(directory.check(&denied), Err(DeclarationError::Endpoint(Denied::Address { .. }))));
    assert!(directory.put(denied).is_err());
    assert_eq!(format!("{directory:?}"), r#"{"a", "b"}"#);
}

#[tokio::test]
async fn the_registry_has_both_kinds_sorted_and_each_name_once() {
    let (everywhere, server) = (everywhere(), Server::always(200, "1").await);
    for name in ["zebra", "echo", "charge"] {
        everywhere.remote().put(named(name, &server)).unwrap();
    }
    let registry: Value = serde_json::from_str(&everywhere.registry_json()).unwrap();
    let names: Vec<&str> = registry["activities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["charge", "echo", "zebra"]);
    assert_eq!(registry["activities"][0], json!({"name": "charge", "category": "other"}), "and no endpoints");
}

#[tokio::test]
async fn the_registry_can_be_seen_as_it_would_be() {
    let (everywhere, server) = (everywhere(), Server::always(200, "1").await);
    everywhere.remote().put(named("charge", &server)).unwrap();
    let names = |registry: String| -> Vec<String> {
        let registry: Value = serde_json::from_str(&registry).unwrap();
        let entries = registry["activities"].as_array().unwrap();
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    let more = named("more", &server).activity;
    assert_eq!(names(everywhere.registry_json_with("more", Some(&more))), ["charge", "echo", "more"]);
    assert_eq!(names(everywhere.registry_json_with("charge", None)), ["echo"]);
    assert_eq!(names(everywhere.registry_json()), ["charge", "echo"], "and nothing was changed");
}

#[tokio::test]
async fn where_an_activity_is_does_not_tell_its_path() {
    let (everywhere, server) = (everywhere(), Server::always(200, "1").await);
    everywhere.remote().put(named("charge", &server)).unwrap();
    everywhere.remote().put(named("echo", &server)).unwrap();
    let address = server.address;
    assert_eq!(everywhere.whereabouts("charge"), Some(format!("rest http://{address}")));
    assert_eq!((everywhere.whereabouts("echo"), everywhere.whereabouts("nobody")), (None, None));
}

#[tokio::test]
async fn secrets_are_put_where_the_author_refers_to_them_and_nowhere_else() {
    let server = Server::always(200, "1").await;
    let known = Known([("env:KEY".to_owned(), b"s3cret".to_vec())].into());
    let directory = Directory::new(outbound_with(known));
    directory.put(named("charge", &server)).unwrap();
    let everywhere = Everywhere::new(Activities::default(), Arc::new(directory));
    let reference = json!({"secretRef": "env:KEY"});
    let input = json!({"auth": {"key": reference}, "from": {"data": reference}});
    let call = |place: &str| Call { secrets: vec![place.to_owned()], ..call(input.clone()) };
    assert_eq!(result(everywhere.deliver(call("/auth/key")).await), Ok(json!(1)));
    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(sent, json!({"auth": {"key": "s3cret"}, "from": {"data": reference}}));
    assert!(!format!("{:?}", call("/auth/key")).contains("s3cret"));
    for nowhere in ["/auth", "/elsewhere"] {
        assert_eq!(told(&result(everywhere.deliver(call(nowhere)).await)), last("SecretUnavailable"));
    }
    let unknown =
        Call { input: Arc::new(json!({"auth": {"key": {"secretRef": "env:OTHER"}}})), ..call("/auth/key") };
    let failure = result(everywhere.deliver(unknown).await);
    assert_eq!(told(&failure), last("SecretUnavailable"));
    assert!(failure.unwrap_err().message.contains("env:OTHER"), "it says which");
    assert_eq!(server.requests().len(), 1, "and nothing was sent");
}

#[test]
fn a_remote_activity_shows_no_path() {
    let declared = declared(Wire::Rest, "http://127.0.0.1:1/s3cret", json!({}));
    let remote = crate::remote::Remote::new(declared, &outbound()).unwrap();
    assert!(!format!("{remote:?}").contains("s3cret"), "{remote:?}");
}
