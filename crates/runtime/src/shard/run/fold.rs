//! Folds the changed parts of a run into rows of their own, so that loading the run reads few history pages.
//!
//! A fold advances slice by slice beside the turns, and never makes a turn too large for its commit. It does not delete
//! pages: they are the history of the run.

use abide_store::tables::encode;
use abide_store::tables::parts::{self, PartRow};

use crate::shard::run::run_rows;
use crate::shard::run::run_state::{FoldProgress, ResidentRun};
use crate::shard::unit_of_work::UnitOfWork;

/// Pages since the last fold after which the changed parts are folded.
const FOLD_PAGES_MIN: u64 = 32;
/// Bytes of changed parts after which they are folded, if there is more than one page.
const FOLD_BYTES_MIN: usize = 64 * 1024;
/// The most part rows written beside one turn, and their bytes, including the row that crosses the bound.
const FOLD_SLICE_ROWS: usize = 64;
const FOLD_SLICE_BYTES: usize = 256 * 1024;
/// Bytes of such a row without its name and its part, and of the instance row that goes with the last one.
const PART_ROW_BYTES: usize = 4 * 1024;

/// Called at the end of every turn: folds the changed parts when there are many pages since the last fold, a slice
/// beside each turn. A part row may be newer than `folded_page` says: the pages laid over it end in the same bytes.
pub(in crate::shard) fn fold_parts(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    if run.has_ended() {
        run.fold = None;
        return;
    }
    let pages = run.last_page.since(run.row.folded_page);
    if run.fold.is_none() && (pages >= FOLD_PAGES_MIN || run.unfolded_bytes >= FOLD_BYTES_MIN && pages > 1) {
        let names = run.unfolded_parts.keys().cloned().collect();
        run.fold = Some(FoldProgress { until_page: run.last_page, part_names: names });
    }
    let rows = fold_slice_rows(work);
    let Some(fold) = &mut run.fold else { return };
    let mut written = 0;
    for _ in 0..rows {
        if written > FOLD_SLICE_BYTES {
            break;
        }
        let Some(name) = fold.part_names.front() else { break };
        let size = run.unfolded_parts.get(name).and_then(|(bytes, _)| bytes.as_ref()).map_or(0, Vec::len);
        // A large turn may leave no room; the fold goes on beside the next one.
        if !work.has_room_for(2, size + 2 * name.len() + PART_ROW_BYTES) {
            break;
        }
        let Some(name) = fold.part_names.pop_front() else { break };
        let Some((bytes, page)) = run.unfolded_parts.get(&name) else { continue };
        written += size;
        let key = parts::key(run.row.run_id, &name);
        match bytes {
            Some(bytes) => work.put(key, encode(&PartRow::new(&name, *page, bytes.clone()))),
            None => work.delete(key),
        }
    }
    if !fold.part_names.is_empty() {
        return;
    }
    let until = fold.until_page;
    run.fold = None;
    run.row.folded_page = until;
    run.unfolded_parts.retain(|_, (_, page)| *page > until);
    run.unfolded_bytes = run
        .unfolded_parts
        .iter()
        .map(|(name, (bytes, _))| name.len() + bytes.as_ref().map_or(0, Vec::len))
        .sum();
    run_rows::write_instance_row(work, run);
}

fn fold_slice_rows(work: &UnitOfWork<'_>) -> usize {
    FOLD_SLICE_ROWS.min(work.ctx.config.store_limits.commit_rows_max / 8)
}
