//! Reconciliation: what the journal says is under way, held against what really is, all the time and a page at a time.
//!
//! Recovery takes up every record once. After that a record without a delivery, a plan for one or an answer on its way would wait for ever; there
//! should be none, and this is what finds it.

use abide_dispatch::journal::Open;
use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use abide_store::tables::decode;
use abide_store::tables::dispatches::{self, Dispatch};
use abide_workflow::{CommandId, InstanceId};

use super::slot::Item;
use super::{Shard, journal, later, planted};
use crate::event::{CallId, Effect, ScanPurpose};
use crate::lease::Monotonic;

/// How far reconciliation has come.
#[derive(Debug, Default)]
pub(super) struct Reconciliation {
    scanning: bool,
    /// What is left of the walk over all records.
    rest: Option<Scan>,
    /// Not before this.
    next: Option<Monotonic>,
}

/// Records looked at in one go.
const PAGE_ROWS: usize = 1024;
/// How long after its time a record may still be on its way to being taken up, in milliseconds.
const GRACE_MS: i64 = 5_000;

impl Reconciliation {
    pub(super) fn wake(&self) -> Option<Monotonic> {
        self.next.filter(|_| !self.scanning)
    }
}

impl Shard {
    pub(super) fn keep_reconciliation(&mut self) {
        let every = self.config.reconcile_every;
        let next = *self.reconciliation.next.get_or_insert(later(self.now.mono, every));
        if self.reconciliation.scanning || next > self.now.mono || planted!(self, OrphansForgotten) {
            return;
        }
        let scan = self.reconciliation.rest.take().unwrap_or_else(|| dispatches::all().at_most(PAGE_ROWS));
        self.reconciliation.scanning = true;
        self.effects.push(Effect::Scan(ScanPurpose::Reconciliation, scan));
    }

    pub(super) fn on_reconciled(&mut self, result: Result<ScanPage, StoreError>) {
        self.reconciliation.scanning = false;
        let mut wait = self.config.reconcile_every;
        // What could not be looked at is found with the next look.
        if let Ok(page) = result {
            if page.next.is_some() {
                // A walk over many records is soon through, and leaves room for others.
                wait /= 100;
            }
            self.reconciliation.rest = page.next;
            for row in &page.rows {
                self.reconcile(row);
            }
        }
        self.reconciliation.next = Some(later(self.now.mono, wait));
    }

    /// A record that nobody here has to do with is taken up again. What cannot be read was told by recovery.
    fn reconcile(&mut self, row: &Row) {
        let (Ok((run, _)), Ok(dispatch)) = (dispatches::read_key(&row.key), decode::<Dispatch>(&row.value))
        else {
            return;
        };
        let Ok(instance_id) = InstanceId::new(dispatch.instance_id.clone()) else { return };
        let command = CommandId(dispatch.command);
        let late = self.now.wall.0.saturating_sub(GRACE_MS);
        let forgotten = match journal::open(&dispatch) {
            Open::Pending(_) => dispatch.created_at <= late,
            Open::FailedRetryable(_) => dispatch.not_before.is_some_and(|at| at <= late),
            Open::Sent(sent) => sent.is_orphan(self.fencing_token(), late),
        };
        let id = CallId { instance_id, run, command, attempt: dispatch.attempt };
        // A run in memory may be ahead of this row; it looks at its own before it delivers anything.
        if forgotten && !self.calling.contains_key(&id) {
            self.offer(&id.instance_id, Item::Deliver { run, command });
        }
    }
}
