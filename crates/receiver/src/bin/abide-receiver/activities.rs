//! The activities of this receiver: `conformance`, a ledger whose entries can be counted, `echo`, `fail` and `noop`.

use abide_dispatch::{RpcCode, RpcStatus};
use abide_receiver::conformance::{self, ConformanceHandler};
use abide_receiver::{HandlerInvocation, HandlerOutput, HandlerRows, HandlerWrite, ReceiverBuilder};
use abide_store::rows::PrivateRows;
use serde_json::{Value, json};

/// Key prefix of the ledger's entries among the handlers' rows.
pub(crate) const LEDGER_PREFIX: &[u8] = b"ledger/";

/// Suffixes of the names of counting activities. Over these wires the message names the activity, so a sender that
/// calls it over several wires declares one name for each.
const WIRE_SUFFIXES: [&str; 2] = ["grpc", "protobuf"];

/// Registers all activities.
pub(crate) fn register_all<S: PrivateRows + 'static>(
    builder: ReceiverBuilder<S>,
    rows: &HandlerRows<S>,
) -> ReceiverBuilder<S> {
    let builder = WIRE_SUFFIXES.into_iter().fold(builder, |builder, wire| {
        builder
            .handler(&format!("{}.{wire}", conformance::NAME), ConformanceHandler::new(rows.clone()))
            .handler(&format!("ledger.add.{wire}"), ledger_add)
    });
    builder
        .handler(conformance::NAME, ConformanceHandler::new(rows.clone()))
        .handler("ledger.add", ledger_add)
        .handler("echo", async |invocation: HandlerInvocation| Ok::<_, RpcStatus>(invocation.input))
        .handler("fail", fail)
        .handler("noop", async |_: HandlerInvocation| Ok::<_, RpcStatus>(Value::Null))
}

/// Adds one entry. Its key is random, so a call that is executed twice has two entries and is found.
async fn ledger_add(invocation: HandlerInvocation) -> Result<HandlerOutput, RpcStatus> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| RpcStatus::new(RpcCode::Internal, error.to_string()))?;
    let metadata = &invocation.metadata;
    let entry = json!({
        "activity": invocation.activity,
        "executionId": metadata.execution_id,
        "idempotencyKey": metadata.idempotency_key,
        "correlationId": metadata.correlation_id,
        "attempt": metadata.retry_attempt,
        "input": invocation.input,
    });
    let row = HandlerWrite::create([LEDGER_PREFIX, &random].concat(), entry.to_string());
    Ok(HandlerOutput::with_writes(json!({"added": true}), vec![row]))
}

/// Fails as the input says: `{"status": "UNAVAILABLE", "reason": "…", "message": "…"}`.
async fn fail(invocation: HandlerInvocation) -> Result<Value, RpcStatus> {
    let field = |name| invocation.input.get(name).and_then(Value::as_str);
    let code = field("status").and_then(RpcCode::from_name).unwrap_or(RpcCode::FailedPrecondition);
    let status = RpcStatus::new(code, field("message").unwrap_or("failed as requested"));
    Err(status.with_reason(field("reason").unwrap_or_default()))
}
