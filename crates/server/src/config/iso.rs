//! Reads and writes durations in configuration files as ISO-8601.

use abide_workflow::Duration;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(duration)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    // Does not quote the value: no message about a configuration file does.
    Duration::parse(&text)
        .map_err(|_| D::Error::custom("must be an ISO-8601 duration such as PT30S, PT48H or P7D"))
}
