//! Parents and children, over all shards: whoever waits for a child waits for one that lives, or for something that is on its way.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Report};
use crate::placement::ShardId;
use crate::post::Post;

/// Who waits for a child, who is one, and what is on its way between them; over all shards.
#[derive(Default)]
pub(super) struct Children {
    /// Child id → who waits for it: shard, parent and run.
    pub(super) awaited: BTreeMap<String, (ShardId, String, u32)>,
    /// Live children.
    pub(super) live: BTreeSet<String>,
    /// Children named by messages on their way, and parents told by them.
    on_the_way: BTreeSet<String>,
}

impl Children {
    pub(super) fn note_post(&mut self, to: &str, post: &Post) {
        match post {
            Post::StartChild(_) | Post::StartChildOf { .. } => {
                self.on_the_way.insert(to.to_owned());
            }
            Post::ToParent { parent, .. } => {
                self.on_the_way
                    .insert(format!("{}/{}/{}", parent.instance_id, parent.run.0, parent.command.0));
            }
            Post::TerminateChild { .. } | Post::Continue { .. } | Post::Routed(_) => {}
        }
    }

    pub(super) fn check(&self, report: &mut Report) {
        for (child, (shard, parent, _)) in &self.awaited {
            let (child_id, answer) = child.split_once('\n').unwrap_or((child, ""));
            if !self.live.contains(child_id)
                && !self.on_the_way.contains(child_id)
                && !self.on_the_way.contains(answer)
            {
                let what =
                    format!("it waits for child {child_id}, which is not live, and nothing is on its way");
                report.findings.push(Finding { shard: *shard, instance_id: Some(parent.clone()), what });
            }
        }
    }
}
