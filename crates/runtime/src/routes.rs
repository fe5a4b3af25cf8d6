//! Routes of events from outside: by type, which entity records them and what its run is told.
//!
//! Rows of one partition that any node may write, each changed by compare-and-set. Knows nothing of events; whether a workflow exists is
//! asked elsewhere.

use std::collections::HashMap;
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
        Ok(Self { store, partition: Partition::new("routes")?, known: Mutex::default() })
    }

    /// The route of an event type.
    pub async fn of(&self, event_type: &str) -> Result<Option<Route>, RouteError> {
        if let Some(known) = self.known().get(event_type) {
            return Ok(known.clone());
        }
        let row = self.store.read(&self.partition, &routes::key(event_type)).await?;
        let route: Option<Route> = row.map(|row| decode(&row.value)).transpose()?;
        if !self.store.capabilities().shared {
            let mut known = self.known();
            // Types come from outside: what was asked for once is not kept for ever.
            if known.len() >= ROUTES_MAX {
                known.clear();
            }
            known.insert(event_type.to_owned(), route.clone());
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
        if route.is_some() && self.all().await?.len() >= ROUTES_MAX {
            return Err(RouteError::TooMany);
        }
        for _ in 0..ATTEMPTS_MAX {
            let there = self.store.read(&self.partition, &key).await?;
            let batch = match (there, route) {
                (None, None) => return Ok(false),
                (None, Some(route)) => Batch::checked().create(key.clone(), encode(route)),
                (Some(row), Some(route)) => Batch::checked().replace(key.clone(), row.version, encode(route)),
                (Some(row), None) => Batch::checked().delete_at(key.clone(), row.version),
            };
            match self.store.commit(&self.partition, batch).await {
                CommitOutcome::Committed(_) => {
                    self.known().remove(event_type);
                    return Ok(true);
                }
                CommitOutcome::Unavailable { reason } => {
                    return Err(StoreError::Unavailable { reason }.into());
                }
                // Looked at again: what is asked for is a state, so doing it twice is doing it once.
                _ => self.known().remove(event_type),
            };
        }
        Err(RouteError::Busy)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Option<Route>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_store::memory::{MemoryStore, Personality};
    use abide_store::tables::routes::RouteAction;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn ready<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("the reference store answers at once"),
        }
    }

    #[test]
    fn a_route_is_as_it_was_set_last_and_gone_when_it_was_taken_away() {
        let routes = Routes::new(Arc::new(MemoryStore::new(Personality::PLAIN))).unwrap();
        let mut route = Route {
            entity_type: "device".to_owned(),
            workflow: None,
            version: None,
            action: RouteAction::Record,
            event_name: None,
            updated_at: 1,
        };
        assert_eq!(ready(routes.of("a")).unwrap(), None);
        assert!(ready(routes.set("a", Some(&route))).unwrap());
        assert_eq!(ready(routes.of("a")).unwrap().as_ref(), Some(&route));
        route.updated_at = 2;
        ready(routes.set("a", Some(&route))).unwrap();
        assert_eq!(ready(routes.of("a")).unwrap().as_ref(), Some(&route));
        assert_eq!(ready(routes.all()).unwrap(), [("a".to_owned(), route)]);
        assert!(ready(routes.set("a", None)).unwrap() && !ready(routes.set("a", None)).unwrap());
        assert_eq!(ready(routes.of("a")).unwrap(), None);
    }

    #[test]
    fn a_change_of_unknown_outcome_is_looked_at_again() {
        let store = Arc::new(MemoryStore::new(Personality::PLAIN));
        let routes = Routes::new(Arc::clone(&store)).unwrap();
        let route = Route {
            entity_type: "device".to_owned(),
            workflow: Some("w".to_owned()),
            version: None,
            action: RouteAction::StartOrRaise,
            event_name: None,
            updated_at: 1,
        };
        for applied in [true, false] {
            store.make_next_commit_unknown(applied);
            assert!(ready(routes.set("a", Some(&route))).unwrap());
            assert_eq!(ready(routes.of("a")).unwrap().as_ref(), Some(&route));
            ready(routes.set("a", None)).unwrap();
        }
    }
}
