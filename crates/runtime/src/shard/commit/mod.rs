//! The commits of a shard: the batch that units of work are merged into, and the pipeline that commits one batch after
//! the other.
//!
//! Nothing here knows what rows mean, or does what waits for a commit: the root does.

pub(super) mod commit_pipeline;
pub(super) mod commit_queue;
