//! Extracts the message of a caught panic, for logs and errors.

use std::any::Any;

/// The panic's message, or a placeholder if it has none.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no panic message")
}
