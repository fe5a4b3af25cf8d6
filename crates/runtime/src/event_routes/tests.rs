//! Event routes: setting, replacing and removing them, and the cache.

use super::*;
use abide_ids::Timestamp;
use abide_store::change_notify::ChangeTick;
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::rows::{Capabilities, Key, Row, Scan, ScanPage, StoreHealth};
use abide_store::tables::event_routes::EventRouteAction;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the reference store is never pending"),
    }
}

#[test]
fn a_route_has_its_last_value_and_is_gone_after_it_was_removed() {
    let routes = EventRoutes::new(Arc::new(MemoryStore::new(BackendProfile::PLAIN))).unwrap();
    let mut route = EventRouteRow {
        entity_type: "device".to_owned(),
        workflow: None,
        version: None,
        action: EventRouteAction::Record,
        event_name: None,
        updated_at: Timestamp(1),
    };
    assert_eq!(ready(routes.get("a")).unwrap(), None);
    assert!(ready(routes.set("a", Some(&route))).unwrap());
    assert_eq!(ready(routes.get("a")).unwrap().as_ref(), Some(&route));
    route.updated_at = Timestamp(2);
    ready(routes.set("a", Some(&route))).unwrap();
    assert_eq!(ready(routes.get("a")).unwrap().as_ref(), Some(&route));
    assert_eq!(ready(routes.list()).unwrap(), [("a".to_owned(), route)]);
    assert!(ready(routes.set("a", None)).unwrap() && !ready(routes.set("a", None)).unwrap());
    assert_eq!(ready(routes.get("a")).unwrap(), None);
}

#[test]
fn a_change_of_unknown_outcome_is_checked_and_tried_again() {
    let store = Arc::new(MemoryStore::new(BackendProfile::PLAIN));
    let routes = EventRoutes::new(Arc::clone(&store)).unwrap();
    let route = EventRouteRow {
        entity_type: "device".to_owned(),
        workflow: Some("w".to_owned()),
        version: None,
        action: EventRouteAction::StartOrRaise,
        event_name: None,
        updated_at: Timestamp(1),
    };
    for applied in [true, false] {
        store.make_next_commit_unknown(applied);
        assert!(ready(routes.set("a", Some(&route))).unwrap());
        assert_eq!(ready(routes.get("a")).unwrap().as_ref(), Some(&route));
        ready(routes.set("a", None)).unwrap();
    }
}

fn recorded(updated_at: i64) -> EventRouteRow {
    EventRouteRow {
        entity_type: "device".to_owned(),
        workflow: None,
        version: None,
        action: EventRouteAction::Record,
        event_name: None,
        updated_at: Timestamp(updated_at),
    }
}

#[test]
fn at_the_limit_a_route_can_be_replaced_but_not_added() {
    let store = Arc::new(MemoryStore::new(BackendProfile::PLAIN));
    let routes = EventRoutes::new(Arc::clone(&store)).unwrap();
    for number in 0..ROUTES_MAX {
        let key = event_routes::key(&format!("type-{number}"));
        store.commit_now(&routes.partition, &Batch::checked().create(key, encode(&recorded(1))));
    }
    assert!(matches!(ready(routes.set("new", Some(&recorded(2)))), Err(EventRouteError::TooMany)));
    assert!(ready(routes.set("type-7", Some(&recorded(2)))).unwrap());
    assert_eq!(ready(routes.get("type-7")).unwrap(), Some(recorded(2)));
    assert!(
        ready(routes.set("type-8", None)).unwrap() && ready(routes.set("new", Some(&recorded(3)))).unwrap()
    );
}

/// The reference store with delayed reads: the row is read at once, and returned at the second poll.
#[derive(Debug)]
struct Late(MemoryStore);

impl PrivateRows for Late {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn health(&self) -> StoreHealth {
        self.0.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        let row = self.0.read(partition, key).await;
        let mut polled = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        row
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.0.scan(partition, scan).await
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        self.0.commit(partition, batch).await
    }

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.0.wait_for_change(partition, seen).await
    }
}

#[test]
fn a_value_read_before_a_change_is_not_cached_after_it() {
    let routes = EventRoutes::new(Arc::new(Late(MemoryStore::new(BackendProfile::PLAIN)))).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut before = pin!(routes.get("a"));
    assert!(before.as_mut().poll(&mut context).is_pending());
    let route = recorded(1);
    let mut set = pin!(routes.set("a", Some(&route)));
    while set.as_mut().poll(&mut context).is_pending() {}
    assert!(
        matches!(before.as_mut().poll(&mut context), Poll::Ready(Ok(None))),
        "the value before the change"
    );
    let mut after = pin!(routes.get("a"));
    let after = loop {
        if let Poll::Ready(after) = after.as_mut().poll(&mut context) {
            break after.unwrap();
        }
    };
    assert_eq!(after.as_ref(), Some(&route));
}
