//! What is asked about deliveries that nobody heard of again, and what is made of the answers.

use serde_json::json;

use super::grpc::Obedient;
use super::parts::*;
use super::server::{Server, reply};
use crate::remote::probe::Probed;
use crate::remote::{Remote, Wire};
use crate::status::{Code, Status};
use crate::transport::{Answer, Call, Failure, Unbounded};
use crate::wire::{About, json as wire_json};

fn probed() -> serde_json::Value {
    json!({"probe": true})
}

async fn asked(remote: &Remote, call: Call) -> Probed {
    remote.probed(&call, tokio::time::Instant::now(), &Unbounded).await
}

#[tokio::test]
async fn a_probe_is_the_same_request_with_a_header_and_takes_what_was_answered_before() {
    for wire in [Wire::Rest, Wire::Protobuf, Wire::Envelope] {
        let server = Server::always(200, "").await;
        let remote = remote_with(wire, server.address, probed());
        deliver(&remote, json!({"n": 1})).await.unwrap();
        let Probed::Finished(Answer::Completed(output)) = asked(&remote, call(json!({"n": 1}))).await else {
            panic!("{wire:?}")
        };
        assert_eq!(*output, json!(null));
        let [mut delivered, mut probed] = <[_; 2]>::try_from(server.requests()).unwrap();
        assert_eq!((delivered.header("x-abide-probe"), probed.header("x-abide-probe")), ("", "1"));
        probed.headers.remove("x-abide-probe");
        delivered.headers.remove("x-abide-probe");
        assert_eq!((delivered.headers, delivered.body), (probed.headers, probed.body), "{wire:?}");
    }
}

#[tokio::test]
async fn what_a_status_says_about_the_work() {
    for code in Code::all().filter(|code| *code != Code::Ok) {
        let body = wire_json::write_failure(
            &Status::new(code, "so"),
            code.http(),
            About { execution_id: "", activity: "" },
        );
        let server = Server::always(code.http(), body).await;
        let probed = asked(&remote_with(Wire::Rest, server.address, probed()), call(json!(1))).await;
        let is_as_expected = match code {
            Code::NotFound => probed == Probed::Unknown,
            Code::Aborted => matches!(probed, Probed::InProgress(_)),
            Code::Unimplemented => probed == Probed::Unsupported,
            Code::Unauthenticated | Code::PermissionDenied => matches!(probed, Probed::Unanswered(_)),
            code if code.is_retryable() => matches!(probed, Probed::Unanswered(_)),
            _ => matches!(&probed, Probed::Finished(Answer::Failed(Failure { retryable: false, .. }))),
        };
        assert!(is_as_expected, "{code}: {probed:?}");
    }
}

#[tokio::test]
async fn over_grpc_it_is_a_method_of_its_own() {
    let server = Server::grpc(Obedient::default()).await;
    let remote = remote_with(Wire::Grpc, server.address, probed());
    assert_eq!(asked(&remote, call(json!(1))).await, Probed::Unknown);
    deliver(&remote, json!(1)).await.unwrap();
    assert!(
        matches!(asked(&remote, call(json!(1))).await, Probed::Finished(Answer::Completed(output)) if *output == json!(7))
    );
    assert_eq!(server.requests().last().unwrap().path, "/abide.dispatch.v1.Activities/Probe");
}

#[tokio::test]
async fn who_did_not_declare_it_is_not_asked() {
    let server = Server::always(200, "").await;
    for wire in Wire::ALL {
        assert_eq!(asked(&remote(wire, server.address), call(json!(1))).await, Probed::Unsupported);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_number_alone_says_nothing_about_the_work() {
    for status in [404, 409, 500, 503] {
        let server = Server::answering(move |_| reply(status, &[], "")).await;
        let probed = asked(&remote_with(Wire::Rest, server.address, probed()), call(json!(1))).await;
        assert!(matches!(probed, Probed::Unanswered(_)), "{status}: {probed:?}");
    }
}

#[tokio::test]
async fn a_delivery_whose_predecessor_may_have_run_asks_first() {
    let (finished, unknown) = ((200, "7"), (404, r#"{"error": {"status": "NOT_FOUND"}}"#));
    let busy = (
        409,
        r#"{"error": {"status": "ABORTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "90s"}]}}"#,
    );
    let away = (503, "");
    for ((status, body), expected, deliveries) in [
        (finished, Ok(json!(7)), 0),
        (unknown, Ok(json!("done")), 1),
        (busy, Err(super::parts::unknown("IN_PROGRESS")), 0),
        (away, Err(super::parts::unknown("Http503")), 0),
        ((404, ""), Ok(json!("done")), 1),
    ] {
        let server = Server::answering(move |received| match received.header("x-abide-probe") {
            "1" => reply(status, &[], body),
            _ => reply(200, &[], r#""done""#),
        })
        .await;
        let mut again = call(json!(1));
        again.ask_first = true;
        let answer = result(remote_with(Wire::Rest, server.address, probed()).deliver(again.clone()).await);
        assert!(answer.as_ref().err().is_none_or(|failure| failure.not_sent), "a question is no delivery");
        if let (409, Err(failure)) = (status, &answer) {
            assert_eq!(failure.retry_after_ms, Some(90_000), "who is at it says when to ask again");
        }
        match expected {
            Ok(output) => assert_eq!(answer, Ok(output), "{status} {body}"),
            Err(failure) => assert_eq!(told(&answer), failure, "{status} {body}"),
        }
        assert_eq!(server.requests().len(), 1 + deliveries, "{status} {body}");
        let plain = result(remote(Wire::Rest, server.address).deliver(again).await);
        assert_eq!(plain, Ok(json!("done")), "who cannot be asked is not");
    }
}
