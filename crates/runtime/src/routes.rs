//! Routes of events from outside: by type, which entity records them and what its run is told.
//!
//! Rows of one partition that any node may write, each changed by compare-and-set. Knows nothing of events; whether a workflow exists is
//! asked elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::rows::{Batch, CommitOutcome, Partition, PartitionError, PrivateRows, StoreError};
use abide_store::tables::routes::{self, Route};
use abide_store::tables::{TableError, decode, encode};

/// The routes of one store.
#[derive(Debug)]
pub struct Routes<S> {
    store: Arc<S>,
    partition: Partition,
    /// What was read, where nobody else can change it.
    known: Mutex<HashMap<String, Option<Route>>>,
    changes: AtomicU64,
}

/// Why a route could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// Others changed it again and again.
    #[error("the route is being changed by others; try again")]
    Busy,
    /// There are as many as there may be.
    #[error("there are {max} routes already", max = ROUTES_MAX)]
    TooMany,
    /// A stored row cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Routes of one store.
pub const ROUTES_MAX: usize = 10_000;
/// Attempts to change a row that others change at the same time, or whose outcome was unknown.
const ATTEMPTS_MAX: usize = 16;

impl<S: PrivateRows> Routes<S> {
    /// The routes in this store.
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        let partition = Partition::new("routes")?;
        Ok(Self { store, partition, known: Mutex::default(), changes: AtomicU64::new(0) })
    }

    /// The route of an event type.
    pub async fn of(&self, event_type: &str) -> Result<Option<Route>, RouteError> {
        if let Some(known) = self.known().get(event_type) {
            return Ok(known.clone());
        }
        let changes = self.changes.load(Ordering::SeqCst);
        let row = self.store.read(&self.partition, &routes::key(event_type)).await?;
        let route: Option<Route> = row.map(|row| decode(&row.value)).transpose()?;
        if !self.store.capabilities().shared {
            let mut known = self.known();
            // Types come from outside: what was asked for once is not kept for ever.
            if known.len() >= ROUTES_MAX {
                known.clear();
            }
            // Not if one was changed while this one was being read.
            if self.changes.load(Ordering::SeqCst) == changes {
                known.insert(event_type.to_owned(), route.clone());
            }
        }
        Ok(route)
    }

    /// All routes, in the order of event types.
    pub async fn all(&self) -> Result<Vec<(String, Route)>, RouteError> {
        let mut all = Vec::new();
        let mut next = Some(routes::all());
        while let Some(scan) = next {
            let page = self.store.scan(&self.partition, scan).await?;
            for row in page.rows {
                all.push((routes::read_key(&row.key)?, decode(&row.value)?));
            }
            next = page.next;
        }
        Ok(all)
    }

    /// Sets the route of an event type, or takes it away. False if there was none to take away.
    pub async fn set(&self, event_type: &str, route: Option<&Route>) -> Result<bool, RouteError> {
        let key = routes::key(event_type);
        for _ in 0..ATTEMPTS_MAX {
            let there = self.store.read(&self.partition, &key).await?;
            let batch = match (there, route) {
                (None, None) => return Ok(false),
                // Only a new one takes a place.
                (None, Some(_)) if self.all().await?.len() >= ROUTES_MAX => return Err(RouteError::TooMany),
                (None, Some(route)) => Batch::checked().create(key.clone(), encode(route)),
                (Some(row), Some(route)) => Batch::checked().replace(key.clone(), row.version, encode(route)),
                (Some(row), None) => Batch::checked().delete_at(key.clone(), row.version),
            };
            let outcome = self.store.commit(&self.partition, batch).await;
            self.forget(event_type);
            match outcome {
                CommitOutcome::Committed(_) => return Ok(true),
                CommitOutcome::Unavailable { reason } => {
                    return Err(StoreError::Unavailable { reason }.into());
                }
                // Looked at again: what is asked for is a state, so doing it twice is doing it once.
                _ => {}
            }
        }
        Err(RouteError::Busy)
    }

    fn forget(&self, event_type: &str) {
        let mut known = self.known();
        self.changes.fetch_add(1, Ordering::SeqCst);
        known.remove(event_type);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Option<Route>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
