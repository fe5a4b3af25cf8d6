//! Taking up what was under way: calls that are not settled, messages nobody has taken, messages and public rows on their way.
//!
//! The scans are repeated until they succeed, and go on behind what is damaged. What they find is put in line with everything else that is due,
//! so a restart is no stampede, and takes none of the room that clients have.

use abide_store::rows::{Passed, Row, Scan, ScanPage, StoreError};
use abide_store::tables::dispatches::{self, Dispatch};
use abide_store::tables::{decode, inbox, outbox, sources};
use abide_workflow::InstanceId;

use super::claim::Phase;
use super::schedule::{DueKey, What};
use super::slot::{Item, Slot};
use super::{Shard, back_off, later, planted};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::post::{self, Post};

/// The scans of recovery, in order.
const STAGES: [ScanPurpose; 4] =
    [ScanPurpose::Dispatches, ScanPurpose::Inbox, ScanPurpose::Outbox, ScanPurpose::Sources];

/// A scan to be repeated.
#[derive(Debug)]
pub(super) struct Repeat {
    purpose: ScanPurpose,
    scan: Scan,
    at: Monotonic,
}

impl Shard {
    pub(super) fn begin_recovery(&mut self) {
        self.recover(STAGES.first().copied());
    }

    fn recover(&mut self, stage: Option<ScanPurpose>) {
        let Some(purpose) = stage else {
            self.begin_work();
            self.arrivals.hinted = true;
            self.serve_posted();
            return self.serve_early();
        };
        let scan = match purpose {
            ScanPurpose::Dispatches => dispatches::all(),
            ScanPurpose::Inbox => inbox::all(),
            ScanPurpose::Outbox => outbox::all(),
            _ => sources::all(),
        };
        self.scanning = Some(scan.clone());
        self.effects.push(Effect::Scan(purpose, scan));
    }

    pub(super) fn recovery_wake(&self) -> Option<Monotonic> {
        self.repeat.as_ref().map(|repeat| repeat.at)
    }

    pub(super) fn keep_recovery(&mut self) {
        if self.repeat.as_ref().is_some_and(|repeat| repeat.at <= self.now.mono)
            && let Some(Repeat { purpose, scan, .. }) = self.repeat.take()
        {
            self.effects.push(Effect::Scan(purpose, scan));
        }
    }

    pub(super) fn on_scanned(&mut self, purpose: ScanPurpose, result: Result<Passed, StoreError>) {
        let result = match result {
            Ok(Passed { page, damage }) => {
                if let Some(damage) = damage {
                    self.found_damage(purpose, damage);
                }
                Ok(page)
            }
            Err(error) => Err(error),
        };
        match purpose {
            ScanPurpose::Timers => self.on_timers(result),
            ScanPurpose::Expiries => self.on_expiries(result),
            ScanPurpose::Remains => self.on_remains(result),
            ScanPurpose::Arrivals => self.on_arrivals(result),
            ScanPurpose::Instances => self.on_instances(result),
            ScanPurpose::Reconciliation => self.on_reconciled(result),
            _ if matches!(self.phase, Phase::Recovering(_)) => self.on_recovered(purpose, result),
            #[cfg(feature = "faults")]
            _ if matches!(self.phase, Phase::Taking(..)) && planted!(self, StaleRecovery) => {
                self.deliver_stale(result);
            }
            _ => {}
        }
    }

    fn on_recovered(&mut self, purpose: ScanPurpose, result: Result<ScanPage, StoreError>) {
        let page = match result {
            Ok(page) => page,
            Err(_) => {
                let Some(scan) = self.scanning.clone() else { return };
                let at = later(self.now.mono, back_off(4));
                self.repeat = Some(Repeat { purpose, scan, at });
                return;
            }
        };
        for row in page.rows {
            let taken = match purpose {
                ScanPurpose::Dispatches => self.found_call(&row),
                ScanPurpose::Inbox => self.found_message(&row),
                ScanPurpose::Outbox => self.found_outgoing(&row),
                _ => self.found_source(&row),
            };
            if let Err(reason) = taken {
                self.found_unreadable(purpose, &row.key, reason);
            }
        }
        match page.next {
            Some(scan) => {
                self.scanning = Some(scan.clone());
                self.effects.push(Effect::Scan(purpose, scan));
            }
            None => {
                let next = STAGES.iter().position(|stage| *stage == purpose).map(|at| at + 1);
                self.recover(next.and_then(|next| STAGES.get(next)).copied());
            }
        }
    }

    fn found_call(&mut self, row: &Row) -> Result<(), String> {
        if planted!(self, OrphansForgotten) {
            return Ok(());
        }
        let (run, _) = dispatches::read_key(&row.key).map_err(|error| error.to_string())?;
        let call: Dispatch = decode(&row.value).map_err(|error| error.to_string())?;
        let id = InstanceId::new(call.instance_id).map_err(|error| error.to_string())?;
        let at = call.not_before.unwrap_or(call.sent_at);
        self.schedule.add(DueKey { at, run, what: What::Delivery, number: call.command }, id);
        Ok(())
    }

    /// A planted mistake: calls go out again before the shard is ours.
    #[cfg(feature = "faults")]
    fn deliver_stale(&mut self, result: Result<ScanPage, StoreError>) {
        for row in result.into_iter().flat_map(|page| page.rows) {
            if let (Ok((run, key)), Ok(dispatch)) = (dispatches::read_key(&row.key), decode(&row.value)) {
                self.deliver_unrecorded(run, key, dispatch);
            }
        }
    }

    fn found_message(&mut self, row: &Row) -> Result<(), String> {
        let sequence = inbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let waiting: inbox::Waiting = decode(&row.value).map_err(|error| error.to_string())?;
        let id = InstanceId::new(waiting.instance_id).map_err(|error| error.to_string())?;
        let post: Post = post::decode(&waiting.message).map_err(|error| error.to_string())?;
        self.take_up_later(waiting.received_at, sequence, id, Item::Post { sequence, post });
        Ok(())
    }

    /// Something that was on its way when the last owner stopped: it waits in its slot, and the slot is served when its turn has come.
    pub(super) fn take_up_later(&mut self, at: i64, number: u64, id: InstanceId, item: Item) {
        let slot = self.slots.entry(id.clone()).or_insert_with(Slot::new);
        slot.items.push_back(item);
        slot.found += 1;
        self.schedule.add(DueKey { at, run: 0, what: What::Found, number }, id);
    }

    fn found_outgoing(&mut self, row: &Row) -> Result<(), String> {
        let (target, number) = outbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let outgoing: outbox::Outgoing = decode(&row.value).map_err(|error| error.to_string())?;
        if target == outbox::PUBLIC {
            return self.found_feed(number, &outgoing.message);
        }
        self.outbox.found(&target, number, outgoing.message)
    }

    fn found_source(&mut self, row: &Row) -> Result<(), String> {
        let source = sources::read_key(&row.key).map_err(|error| error.to_string())?;
        let taken: sources::Taken = decode(&row.value).map_err(|error| error.to_string())?;
        self.arrivals.taken.insert(source, taken.number);
        Ok(())
    }
}
