//! The continuation token of a list of calls. It needs no protection: a client that may list calls may list all of
//! them.
//!
//! A token is valid only for the filter it was made for, because each kind of query has positions of its own. Reads no
//! calls itself.

use abide_ids::{Digest, IdempotencyKey, PageNumber, RunId, RunNumber, Timestamp};
use abide_runtime::run::{OpenCallCursor, SettledCallCursor};
use abide_store::public::{PublicKey, RowPosition};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::query::CallFilter;
use crate::error::ApiError;
use crate::rest::page::invalid_token;

/// The position where a list continues.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum CallCursor {
    /// After this open call of one run.
    OpenOfRun { run: RunNumber, after: OpenCallPosition },
    /// At this settled call of one run.
    SettledOfRun { run: RunNumber, at: SettledCallPosition },
    /// Of the open calls of all shards: in this shard, after this call.
    OpenOfShard { shard: u32, after: Option<OpenCallPosition> },
    /// Of the settled calls of all runs: in this run, at this call.
    SettledOfRuns { run: RunPosition, at: SettledCallPosition },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct OpenCallPosition {
    run: RunId,
    key: IdempotencyKey,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SettledCallPosition {
    page: PageNumber,
    call: u32,
}

/// A run in the public table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RunPosition {
    at: Timestamp,
    partition: String,
    row: String,
}

impl CallCursor {
    pub(super) fn encode(&self, filter: &CallFilter) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode(format!("{}{text}", filter_fingerprint(filter)))
    }

    pub(super) fn decode(token: &str, filter: &CallFilter) -> Result<Self, ApiError> {
        let read = || {
            let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
            serde_json::from_str(text.strip_prefix(&filter_fingerprint(filter))?).ok()
        };
        read().ok_or_else(invalid_token)
    }
}

/// Distinguishes filters from each other.
fn filter_fingerprint(filter: &CallFilter) -> String {
    let mut fingerprint = Digest::of(format!("{filter:?}").as_bytes()).to_string();
    fingerprint.truncate(16);
    fingerprint
}

impl From<OpenCallCursor> for OpenCallPosition {
    fn from(OpenCallCursor { run_id: run, key }: OpenCallCursor) -> Self {
        Self { run, key }
    }
}

impl From<OpenCallPosition> for OpenCallCursor {
    fn from(OpenCallPosition { run, key }: OpenCallPosition) -> Self {
        Self { run_id: run, key }
    }
}

impl From<SettledCallCursor> for SettledCallPosition {
    fn from(SettledCallCursor { page, call_offset: call }: SettledCallCursor) -> Self {
        Self { page, call }
    }
}

impl From<SettledCallPosition> for SettledCallCursor {
    fn from(SettledCallPosition { page, call }: SettledCallPosition) -> Self {
        Self { page, call_offset: call }
    }
}

impl From<RowPosition> for RunPosition {
    fn from(RowPosition { at, key: PublicKey { partition, row } }: RowPosition) -> Self {
        Self { at, partition, row }
    }
}

impl From<RunPosition> for RowPosition {
    fn from(RunPosition { at, partition, row }: RunPosition) -> Self {
        Self { at, key: PublicKey { partition, row } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_position_for_its_own_filter_only() {
        let filter = CallFilter::default();
        let other = CallFilter { activity: Some("work".to_owned()), ..CallFilter::default() };
        let after = OpenCallPosition { run: RunId(u64::MAX), key: IdempotencyKey([7; 32]) };
        let at = SettledCallPosition { page: PageNumber(u64::MAX), call: 3 };
        let run = RunPosition { at: Timestamp::MIN, partition: "a".to_owned(), row: "1".to_owned() };
        for cursor in [
            CallCursor::OpenOfRun { run: RunNumber(1), after },
            CallCursor::SettledOfRun { run: RunNumber(1), at },
            CallCursor::OpenOfShard { shard: 7, after: None },
            CallCursor::SettledOfRuns { run, at },
        ] {
            let token = cursor.encode(&filter);
            assert!(token.len() < 1_024, "{token}");
            assert_eq!(CallCursor::decode(&token, &filter), Ok(cursor));
            assert!(CallCursor::decode(&token, &other).is_err());
        }
        let foreign = BASE64_URL_SAFE_NO_PAD.encode(format!("{}{{}}", filter_fingerprint(&filter)));
        for token in ["", "x", "////", "???", &foreign] {
            assert!(CallCursor::decode(token, &filter).is_err(), "{token}");
        }
    }
}
