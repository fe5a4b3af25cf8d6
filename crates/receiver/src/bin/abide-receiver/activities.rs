//! What this receiver does: the conformance activity, a ledger whose entries can be counted, and the plainest of all activities.

use abide_dispatch::{Code, Status};
use abide_receiver::conformance::{self, Conformance};
use abide_receiver::{Builder, Done, Effect, Effects, Invocation};
use abide_store::rows::PrivateRows;
use serde_json::{Value, json};

/// Where the ledger's entries are among the rows of the handlers.
pub(crate) const LEDGER: &[u8] = b"ledger/";

/// Behind the name of an activity that counts: over these wires the name travels in the message, and a sender that calls it over several
/// knows it by a name for each.
const ALSO: [&str; 2] = ["grpc", "protobuf"];

/// With all of them.
pub(crate) fn all<S: PrivateRows + 'static>(builder: Builder<S>, effects: &Effects<S>) -> Builder<S> {
    let builder = ALSO.into_iter().fold(builder, |builder, wire| {
        builder
            .handler(&format!("{}.{wire}", conformance::NAME), Conformance::new(effects.clone()))
            .handler(&format!("ledger.add.{wire}"), add)
    });
    builder
        .handler(conformance::NAME, Conformance::new(effects.clone()))
        .handler("ledger.add", add)
        .handler("echo", async |invocation: Invocation| Ok::<_, Status>(invocation.input))
        .handler("fail", fail)
        .handler("noop", async |_: Invocation| Ok::<_, Status>(Value::Null))
}

/// One entry more. Its key is drawn, so that work that is done twice has two entries, and can be found.
async fn add(invocation: Invocation) -> Result<Done, Status> {
    let mut drawn = [0; 16];
    getrandom::fill(&mut drawn).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    let metadata = &invocation.metadata;
    let entry = json!({
        "activity": invocation.activity,
        "executionId": metadata.execution_id,
        "idempotencyKey": metadata.idempotency_key,
        "correlationId": metadata.correlation_id,
        "attempt": metadata.retry_attempt,
        "input": invocation.input,
    });
    let row = Effect::create([LEDGER, &drawn].concat(), entry.to_string());
    Ok(Done::with(json!({"added": true}), vec![row]))
}

/// Fails as it is told: `{"status": "UNAVAILABLE", "reason": "…", "message": "…"}`.
async fn fail(invocation: Invocation) -> Result<Value, Status> {
    let field = |name| invocation.input.get(name).and_then(Value::as_str);
    let code = field("status").and_then(Code::from_name).unwrap_or(Code::FailedPrecondition);
    let status = Status::new(code, field("message").unwrap_or("as asked"));
    Err(status.with_reason(field("reason").unwrap_or_default()))
}
