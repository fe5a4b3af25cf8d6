//! The activity `conformance`, which a receiver serves so that `abide conform` can check it.
//!
//! It is test support: it does nothing but count its runs, durably and per tag. The count is a handler's own row,
//! committed with the result.

use std::time::Duration;

use abide_dispatch::{RpcCode, RpcStatus};
use abide_store::rows::{PrivateRows, Row};
use serde_json::{Value, json};

use crate::handler::{Handler, HandlerFailure, HandlerInvocation, HandlerOutput};
use crate::handler_rows::{HandlerRows, HandlerWrite};

/// Name of the activity.
pub const NAME: &str = "conformance";

/// Reason of the failures that `op fail` requests.
pub const REASON: &str = "CONFORMANCE";

const COUNTER_PREFIX: &[u8] = b"conformance/";
const TAG_BYTES_MAX: usize = 128;
const WAIT_MS_MAX: u64 = 30_000;

/// Handler of the activity `conformance`.
#[derive(Debug)]
pub struct ConformanceHandler<S> {
    rows: HandlerRows<S>,
}

impl<S> ConformanceHandler<S> {
    /// Keeps its counters in these rows.
    pub fn new(rows: HandlerRows<S>) -> Self {
        Self { rows }
    }
}

/// The operation that the input requests.
#[derive(Debug)]
enum Op<'i> {
    Run,
    Fail { status: RpcCode, times: u64 },
    Wait { ms: u64 },
    Count,
    Echo(&'i Value),
}

impl<S: PrivateRows + 'static> Handler for ConformanceHandler<S> {
    async fn handle(&self, invocation: HandlerInvocation) -> Result<HandlerOutput, HandlerFailure> {
        let op = parse_op(&invocation.input).ok_or_else(invalid_input)?;
        if let Op::Echo(value) = op {
            return Ok(json!({"value": value}).into());
        }
        let tag = parse_tag(&invocation.input).ok_or_else(invalid_input)?;
        let key = [COUNTER_PREFIX, tag.as_bytes()].concat();
        let row = self.rows.read(&key).await.map_err(|error| {
            tracing::warn!(%error, "cannot read a conformance counter");
            RpcStatus::new(RpcCode::Unavailable, "the counter cannot be read; retry later")
        })?;
        let before = row.as_ref().map_or(0, decode_count);
        if let Op::Count = op {
            return Ok(json!({"runs": before}).into());
        }
        let runs = before.saturating_add(1);
        let write = match row {
            None => HandlerWrite::create(key, runs.to_be_bytes()),
            Some(row) => HandlerWrite::replace(key, row.version, runs.to_be_bytes()),
        };
        match op {
            Op::Fail { status, times } if runs <= times => {
                let status =
                    RpcStatus::new(status, format!("run {runs} fails as requested")).with_reason(REASON);
                return Err(HandlerFailure { status, writes: vec![write] });
            }
            Op::Wait { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
            _ => {}
        }
        Ok(HandlerOutput::with_writes(json!({"runs": runs}), vec![write]))
    }
}

fn parse_op(input: &Value) -> Option<Op<'_>> {
    Some(match input.get("op")?.as_str()? {
        "run" => Op::Run,
        "fail" => {
            let status =
                RpcCode::from_name(input.get("status")?.as_str()?).filter(|code| *code != RpcCode::Ok)?;
            Op::Fail { status, times: input.get("times")?.as_u64()? }
        }
        "wait" => Op::Wait { ms: input.get("ms")?.as_u64().filter(|ms| *ms <= WAIT_MS_MAX)? },
        "count" => Op::Count,
        "echo" => Op::Echo(input.get("value")?),
        _ => return None,
    })
}

fn parse_tag(input: &Value) -> Option<&str> {
    input.get("tag")?.as_str().filter(|tag| !tag.is_empty() && tag.len() <= TAG_BYTES_MAX)
}

fn decode_count(row: &Row) -> u64 {
    row.value.as_slice().try_into().map_or(0, u64::from_be_bytes)
}

fn invalid_input() -> RpcStatus {
    RpcStatus::new(
        RpcCode::InvalidArgument,
        "unsupported input: see the activity `conformance` in the dispatch contract",
    )
}
