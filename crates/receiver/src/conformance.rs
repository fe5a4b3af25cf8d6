//! The activity `conformance`: what a receiver serves so that `abide conform` can find out whether it keeps the contract.
//!
//! Counts, durably and per tag, how often it really ran. The count is a row of the handlers' own, written with the answer.

use std::time::Duration;

use abide_dispatch::{Code, Status};
use abide_store::rows::{PrivateRows, Row};
use serde_json::{Value, json};

use crate::effects::{Effect, Effects};
use crate::handler::{Done, Failed, Handler, Invocation};

/// What the activity is called.
pub const NAME: &str = "conformance";

/// Reason of the failures that are asked for.
pub const REASON: &str = "CONFORMANCE";

const ROWS: &[u8] = b"conformance/";
const TAG_BYTES_MAX: usize = 128;
const WAIT_MS_MAX: u64 = 30_000;

/// Serves the activity.
#[derive(Debug)]
pub struct Conformance<S> {
    effects: Effects<S>,
}

impl<S> Conformance<S> {
    /// With counters among these rows.
    pub fn new(effects: Effects<S>) -> Self {
        Self { effects }
    }
}

/// What it is asked to do.
#[derive(Debug)]
enum Op<'i> {
    Run,
    Fail { status: Code, times: u64 },
    Wait { ms: u64 },
    Count,
    Echo(&'i Value),
}

impl<S: PrivateRows + 'static> Handler for Conformance<S> {
    async fn handle(&self, invocation: Invocation) -> Result<Done, Failed> {
        let op = op(&invocation.input).ok_or_else(unclear)?;
        if let Op::Echo(value) = op {
            return Ok(json!({"value": value}).into());
        }
        let tag = tag(&invocation.input).ok_or_else(unclear)?;
        let key = [ROWS, tag.as_bytes()].concat();
        let row = self.effects.read(&key).await.map_err(|error| {
            tracing::warn!(%error, "a counter cannot be read");
            Status::new(Code::Unavailable, "the counter cannot be read now")
        })?;
        let before = row.as_ref().map_or(0, count);
        if let Op::Count = op {
            return Ok(json!({"runs": before}).into());
        }
        let runs = before.saturating_add(1);
        let added = match row {
            None => Effect::create(key, runs.to_be_bytes()),
            Some(row) => Effect::replace(key, row.version, runs.to_be_bytes()),
        };
        match op {
            Op::Fail { status, times } if runs <= times => {
                let status = Status::new(status, format!("run {runs} fails, as asked")).with_reason(REASON);
                return Err(Failed { status, effects: vec![added] });
            }
            Op::Wait { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
            _ => {}
        }
        Ok(Done::with(json!({"runs": runs}), vec![added]))
    }
}

fn op(input: &Value) -> Option<Op<'_>> {
    Some(match input.get("op")?.as_str()? {
        "run" => Op::Run,
        "fail" => {
            let status = Code::from_name(input.get("status")?.as_str()?).filter(|code| *code != Code::Ok)?;
            Op::Fail { status, times: input.get("times")?.as_u64()? }
        }
        "wait" => Op::Wait { ms: input.get("ms")?.as_u64().filter(|ms| *ms <= WAIT_MS_MAX)? },
        "count" => Op::Count,
        "echo" => Op::Echo(input.get("value")?),
        _ => return None,
    })
}

fn tag(input: &Value) -> Option<&str> {
    input.get("tag")?.as_str().filter(|tag| !tag.is_empty() && tag.len() <= TAG_BYTES_MAX)
}

fn count(row: &Row) -> u64 {
    row.value.as_slice().try_into().map_or(0, u64::from_be_bytes)
}

fn unclear() -> Status {
    Status::new(Code::InvalidArgument, "the input is none that this activity knows")
}
