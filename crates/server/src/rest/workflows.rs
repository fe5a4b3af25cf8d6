//! `/api/workflows`: publishing definitions, and which versions there are.

use abide_runtime::definitions::{DefinitionError, Publication};
use abide_runtime::hands::Store;
use abide_workflow::{PlanHash, Timestamp};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use semver::Version;
use serde::Serialize;

use crate::app::App;
use crate::asked::{self, Asked};
use crate::envelope::Text;
use crate::error::ApiError;

#[derive(Serialize)]
struct PublishedJson<'a> {
    id: &'a str,
    version: Text<&'a Version>,
    hash: Text<PlanHash>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkflowJson<'a> {
    id: &'a str,
    default_version: Text<&'a Version>,
    versions: Vec<VersionJson>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionJson {
    version: Text<Version>,
    hash: Text<PlanHash>,
    published_at_utc: Text<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at_utc: Option<Text<Timestamp>>,
}

/// Publishes a definition; the body is its text. Publishing it again changes nothing.
pub(super) async fn publish<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let bytes = asked.bytes(app.limits().body_bytes_max).await?;
    let text = asked::text(&bytes)?;
    let publish = app.node().definitions().publish(text, Some(app.registry()), app.now());
    let (plan, publication) = app.in_time(publish).await??;
    let status = match publication {
        Publication::New => StatusCode::CREATED,
        Publication::Identical => StatusCode::OK,
    };
    let data = PublishedJson { id: plan.id(), version: Text(plan.version()), hash: Text(plan.hash()) };
    let mut response = asked.succeed(status, app.now(), &data);
    let id: String = url::form_urlencoded::byte_serialize(plan.id().as_bytes()).collect();
    let location = HeaderValue::try_from(format!("/api/workflows/{}", id.replace('+', "%20")));
    let location = location.map_err(|error| ApiError::internal(&error))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Shows which versions of a definition there are, newest first.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let id = asked.param("id").await?;
    let definitions = app.node().definitions();
    let mut versions = app.in_time(definitions.versions(&id)).await??;
    if versions.is_empty() {
        let wanted = "any version".to_owned();
        return Err(DefinitionError::Unknown { id, wanted }.into());
    }
    let default = app.in_time(definitions.pick(&id, None)).await??;
    versions.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    let versions = versions.into_iter().map(|(version, row)| VersionJson {
        version: Text(version),
        hash: Text(PlanHash(row.hash)),
        published_at_utc: Text(Timestamp(row.published_at)),
        retired_at_utc: row.retired_at.map(Timestamp).map(Text),
    });
    let data =
        WorkflowJson { id: &id, default_version: Text(default.version()), versions: versions.collect() };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}
