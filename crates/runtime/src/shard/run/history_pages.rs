//! Writes the history pages of a run: the events of a turn, the parts it changed, and the calls it settled.
//!
//! A turn has one page, or several if one row cannot hold it. Pages are appended and never rewritten. It does not know
//! what events or parts mean, and does not decide when parts are folded.

use abide_store::tables::calls::PastAttempt;
use abide_store::tables::encode;
use abide_store::tables::history_pages::{self, CallFailures, HistoryPageRow, SettledCall};
use abide_workflow::PartChange;
use abide_workflow::history::HistoryEvent;

use crate::run::EntryChange;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;

/// Writes the page of a turn, or several pages if it is too large for one row. The settled calls that the run has noted
/// come first. A new run and the watch for stuck runs write pages without events.
pub(in crate::shard) fn write_pages(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    history: &[HistoryEvent],
    events: Vec<u8>,
    changes: Vec<EntryChange>,
) {
    if history.is_empty() && changes.is_empty() && run.settled_calls.is_empty() {
        return;
    }
    let bytes_max = page_bytes_max(work);
    let size = |change: &EntryChange| change.0.len() + change.1.as_ref().map_or(0, Vec::len) + 16;
    let settled: usize = run.settled_calls.iter().map(settled_call_bytes).sum();
    let total = settled + changes.iter().map(size).sum::<usize>();
    let first_event = history.first().map_or(0, |event| event.sequence);
    if events.len() + total <= bytes_max {
        let count = u32::try_from(history.len()).unwrap_or(u32::MAX);
        return write_page(work, run, first_event, count, events, changes);
    }
    write_settled_calls(work, run);
    // As many events as fit, at least one.
    let (mut page, mut count, mut first_event) = (Vec::new(), 0, first_event);
    for event in history {
        let event_bytes = serde_json::to_vec(event).unwrap_or_default();
        if count > 0 && page.len() + event_bytes.len() + 2 > bytes_max {
            page.push(b']');
            write_page(work, run, first_event, count, std::mem::take(&mut page), Vec::new());
            (count, first_event) = (0, event.sequence);
        }
        page.push(if count == 0 { b'[' } else { b',' });
        page.extend(event_bytes);
        count += 1;
    }
    if count > 0 {
        page.push(b']');
        write_page(work, run, first_event, count, page, Vec::new());
    }
    let (mut some, mut bytes) = (Vec::new(), 0);
    for change in changes {
        if bytes + size(&change) > bytes_max && !some.is_empty() {
            write_page(work, run, 0, 0, Vec::new(), std::mem::take(&mut some));
            bytes = 0;
        }
        bytes += size(&change);
        some.push(change);
    }
    write_page(work, run, 0, 0, Vec::new(), some);
}

/// Writes the settled calls on pages of their own: with a page full of events they would be too large for one row.
fn write_settled_calls(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    let bytes_max = page_bytes_max(work);
    let (mut some, mut bytes) = (Vec::new(), 0);
    for record in std::mem::take(&mut run.settled_calls) {
        let size = settled_call_bytes(&record);
        if bytes + size > bytes_max && !some.is_empty() {
            run.settled_calls = std::mem::take(&mut some);
            write_page(work, run, 0, 0, Vec::new(), Vec::new());
            bytes = 0;
        }
        bytes += size;
        some.push(record);
    }
    if !some.is_empty() {
        run.settled_calls = some;
        write_page(work, run, 0, 0, Vec::new(), Vec::new());
    }
}

/// Writes one page after the last, with the settled calls noted so far, and counts its parts as not folded.
fn write_page(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    first_event: u64,
    events_count: u32,
    events: Vec<u8>,
    changes: Vec<EntryChange>,
) {
    run.last_page = run.last_page.next();
    let (mut settled, mut call_failures) = (Vec::with_capacity(run.settled_calls.len()), Vec::new());
    for (place, (call, failures)) in (0..).zip(run.settled_calls.drain(..)) {
        settled.push(call);
        call_failures.extend((!failures.is_empty()).then_some((place, failures)));
    }
    let at = work.ctx.now.wall;
    let page = HistoryPageRow {
        first_event,
        event_count: events_count,
        turn_at: at,
        events,
        part_changes: changes,
        settled_calls: settled,
        call_failures,
    };
    work.create(history_pages::key(run.row.run_id, run.last_page), encode(&page));
    work.mark_urgent();
    for (name, bytes) in page.part_changes {
        run.unfolded_bytes += name.len() + bytes.as_ref().map_or(0, Vec::len);
        run.unfolded_parts.insert(name, (bytes, run.last_page));
    }
}

/// The most bytes of a settled call in a page.
fn settled_call_bytes((call, failures): &(SettledCall, CallFailures)) -> usize {
    const FIXED: usize = 160;
    let texts = [
        Some(&call.activity),
        Some(&call.step),
        call.target.as_ref(),
        call.failure_reason.as_ref(),
        failures.failure_status.as_ref(),
    ];
    FIXED
        + texts.into_iter().flatten().map(String::len).sum::<usize>()
        + failures.past_attempts.len() * PastAttempt::BYTES_MAX
}

/// A changed part, as a page stores it.
pub(in crate::shard) fn part_change(part: PartChange) -> EntryChange {
    (part.key.to_bytes(), part.value)
}

/// The most bytes of one history page.
fn page_bytes_max(work: &UnitOfWork<'_>) -> usize {
    let value = work.ctx.config.store_limits.value_bytes_max;
    value - value / 64
}
