//! The conformance suite of backends: [`run`] checks every promise of the storage interface on a backend and reports on
//! each.
//!
//! The checks know no backend. If a promise can only be checked with the backend's help (closing it, making an outcome
//! unknown), [`BackendUnderTest`] provides that help, and the report says which checks were skipped. [`differential`]
//! runs random operations on several backends at once and compares every result.

mod atomicity;
pub mod differential;
mod fencing;
mod harness;
mod limits;
mod notify;
mod pages;
mod queries;
mod recovery;
mod report;
mod scans;
mod unknown;

use std::future::Future;

pub use harness::join_all;
pub use report::{CheckOutcome, ConformanceReport};

use crate::Store;

/// A backend under test.
pub trait BackendUnderTest: Sync {
    type Store: Store;

    /// A new, empty store.
    fn fresh(&self) -> impl Future<Output = Self::Store> + Send;

    /// Closes the store and opens it again; `None` if its rows do not survive that.
    fn reopen(&self, store: Self::Store) -> impl Future<Output = Option<Self::Store>> + Send;

    /// Makes the next commit return `Unknown`, applied or not; returns false if the backend cannot do that.
    fn make_unknown(&self, store: &Self::Store, applied: bool) -> bool;

    /// Makes the store readable again after an unknown outcome, if the backend needs that.
    fn after_unknown(&self, _store: &Self::Store) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Runs every check, each on a fresh store. It never ends on a backend that never returns or never notifies of a
/// change: give the test that calls this a time limit.
pub async fn run<S: BackendUnderTest>(subject: &S) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    let groups = [
        ("atomicity", atomicity::checks::<S>()),
        ("fencing", fencing::checks()),
        ("scans and order", scans::checks()),
        ("limits", limits::checks()),
        ("unknown outcomes", unknown::checks()),
        ("notify", notify::checks()),
        ("recovery", recovery::checks()),
        ("queries", queries::checks()),
        ("pages", pages::checks()),
    ];
    for (promise, checks) in groups {
        for check in checks {
            let outcome = match (check.run)(subject).await {
                Ok(()) => CheckOutcome::Passed,
                Err(harness::CheckStop::Broken(how)) => CheckOutcome::Failed(how),
                Err(harness::CheckStop::NotApplicable(why)) => CheckOutcome::Skipped(why),
            };
            report.add(promise, check.name, outcome);
        }
    }
    report
}
