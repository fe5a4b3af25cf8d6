//! The receiver under test, as checks see it: new pieces of work, deliveries, and how often something really ran.

use std::sync::atomic::{AtomicU64, Ordering};

use abide_dispatch::Metadata;
use serde_json::{Value, json};

use crate::answer::{self, Answer, Said};
use crate::delivery::{Delivery, Told};
use crate::exchange::Client;
use crate::spelling::spell;
use crate::unmet::{Met, Unmet};
use crate::{Setting, Wire};

/// How far deadlines are from now: no two clocks differ that much.
const FAR_MS: i64 = 3_600_000;

pub(crate) struct Bench {
    client: Client,
    pub(crate) transport: Wire,
    activity: String,
    unique: String,
    now: i64,
    works: AtomicU64,
}

/// A piece of work that nobody has done yet, and a counter that nobody else counts with.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) metadata: Metadata,
    pub(crate) tag: String,
}

impl Work {
    /// What it is told with.
    pub(crate) fn told(&self) -> Told {
        Told::Proper(self.metadata.clone())
    }

    /// Adds one to the counter.
    pub(crate) fn run(&self) -> Delivery {
        Delivery::new(self.told(), json!({"op": "run", "tag": self.tag}))
    }

    /// Adds one to the counter and fails so many times.
    pub(crate) fn fail(&self, status: &str, times: u64) -> Delivery {
        Delivery::new(self.told(), json!({"op": "fail", "tag": self.tag, "status": status, "times": times}))
    }

    /// Adds one to the counter and takes so long.
    pub(crate) fn wait(&self, ms: u64) -> Delivery {
        Delivery::new(self.told(), json!({"op": "wait", "tag": self.tag, "ms": ms}))
    }

    /// Says the same again.
    pub(crate) fn echo(&self, value: &Value) -> Delivery {
        Delivery::new(self.told(), json!({"op": "echo", "value": value}))
    }

    /// The same counter, told with other metadata.
    #[must_use]
    pub(crate) fn with(&self, metadata: Metadata) -> Self {
        Self { metadata, tag: self.tag.clone() }
    }
}

impl Bench {
    pub(crate) fn new(client: Client, setting: &Setting) -> Self {
        Self {
            client,
            transport: setting.transport,
            activity: setting.activity.clone(),
            unique: setting.unique.clone(),
            now: setting.now_epoch_ms,
            works: AtomicU64::new(0),
        }
    }

    /// New work.
    pub(crate) fn work(&self) -> Work {
        let number = self.works.fetch_add(1, Ordering::Relaxed);
        let execution_id = format!("conform-{}/{number}", self.unique);
        let metadata = Metadata {
            correlation_id: execution_id.clone(),
            execution_id,
            idempotency_key: format!("key-{number}"),
            retry_attempt: 0,
            deadline_epoch_ms: Some(self.far_ahead()),
            dispatched_at_epoch_ms: self.now,
            parent_item_id: None,
        };
        Work { metadata, tag: format!("conform-{}-{number}", self.unique) }
    }

    /// A moment that has long passed.
    pub(crate) fn long_ago(&self) -> i64 {
        self.now.saturating_sub(FAR_MS).max(0)
    }

    /// A moment that is far away.
    pub(crate) fn far_ahead(&self) -> i64 {
        self.now.saturating_add(FAR_MS)
    }

    /// Delivers.
    pub(crate) async fn deliver(&self, delivery: &Delivery) -> Met<Answer> {
        let written = spell(self.transport, &self.client.place, &self.activity, delivery);
        let written = written.map_err(|unspeakable| Unmet::Skipped(unspeakable.0))?;
        Ok(answer::read(self.transport, &self.client.exchange(written).await?))
    }

    /// How often something of this counter ran must be this.
    pub(crate) async fn ran(&self, tag: &str, runs: u64) -> Met {
        let asking = Delivery::new(self.work().told(), json!({"op": "count", "tag": tag}));
        let counted = self.deliver(&asking).await?;
        match &counted.said {
            Said::Output(output) if *output == json!({"runs": runs}) => Ok(()),
            Said::Output(output) if output.get("runs").is_some_and(Value::is_u64) => {
                let found = output.get("runs").unwrap_or(&Value::Null);
                Err(Unmet::broken(format!("{runs} run{}", plural(runs)), format!("{found} of them")))
            }
            _ => Err(Unmet::broken(format!("a count of {runs}"), counted)),
        }
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
