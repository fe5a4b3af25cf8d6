//! Routes as they are set, replaced and taken away.

use super::*;
use abide_store::memory::{MemoryStore, Personality};
use abide_store::notice::Tick;
use abide_store::rows::{Capabilities, Health, Key, Row, Scan, ScanPage};
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

fn recorded(updated_at: i64) -> Route {
    Route {
        entity_type: "device".to_owned(),
        workflow: None,
        version: None,
        action: RouteAction::Record,
        event_name: None,
        updated_at,
    }
}

#[test]
fn a_full_store_takes_another_route_for_a_type_that_has_one_and_no_new_one() {
    let store = Arc::new(MemoryStore::new(Personality::PLAIN));
    let routes = Routes::new(Arc::clone(&store)).unwrap();
    for number in 0..ROUTES_MAX {
        let key = routes::key(&format!("type-{number}"));
        store.commit_now(&routes.partition, &Batch::checked().create(key, encode(&recorded(1))));
    }
    assert!(matches!(ready(routes.set("new", Some(&recorded(2)))), Err(RouteError::TooMany)));
    assert!(ready(routes.set("type-7", Some(&recorded(2)))).unwrap());
    assert_eq!(ready(routes.of("type-7")).unwrap(), Some(recorded(2)));
    assert!(
        ready(routes.set("type-8", None)).unwrap() && ready(routes.set("new", Some(&recorded(3)))).unwrap()
    );
}

/// The reference store, whose reads are answered one moment after they were made.
#[derive(Debug)]
struct Late(MemoryStore);

impl PrivateRows for Late {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        let row = self.0.read(partition, key).await;
        let mut asked = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }
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

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.0.changed(partition, seen).await
    }
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let routes = Routes::new(Arc::new(Late(MemoryStore::new(Personality::PLAIN)))).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut before = pin!(routes.of("a"));
    assert!(before.as_mut().poll(&mut context).is_pending());
    let route = recorded(1);
    let mut set = pin!(routes.set("a", Some(&route)));
    while set.as_mut().poll(&mut context).is_pending() {}
    assert!(matches!(before.as_mut().poll(&mut context), Poll::Ready(Ok(None))), "it was so then");
    let mut after = pin!(routes.of("a"));
    let after = loop {
        if let Poll::Ready(after) = after.as_mut().poll(&mut context) {
            break after.unwrap();
        }
    };
    assert_eq!(after.as_ref(), Some(&route));
}
