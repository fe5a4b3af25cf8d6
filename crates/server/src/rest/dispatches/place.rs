//! Where a list of calls goes on, as a token. It is nobody's secret: whoever may list calls may list all of them. It is good for the same
//! question only, because every walk has places of its own.

use abide_dispatch::identity;
use abide_runtime::run::{OpenPlace, SettledPlace};
use abide_store::public::{Position, PublicKey};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::walk::Question;
use crate::error::ApiError;
use crate::rest::page::not_a_token;

/// Where a list goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Place {
    /// Among the open calls of one run, after this one.
    OpenOfRun { run: u32, after: Call },
    /// Among the settled calls of one run, with this one.
    SettledOfRun { run: u32, at: Settled },
    /// Among the open calls of all shards: in this one, after this call.
    OpenOfShard { shard: u32, after: Option<Call> },
    /// Among the settled calls of all runs: in this one, with this call.
    SettledOfRuns { run: Run, at: Settled },
}

/// An open call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    run: u64,
    key: [u8; 32],
}

/// A settled call of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Settled {
    page: u64,
    call: u32,
}

/// A run in the public table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    at: i64,
    partition: String,
    row: String,
}

impl Place {
    pub(super) fn seal(&self, question: &Question) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode(format!("{}{text}", mark(question)))
    }

    pub(super) fn open(token: &str, question: &Question) -> Result<Self, ApiError> {
        let read = || {
            let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
            serde_json::from_str(text.strip_prefix(&mark(question))?).ok()
        };
        read().ok_or_else(not_a_token)
    }
}

/// Tells one question from another.
fn mark(question: &Question) -> String {
    let mut mark = identity::digest(format!("{question:?}").as_bytes());
    mark.truncate(16);
    mark
}

impl From<OpenPlace> for Call {
    fn from(OpenPlace { run, key }: OpenPlace) -> Self {
        Self { run, key }
    }
}

impl From<Call> for OpenPlace {
    fn from(Call { run, key }: Call) -> Self {
        Self { run, key }
    }
}

impl From<SettledPlace> for Settled {
    fn from(SettledPlace { page, call }: SettledPlace) -> Self {
        Self { page, call }
    }
}

impl From<Settled> for SettledPlace {
    fn from(Settled { page, call }: Settled) -> Self {
        Self { page, call }
    }
}

impl From<Position> for Run {
    fn from(Position { at, key: PublicKey { partition, row } }: Position) -> Self {
        Self { at, partition, row }
    }
}

impl From<Run> for Position {
    fn from(Run { at, partition, row }: Run) -> Self {
        Self { at, key: PublicKey { partition, row } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place_for_its_own_question_and_anything_else_is_refused() {
        let question = Question::default();
        let other = Question { activity: Some("work".to_owned()), ..Question::default() };
        let (after, at) = (Call { run: u64::MAX, key: [7; 32] }, Settled { page: u64::MAX, call: 3 });
        let run = Run { at: i64::MIN, partition: "a".to_owned(), row: "1".to_owned() };
        for place in [
            Place::OpenOfRun { run: 1, after },
            Place::SettledOfRun { run: 1, at },
            Place::OpenOfShard { shard: 7, after: None },
            Place::SettledOfRuns { run, at },
        ] {
            let token = place.seal(&question);
            assert!(token.len() < 1_024, "{token}");
            assert_eq!(Place::open(&token, &question), Ok(place));
            assert!(Place::open(&token, &other).is_err());
        }
        let foreign = BASE64_URL_SAFE_NO_PAD.encode(format!("{}{{}}", mark(&question)));
        for token in ["", "x", "////", "???", &foreign] {
            assert!(Place::open(token, &question).is_err(), "{token}");
        }
    }
}
