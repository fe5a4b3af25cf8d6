//! Contains panics: work that data can make panic ends in an error of its own run, and the shard keeps its claim.
//!
//! It catches unwinding only. What ends the whole process, such as an abort or a lack of memory, is contained by
//! [careful recovery](crate::shard).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the work, and returns the message of the panic if it panics. What the work changed until then must not be used
/// any more: the caller drops it, or knows that it is whole.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message_of(&*panic).to_owned())
}

/// The panic's message, or a placeholder if it has none.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no panic message")
}
