//! Encoding of the parts and of their keys. This file knows nothing of their meaning.
//!
//! A part is one format byte, then postcard; JSON inside is stored as text, which keeps every number unchanged. Format
//! and rules of change: docs/formats/instance.md.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use abide_ids::Digest;

use super::{CorruptInstance, PartKey, SlotName};
use crate::ids::BranchId;

/// The format this code writes. Readers reject a higher one.
pub const FORMAT: u8 = 1;

pub(crate) fn encode<T: Serialize>(part: &T) -> Result<Vec<u8>, CorruptInstance> {
    let bytes = vec![FORMAT];
    postcard::to_extend(part, bytes)
        .map_err(|error| CorruptInstance::new(format!("cannot encode a part: {error}")))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CorruptInstance> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => match postcard::take_from_bytes(rest) {
            Ok((part, [])) => Ok(part),
            Ok((_, rest)) => Err(CorruptInstance::new(format!("{} bytes remain after the part", rest.len()))),
            Err(error) => Err(CorruptInstance::new(error.to_string())),
        },
        Some((0, _)) => Err(CorruptInstance::new("invalid format 0")),
        Some((&format, _)) => {
            Err(CorruptInstance::new(format!("format {format} is newer than {FORMAT}, the newest supported")))
        }
        None => Err(CorruptInstance::new("empty part")),
    }
}

/// Serde functions for fields that hold JSON.
pub(crate) mod json {
    use super::*;
    use crate::json::Json;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Json, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&**value).map_err(serde::ser::Error::custom)?;
        text.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Json::new).map_err(serde::de::Error::custom)
    }
}

/// Serde functions for fields that may hold JSON.
pub(crate) mod optional_json {
    use super::*;
    use crate::json::Json;
    use serde::{Deserializer, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Holder(#[serde(with = "super::json")] Json);

    #[expect(clippy::ref_option, reason = "the signature serde requires")]
    pub(crate) fn serialize<S: Serializer>(value: &Option<Json>, serializer: S) -> Result<S::Ok, S::Error> {
        value.clone().map(Holder).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
        Ok(Option::<Holder>::deserialize(deserializer)?.map(|holder| holder.0))
    }
}

/// First byte of a key. Append only.
mod tag {
    pub(super) const ORIGIN: u8 = 1;
    pub(super) const HEADER: u8 = 2;
    pub(super) const BRANCH: u8 = 3;
    pub(super) const SLOT: u8 = 4;
    pub(super) const BUFFERED_EVENT: u8 = 5;
    pub(super) const COMPENSATION: u8 = 6;
    pub(super) const HELD_MESSAGE: u8 = 7;
    pub(super) const OUTCOME: u8 = 8;
    pub(super) const UNANSWERED_CALL: u8 = 9;
    pub(super) const REWINDING: u8 = 10;
    pub(super) const COMPENSATION_TALLY: u8 = 11;
    pub(super) const FAILED_COMPENSATION: u8 = 12;
    pub(super) const COMPENSATION_RETRY: u8 = 13;

    pub(super) const SLOT_STATE: u8 = 1;
    pub(super) const SLOT_EVENT: u8 = 2;
    pub(super) const SLOT_ERROR: u8 = 3;
    pub(super) const SLOT_ITEMS: u8 = 4;
    pub(super) const SLOT_RESULTS: u8 = 5;
    pub(super) const SLOT_RESULT: u8 = 6;
}

impl PartKey {
    /// The key's bytes: unique, and parts of one kind are adjacent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        match self {
            Self::Origin => bytes.push(tag::ORIGIN),
            Self::Header => bytes.push(tag::HEADER),
            Self::Branch(branch) => {
                bytes.push(tag::BRANCH);
                bytes.extend(branch.0.to_be_bytes());
            }
            Self::Slot(branch, name) => {
                bytes.push(tag::SLOT);
                bytes.extend(branch.0.to_be_bytes());
                match name {
                    SlotName::State(name) => {
                        bytes.push(tag::SLOT_STATE);
                        bytes.extend(name.as_bytes());
                    }
                    SlotName::Event => bytes.push(tag::SLOT_EVENT),
                    SlotName::Error => bytes.push(tag::SLOT_ERROR),
                    SlotName::Items => bytes.push(tag::SLOT_ITEMS),
                    SlotName::Results => bytes.push(tag::SLOT_RESULTS),
                    SlotName::Result => bytes.push(tag::SLOT_RESULT),
                }
            }
            Self::BufferedEvent(name, arrival) => {
                bytes.push(tag::BUFFERED_EVENT);
                bytes.extend(arrival.to_be_bytes());
                bytes.extend(name.as_bytes());
            }
            Self::Compensation(arrival) => {
                bytes.push(tag::COMPENSATION);
                bytes.extend(arrival.to_be_bytes());
            }
            Self::HeldMessage(arrival) => {
                bytes.push(tag::HELD_MESSAGE);
                bytes.extend(arrival.to_be_bytes());
            }
            Self::Outcome => bytes.push(tag::OUTCOME),
            Self::UnansweredCall(place) => {
                bytes.push(tag::UNANSWERED_CALL);
                bytes.extend(place.as_bytes());
            }
            Self::Rewinding => bytes.push(tag::REWINDING),
            Self::CompensationTally => bytes.push(tag::COMPENSATION_TALLY),
            Self::FailedCompensation(arrival) => {
                bytes.push(tag::FAILED_COMPENSATION);
                bytes.extend(arrival.to_be_bytes());
            }
            Self::CompensationRetry => bytes.push(tag::COMPENSATION_RETRY),
        }
        bytes
    }

    /// Decodes the bytes written by [`PartKey::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CorruptInstance> {
        Self::try_from_bytes(bytes)
            .ok_or_else(|| CorruptInstance::new(format!("invalid part key {bytes:02x?}")))
    }

    fn try_from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        let exactly = |key: Self, rest: &[u8]| rest.is_empty().then_some(key);
        match first {
            tag::ORIGIN => exactly(Self::Origin, rest),
            tag::HEADER => exactly(Self::Header, rest),
            tag::OUTCOME => exactly(Self::Outcome, rest),
            tag::REWINDING => exactly(Self::Rewinding, rest),
            tag::COMPENSATION_TALLY => exactly(Self::CompensationTally, rest),
            tag::COMPENSATION_RETRY => exactly(Self::CompensationRetry, rest),
            tag::FAILED_COMPENSATION => {
                let (arrival, rest) = rest.split_first_chunk::<8>()?;
                exactly(Self::FailedCompensation(u64::from_be_bytes(*arrival)), rest)
            }
            tag::UNANSWERED_CALL => {
                let (place, rest) = rest.split_first_chunk::<32>()?;
                exactly(Self::UnansweredCall(Digest(*place)), rest)
            }
            tag::BRANCH => {
                let (id, rest) = rest.split_first_chunk::<4>()?;
                exactly(Self::Branch(BranchId(u32::from_be_bytes(*id))), rest)
            }
            tag::SLOT => {
                let (id, rest) = rest.split_first_chunk::<4>()?;
                let (&kind, rest) = rest.split_first()?;
                let name = match kind {
                    tag::SLOT_STATE => SlotName::State(std::str::from_utf8(rest).ok()?.to_owned()),
                    tag::SLOT_EVENT => SlotName::Event,
                    tag::SLOT_ERROR => SlotName::Error,
                    tag::SLOT_ITEMS => SlotName::Items,
                    tag::SLOT_RESULTS => SlotName::Results,
                    tag::SLOT_RESULT => SlotName::Result,
                    _ => return None,
                };
                if !rest.is_empty() && kind != tag::SLOT_STATE {
                    return None;
                }
                Some(Self::Slot(BranchId(u32::from_be_bytes(*id)), name))
            }
            tag::BUFFERED_EVENT => {
                let (arrival, rest) = rest.split_first_chunk::<8>()?;
                let name = std::str::from_utf8(rest).ok()?.to_owned();
                Some(Self::BufferedEvent(name, u64::from_be_bytes(*arrival)))
            }
            tag::COMPENSATION | tag::HELD_MESSAGE => {
                let (arrival, rest) = rest.split_first_chunk::<8>()?;
                let arrival = u64::from_be_bytes(*arrival);
                exactly(
                    if first == tag::COMPENSATION {
                        Self::Compensation(arrival)
                    } else {
                        Self::HeldMessage(arrival)
                    },
                    rest,
                )
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::ids::CommandId;
    use crate::instance::{
        AfterCollapse, CallProgress, CompensationProgress, Ending, EscalationStage, FanOutProgress, Outcome,
        Phase, Status,
    };
    use crate::message::Message;

    /// The byte after the format byte: the variant's number.
    fn number<T: Serialize>(value: &T) -> u8 {
        encode(value).unwrap()[1]
    }

    #[test]
    fn variants_keep_their_numbers() {
        let call = CallProgress { call: CommandId(1), failures: 0, deadline: None, attempt: 0 };
        let compensation = CompensationProgress {
            position: 0,
            record: None,
            call: None,
            succeeded: 0,
            failed: 0,
            then_fail: None,
        };
        let fan_out =
            FanOutProgress { total: 0, reached_concurrency: false, spawned: 0, succeeded: 0, failed: 0 };
        let failure = || Failure::permanent("X", "");
        let phases = [
            Phase::Ready,
            Phase::Task(call),
            Phase::Timer { timer: CommandId(1) },
            Phase::Event { name: String::new(), since: 0, timer: None },
            Phase::Child { child: CommandId(1), timer: None },
            Phase::FanOut(fan_out),
            Phase::Collapsing(AfterCollapse::Join),
            Phase::Compensating(compensation),
            Phase::Notifying(call),
            Phase::Succeeded,
            Phase::Failed(failure()),
        ];
        assert_eq!(phases.iter().map(number).collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
        let actions = [
            AfterCollapse::Join,
            AfterCollapse::Raise(failure()),
            AfterCollapse::FailBranch(failure()),
            AfterCollapse::Escalate,
            AfterCollapse::Compensate(failure()),
            AfterCollapse::FailRun(failure()),
        ];
        assert_eq!(actions.iter().map(number).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
        let statuses = [
            Status::Running,
            Status::Completed,
            Status::ContinuedAsNew,
            Status::Failed,
            Status::Canceled,
            Status::Terminated,
            Status::Pending,
            Status::Suspended,
        ];
        assert_eq!(
            statuses.iter().map(number).collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>(),
            "the protocol's numbers"
        );
        let escalations =
            [EscalationStage::Notifying, EscalationStage::Recovering, EscalationStage::Compensating];
        assert_eq!(escalations.iter().map(number).collect::<Vec<_>>(), [0, 1, 2]);
        let endings = [Ending::Fail(failure()), Ending::Terminate(String::new())];
        assert_eq!(endings.iter().map(number).collect::<Vec<_>>(), [0, 1]);
        let json = || crate::json::Json::default();
        let outcomes = [
            Outcome::Completed(json()),
            Outcome::Failed(failure()),
            Outcome::Terminated(String::new()),
            Outcome::ContinuedAsNew(json()),
        ];
        assert_eq!(outcomes.iter().map(number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let command = CommandId(1);
        let messages = [
            Message::ActivityCompleted { command, result: json() },
            Message::ActivityFailed { command, attempt: 0, failure: failure() },
            Message::TimerFired { timer: command },
            Message::EventRaised { name: String::new(), payload: json() },
            Message::ChildCompleted { command, output: json() },
            Message::ChildFailed { command, failure: failure() },
            Message::Suspend { reason: String::new() },
            Message::Resume { reason: String::new() },
            Message::Terminate { reason: String::new() },
            Message::Rewind { reason: String::new() },
            Message::ActivityResultRejected { command, failure: failure() },
            Message::ActivityDeferred {
                command,
                attempt: 0,
                failure: failure(),
                not_before: crate::time::Timestamp(0),
                possibly_sent: false,
            },
            Message::ActivityUnanswered {
                command,
                attempt: 0,
                failure: failure(),
                not_before: None,
                possibly_sent: false,
            },
            Message::RewindWithNewKeys { reason: String::new() },
            Message::TerminateTree { reason: String::new() },
            Message::RetryCompensation { reason: String::new() },
        ];
        assert_eq!(messages.iter().map(number).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn fields_keep_their_order() {
        let text = |value: &Phase| {
            encode(value).unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let call = CallProgress {
            call: CommandId(1),
            failures: 2,
            deadline: Some(crate::time::Timestamp(3)),
            attempt: 5,
        };
        assert_eq!(text(&Phase::Task(call)), "01010102010605");
        let fan_out =
            FanOutProgress { total: 1, reached_concurrency: true, spawned: 2, succeeded: 3, failed: 4 };
        assert_eq!(text(&Phase::FanOut(fan_out)), "01050101020304");
        let compensation = CompensationProgress {
            position: 1,
            record: Some(2),
            call: Some(call),
            succeeded: 3,
            failed: 4,
            then_fail: Some(Failure {
                code: "C".into(),
                message: "M".into(),
                state: Some("S".into()),
                retryable: true,
            }),
        };
        assert_eq!(
            text(&Phase::Compensating(compensation)),
            "0107010102010102010605030401014301".to_owned() + "4d01015301"
        );
    }
}
