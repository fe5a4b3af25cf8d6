//! Durations as they are written in files: ISO-8601.

use abide_workflow::Duration;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(duration)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    // Does not say what was there instead, as nothing that is told of a file does.
    Duration::parse(&text)
        .map_err(|_| D::Error::custom("an ISO-8601 duration such as PT30S, PT48H or P7D is expected"))
}
