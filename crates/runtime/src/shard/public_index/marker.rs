//! What the marker of a changed run says: enough to write its public row again after a crash.

use abide_store::public::{PublicKey, PublicRow};
use serde::{Deserialize, Serialize};

/// The content of a marker. Stored by position: append only.
#[derive(Serialize, Deserialize)]
pub(super) enum IndexMarker {
    /// The current run of an instance: the instance row has its state.
    Current(String),
    /// A run that was replaced: this was its last state.
    Replaced(PublicRow, String),
    /// A run that is purged: its public row is to be removed.
    Purged(PublicKey),
    /// A call or an event was dead-lettered.
    DeadLetter(PublicRow),
}
