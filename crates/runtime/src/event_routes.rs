//! Stores the event routes: for each type of external event, the entity that records it and what happens to its run.
//!
//! The rows of one partition, which any node may write, are each changed by compare-and-set. Events themselves are not
//! known here, and the existence of the workflow is checked elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::rows::{Batch, CommitOutcome, Partition, PartitionError, PrivateRows, StoreError};
use abide_store::tables::event_routes::{self, EventRouteRow};
use abide_store::tables::{TableError, decode, encode};

#[derive(Debug)]
pub struct EventRoutes<S> {
    store: Arc<S>,
    partition: Partition,
    /// Routes that were read. Used only if no other process can change them.
    cache: Mutex<HashMap<String, Option<EventRouteRow>>>,
    cache_generation: AtomicU64,
}

/// The reason why a route could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum EventRouteError {
    /// Other nodes kept changing it.
    #[error("concurrent change of the route; try again")]
    Busy,
    /// The limit of routes is reached.
    #[error("limit of {max} routes reached", max = ROUTES_MAX)]
    TooMany,
    /// A stored row cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store failed; try again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The most routes in one store.
pub const ROUTES_MAX: usize = 10_000;
/// Tries to change a row that other nodes change at the same time, or whose change had an unknown outcome.
const ATTEMPTS_MAX: usize = 16;

impl<S: PrivateRows> EventRoutes<S> {
    pub fn new(store: Arc<S>) -> Result<Self, PartitionError> {
        let partition = Partition::new("routes")?;
        Ok(Self { store, partition, cache: Mutex::default(), cache_generation: AtomicU64::new(0) })
    }

    /// The route of an event type, for each event that the server receives. Also remembers that a type has none.
    pub async fn get(&self, event_type: &str) -> Result<Option<EventRouteRow>, EventRouteError> {
        if let Some(cached) = self.lock_cache().get(event_type) {
            return Ok(cached.clone());
        }
        let generation = self.cache_generation.load(Ordering::SeqCst);
        let row = self.store.read(&self.partition, &event_routes::key(event_type)).await?;
        let route: Option<EventRouteRow> = row.map(|row| decode(&row.value)).transpose()?;
        if !self.store.capabilities().shared {
            let mut cache = self.lock_cache();
            // Clients choose the types: the cache must not grow without bound.
            if cache.len() >= ROUTES_MAX {
                cache.clear();
            }
            // Not cached if a route was changed during the read.
            if self.cache_generation.load(Ordering::SeqCst) == generation {
                cache.insert(event_type.to_owned(), route.clone());
            }
        }
        Ok(route)
    }

    /// All routes, in the order of event types.
    pub async fn list(&self) -> Result<Vec<(String, EventRouteRow)>, EventRouteError> {
        let mut all = Vec::new();
        let mut next = Some(event_routes::all());
        while let Some(scan) = next {
            let page = self.store.scan(&self.partition, scan).await?;
            for row in page.rows {
                all.push((event_routes::read_key(&row.key)?, decode(&row.value)?));
            }
            next = page.next;
        }
        Ok(all)
    }

    /// Sets the route of an event type, or removes it. False if there was none to remove.
    pub async fn set(
        &self,
        event_type: &str,
        route: Option<&EventRouteRow>,
    ) -> Result<bool, EventRouteError> {
        let key = event_routes::key(event_type);
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.store.read(&self.partition, &key).await?;
            let batch = match (stored, route) {
                (None, None) => return Ok(false),
                // Only a new route counts towards the limit.
                (None, Some(_)) if self.list().await?.len() >= ROUTES_MAX => {
                    return Err(EventRouteError::TooMany);
                }
                (None, Some(route)) => Batch::checked().create(key.clone(), encode(route)),
                (Some(row), Some(route)) => Batch::checked().replace(key.clone(), row.version, encode(route)),
                (Some(row), None) => Batch::checked().delete_if_at(key.clone(), row.version),
            };
            let outcome = self.store.commit(&self.partition, batch).await;
            self.invalidate(event_type);
            match outcome {
                CommitOutcome::Committed(_) => return Ok(true),
                CommitOutcome::Unavailable { reason } => {
                    return Err(StoreError::Unavailable { reason }.into());
                }
                // Read and try again: the request describes a state, so applying it twice is the same as once.
                _ => {}
            }
        }
        Err(EventRouteError::Busy)
    }

    /// Forgets the cached route after a commit that may have changed it, whatever its outcome. The generation keeps a
    /// [`Self::get`] that began before from caching what it has read.
    fn invalidate(&self, event_type: &str) {
        let mut cache = self.lock_cache();
        self.cache_generation.fetch_add(1, Ordering::SeqCst);
        cache.remove(event_type);
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, HashMap<String, Option<EventRouteRow>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
