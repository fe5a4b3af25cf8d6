//! `GET /api/backup`: one at a time, only from a store that can be copied, and never in the way of that store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use abide_server::{BackupSource, router};
use abide_store::memory::MemoryStore;
use axum::body::Body;
use axum::http::header::HOST;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::test_api::{TestApi, failed};

/// Hands out one piece for each permission, and then ends.
#[derive(Debug)]
struct GatedSource {
    permissions: Mutex<mpsc::Receiver<()>>,
    is_open: AtomicBool,
    /// What the taker of the last piece replied.
    went_on: Mutex<Option<bool>>,
}

fn gated() -> (mpsc::Sender<()>, Arc<GatedSource>) {
    let (permit, permissions) = mpsc::channel();
    let permissions = Mutex::new(permissions);
    (permit, Arc::new(GatedSource { permissions, is_open: AtomicBool::new(true), went_on: Mutex::new(None) }))
}

impl BackupSource for GatedSource {
    fn export(&self, on_piece: &mut dyn FnMut(Vec<u8>) -> bool) -> Result<(), String> {
        while self.permissions.lock().unwrap().recv().is_ok() {
            let went_on = on_piece(b"piece ".to_vec());
            *self.went_on.lock().unwrap() = Some(went_on);
            if !went_on {
                return Err("stopped".to_owned());
            }
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }
}

async fn begin_backup(router: axum::Router) -> Response<Body> {
    let request = Request::get("/api/backup").header(HOST, "localhost:7070").body(Body::empty()).unwrap();
    router.oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_second_backup_waits_for_the_first_one_to_end() {
    let (api, app) = TestApi::on_store(MemoryStore::default());
    app.ready().await;
    let (permit, source) = gated();
    app.set_backup_source(source);
    let first = begin_backup(router(app.clone())).await;
    assert_eq!(first.status(), 200);
    assert_eq!(first.headers()["content-type"], "application/vnd.abide.backup");
    let second = api.get("/api/backup").await;
    assert_eq!(second.error(), failed(409, "CONFLICT", ""));
    permit.send(()).unwrap();
    permit.send(()).unwrap();
    drop(permit);
    let copy = first.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(copy, "piece piece ");
    // The permit is returned when the copy has ended, a moment after its last byte.
    while api.get("/api/backup").await.status == 409 {
        tokio::task::yield_now().await;
    }
}

/// A backup keeps the store's engine open. A store that has to be reopened must not wait for a client.
#[tokio::test]
async fn a_client_that_takes_nothing_keeps_no_store_from_being_reopened() {
    let (_api, app) = TestApi::on_store(MemoryStore::default());
    app.ready().await;
    let (permit, source) = gated();
    app.set_backup_source(Arc::clone(&source) as Arc<dyn BackupSource>);
    let untaken = begin_backup(router(app.clone())).await;
    for _ in 0..10 {
        permit.send(()).unwrap();
    }
    while source.went_on.lock().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    source.is_open.store(false, Ordering::SeqCst);
    while *source.went_on.lock().unwrap() != Some(false) {
        tokio::task::yield_now().await;
    }
    let copy = untaken.into_body().collect().await;
    assert!(copy.is_err(), "the copy ends with an error, not as if it were complete");
}

#[tokio::test]
async fn a_store_that_cannot_be_copied_says_so() {
    let api = TestApi::new().await;
    let refused = api.get("/api/backup").await;
    assert_eq!(refused.error(), failed(409, "CONFLICT", ""));
    assert!(refused.text.contains("cannot be copied"), "{}", refused.text);
}
