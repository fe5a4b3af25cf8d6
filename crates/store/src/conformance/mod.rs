//! What a backend must show, in one call: [`run`] plays every promise of the seam against a backend and reports on each.
//!
//! The checks know no backend. Where a promise can only be tried with the backend's help (closing it, making an outcome unknown),
//! [`Subject`] asks for that help, and the report says what could not be tried. [`differential`] plays random operations on several
//! backends at once and compares every answer.

mod atomicity;
mod bench;
pub mod differential;
mod fencing;
mod limits;
mod notify;
mod pages;
mod queries;
mod recovery;
mod report;
mod scans;
mod unknown;

use std::future::Future;

pub use bench::together;
pub use report::{Report, Verdict};

use crate::Store;

/// A backend under test.
pub trait Subject: Sync {
    /// Its store.
    type Store: Store;

    /// A new store with nothing in it.
    fn fresh(&self) -> impl Future<Output = Self::Store> + Send;

    /// The same store, closed and opened again; `None` if its rows do not outlive it.
    fn reopen(&self, store: Self::Store) -> impl Future<Output = Option<Self::Store>> + Send;

    /// Makes the next commit answer `Unknown`, applied or not; false if this backend cannot be made to.
    fn make_unknown(&self, store: &Self::Store, applied: bool) -> bool;

    /// What has to be done after an unknown outcome before the store can be asked about it.
    fn after_unknown(&self, _store: &Self::Store) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Plays every check, each on a fresh store. A backend that never answers, or never tells of a change, never ends it: give the test that calls
/// this a time limit.
pub async fn run<S: Subject>(subject: &S) -> Report {
    let mut report = Report::default();
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
            let verdict = match (check.play)(subject).await {
                Ok(()) => Verdict::Held,
                Err(bench::Stop::Broken(how)) => Verdict::Broken(how),
                Err(bench::Stop::NotApplicable(why)) => Verdict::NotTried(why),
            };
            report.add(promise, check.name, verdict);
        }
    }
    report
}
