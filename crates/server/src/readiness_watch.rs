//! Logs when requests cannot be served, with the reason, and when they can be again: a full disk, a store that failed,
//! a shard that does not start.
//!
//! A log line per episode, not per request. It changes nothing; `/readyz` states the same reason.

use std::sync::Arc;
use std::time::Duration;

use abide_store_embedded::EmbeddedStore;

use crate::app::App;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the server may take to become ready without a line: opening shards takes a moment.
const START_GRACE: Duration = Duration::from_secs(5);

/// Checks until the server stops. Each check also lets a failed store try whether it can be reopened.
pub(crate) async fn watch_readiness(app: App<EmbeddedStore>) {
    let (mut readiness, mut records) = (Episodes::default(), Episodes::default());
    let stop = app.wait_for_stop();
    tokio::pin!(stop);
    tokio::select! {
        () = &mut stop => return,
        () = app.ready() => {}
        () = tokio::time::sleep(START_GRACE) => {}
    }
    loop {
        match readiness.observe(app.readiness().await.err()) {
            Some(Change::Begins(reason)) => tracing::error!(reason, "not ready: requests are refused"),
            Some(Change::Ends) => tracing::info!("ready again: requests are served"),
            None => {}
        }
        let store = Arc::clone(app.node().store());
        match records.observe(store.length_record_failure()) {
            Some(Change::Begins(reason)) => {
                tracing::error!(reason, "a crash may lose commits of the journal's end unnoticed");
            }
            Some(Change::Ends) => tracing::info!("the synced length of the journal is recorded again"),
            None => {}
        }
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

/// What to log.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    Begins(String),
    Ends,
}

/// Turns repeated observations into the changes between them.
#[derive(Debug, Default)]
struct Episodes {
    /// The reason that was logged, without its figures.
    logged: Option<String>,
}

impl Episodes {
    /// A failure, or none. Figures in a reason, such as the number of free bytes, make no new episode.
    fn observe(&mut self, failure: Option<String>) -> Option<Change> {
        let Some(reason) = failure else {
            return self.logged.take().map(|_| Change::Ends);
        };
        let words: String = reason.chars().filter(|char| !char.is_ascii_digit()).collect();
        if self.logged.as_ref() == Some(&words) {
            return None;
        }
        self.logged = Some(words);
        Some(Change::Begins(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(free: u64) -> Option<String> {
        Some(format!("the disk is full: {free} bytes are free"))
    }

    #[test]
    fn an_episode_has_one_line_when_it_begins_and_one_when_it_ends() {
        let mut episodes = Episodes::default();
        assert_eq!(episodes.observe(None), None);
        assert_eq!(episodes.observe(full(10)), Some(Change::Begins(full(10).unwrap())));
        assert_eq!(episodes.observe(full(9)), None, "only a figure has changed");
        let other = "a write or sync failed".to_owned();
        assert_eq!(episodes.observe(Some(other.clone())), Some(Change::Begins(other)), "another reason");
        assert_eq!(episodes.observe(None), Some(Change::Ends));
        assert_eq!(episodes.observe(None), None);
        assert_eq!(episodes.observe(full(8)), Some(Change::Begins(full(8).unwrap())), "a second episode");
    }
}
