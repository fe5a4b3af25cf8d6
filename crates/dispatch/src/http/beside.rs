//! A connection that is polled by whoever uses it, instead of by a task of its own.
//!
//! No task has to be woken for a request or its response, and dropping the exchange closes the connection.

use std::future::{Future, poll_fn};
use std::pin::pin;

/// Polls the connection as long as the exchange needs it, and says whether it is still open.
pub(crate) async fn beside<E: Future>(connection: impl Future, exchange: E) -> (E::Output, bool) {
    let (mut connection, mut exchange) = (pin!(connection), pin!(exchange));
    let mut is_open = true;
    poll_fn(move |context| {
        // What goes wrong with the connection is told to the exchange.
        if is_open && connection.as_mut().poll(context).is_ready() {
            is_open = false;
        }
        exchange.as_mut().poll(context).map(|output| (output, is_open))
    })
    .await
}
