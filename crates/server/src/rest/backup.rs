//! `GET /api/backup`: streams a copy of the running store to the caller, as of one point in time.
//!
//! Writes nothing on the server and knows no folder: `abide backup --url` makes a data folder of the stream. One backup
//! at a time; what it needs of the store is [`BackupSource`].

use std::sync::Arc;
use std::time::Duration;

use abide_store::Store;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{OperationSpec, ResponseSpec};
use crate::response;

pub(super) const BACKUP: OperationSpec = OperationSpec {
    id: "backup",
    tag: "Server",
    about: "Streams a copy of the running store as of one point in time, for `abide backup --url`. One backup at a time.",
    responses: &[ResponseSpec::text(
        200,
        BACKUP_CONTENT_TYPE,
        "The copy. It is complete if it ends with its end mark.",
    )],
    error_statuses: &[409],
    ..OperationSpec::EMPTY
};

const BACKUP_CONTENT_TYPE: &str = "application/vnd.abide.backup";

/// Pieces of a copy that wait for the client. Each has about a mebibyte.
const PIECES_MAX: usize = 2;
/// How often a waiting piece is offered again.
const OFFER_INTERVAL: Duration = Duration::from_millis(5);

/// A store that can be copied while it works.
pub trait BackupSource: std::fmt::Debug + Send + Sync {
    /// Hands out the copy piece by piece, until it is complete or `on_piece` returns false. Blocks.
    fn export(&self, on_piece: &mut dyn FnMut(Vec<u8>) -> bool) -> Result<(), String>;

    /// False if the store must be released, because it has to be reopened.
    fn is_open(&self) -> bool;
}

pub(super) async fn backup<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let Some(source) = app.backup_source() else {
        return Err(ApiError::conflict("this store cannot be copied while it works"));
    };
    let Ok(permit) = app.try_begin_backup() else {
        return Err(ApiError::conflict("a backup is in progress; one at a time"));
    };
    let source = Arc::clone(source);
    let (pieces, mut received) = mpsc::channel(PIECES_MAX);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut on_piece = |piece: Vec<u8>| offer(&pieces, &*source, piece);
        let copied = source.export(&mut on_piece);
        if let Err(reason) = copied {
            tracing::error!(reason, "backup failed");
            // The stream must not end as if it were complete; its end mark is missing too.
            drop(pieces.blocking_send(Err(std::io::Error::other(reason))));
        }
    });
    let body = Body::from_stream(stream::poll_fn(move |context| received.poll_recv(context)));
    let content_type = HeaderValue::from_static(BACKUP_CONTENT_TYPE);
    Ok(response::build_response(StatusCode::OK, request.correlation(), content_type, body))
}

/// Waits until the client takes a piece; false if it has gone. A client that only trickles must not keep a store from
/// being reopened.
fn offer(pieces: &mpsc::Sender<std::io::Result<Bytes>>, source: &dyn BackupSource, piece: Vec<u8>) -> bool {
    let mut offered = Ok(Bytes::from(piece));
    loop {
        offered = match pieces.try_send(offered) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(piece)) => piece,
        };
        if !source.is_open() {
            return false;
        }
        std::thread::park_timeout(OFFER_INTERVAL);
    }
}
