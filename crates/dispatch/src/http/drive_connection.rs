//! Polls a connection from the exchange that uses it, instead of from a task of its own.
//!
//! No other task has to be woken for a request or its response, and dropping the exchange closes the connection. Knows
//! nothing about what is exchanged.

use std::future::{Future, poll_fn};
use std::pin::pin;

/// Polls the connection as long as the exchange needs it. The flag says whether the connection is still open.
pub(crate) async fn drive_connection<E: Future>(connection: impl Future, exchange: E) -> (E::Output, bool) {
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange);
    let mut is_open = true;
    poll_fn(move |context| {
        // The exchange gets the error if the connection fails.
        if is_open && connection.as_mut().poll(context).is_ready() {
            is_open = false;
        }
        exchange.as_mut().poll(context).map(|output| (output, is_open))
    })
    .await
}
