//! `/api/activities`: what definitions may name in their tasks, and declaring those that other services run.

use std::collections::BTreeMap;

use abide_dispatch::remote::{Remote, RemoteDeclaration};
use abide_runtime::declared::{Declared, DeclaredVersion, Latest, VERSIONS_MAX};
use abide_runtime::hands::Store;
use abide_workflow::Timestamp;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::activity_json::{ActivityJson, RemovedJson, VersionJson};
use super::page::{self, LIMIT, PageJson, TOKEN};
use crate::app::App;
use crate::asked::Asked;
use crate::catalogue::{self, CatalogueError, Source};
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

const QUERY: [Field; 2] = [LIMIT, TOKEN];
const NAME: Field =
    Field::required("name", Kind::Text { chars_min: 1, chars_max: 256 }, "What definitions call it.");
const VERSION: Field = Field::optional(
    "version",
    Kind::Whole { min: 1, max: VERSIONS_MAX + 1, default: None },
    "A version that was declared by this interface; without it, what is in force.",
);

pub(super) const LIST: Operation = Operation {
    id: "listActivities",
    tag: "Activities",
    about: "Lists the activities that definitions may name, by name.",
    query: &QUERY,
    answers: &[Answer::data::<PageJson<ActivityJson>>(200, "A page of activities.")],
    ..Operation::NONE
};
pub(super) const SHOW: Operation = Operation {
    id: "showActivity",
    about: "Shows an activity, as it is in force or in a version that was declared by this interface.",
    query: &[VERSION],
    ..ACTIVITY
};
pub(super) const PUT: Operation = Operation {
    id: "putActivity",
    about: "Declares an activity that another service runs: a new version, in force for every call from now on; what a workflow does by itself \
            (retries, timeouts of deliveries, compensation) for what is published from now on. Declaring the same again changes nothing.",
    body: Some(Body {
        required: true,
        about: "The declaration; docs/reference/activities.md has every field.",
        kinds: &[(JSON, Shape::Schema(DECLARATION))],
    }),
    answers: &[
        Answer::data::<ActivityJson>(200, "It was declared so already."),
        Answer::data::<ActivityJson>(201, "It is declared, in a new version."),
    ],
    refuses: &[409],
    ..ACTIVITY
};
pub(super) const DELETE: Operation = Operation {
    id: "deleteActivity",
    about: "Takes an activity away that was declared by this interface. Calls under way end as they began; later ones fail for good. Its \
            versions stay readable.",
    answers: &[Answer::data::<RemovedJson>(200, "It is gone.")],
    refuses: &[404, 409],
    ..ACTIVITY
};

/// What those of one activity have in common.
const ACTIVITY: Operation = Operation {
    tag: "Activities",
    path: &[NAME],
    answers: &[Answer::data::<ActivityJson>(200, "The activity.")],
    refuses: &[404],
    ..Operation::NONE
};

/// The outermost of a declaration.
const DECLARATION: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "category": {"enum": ["database", "externalApi", "messaging", "polling", "entity", "other"]},
        "transport": {"enum": ["rest", "protobuf", "grpc", "envelope"]},
        "endpoint": {"type": "string"},
        "input": {"type": ["object", "boolean"]},
        "output": {"type": ["object", "boolean"]},
        "attemptTimeout": {"type": "string"},
        "retryPolicy": {"type": "object"},
        "compensation": {"type": "string"},
        "concurrency": {"type": "integer", "minimum": 1, "maximum": 10000},
        "ratePerSecond": {"type": "number"},
        "probe": {"type": "boolean"},
        "auth": {"type": "object"},
        "tls": {"type": "object"}
    },
    "required": ["category", "transport", "endpoint"],
    "additionalProperties": false
}"#;

/// Lists activities.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [limit, from] = asked.parameters(&QUERY)?;
    let limit = LIMIT.count(limit.as_deref())?;
    let (catalogue, everywhere) = (app.catalogue(), app.catalogue().everywhere());
    let declared = app.in_time(catalogue.standing()).await??;
    let mut items: BTreeMap<String, ActivityJson> = everywhere
        .local()
        .declarations()
        .map(|one| (one.name.clone(), ActivityJson::of_server(one)))
        .collect();
    for remote in everywhere.remote().all() {
        let item = ActivityJson::of_remote(remote.declaration()).in_force(&remote);
        items.entry(remote.declaration().activity.name.clone()).or_insert(item);
    }
    let readable = declared.in_force.into_iter().map(Ok);
    for latest in readable.chain(declared.unreadable.into_iter().map(Err)) {
        let name = latest.as_ref().map_or_else(|one| &one.name, |one| &one.name).clone();
        if catalogue.source(&name) == Source::Interface {
            items.insert(name, of_latest(app, &latest));
        }
    }
    let mut items: Vec<ActivityJson> = items.into_values().collect();
    items.retain(|item| from.as_deref().is_none_or(|from| item.name.as_str() >= from));
    let continuation_token = page::cut(&mut items, limit, |item| item.name.clone());
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

/// Shows an activity.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let name = asked.part(&NAME).await?;
    let [version] = asked.parameters(&[VERSION])?;
    let version = version.map(|text| VERSION.whole(Some(&text))).transpose()?;
    let catalogue = app.catalogue();
    let everywhere = catalogue.everywhere();
    let missing = || ApiError::from(CatalogueError::Unknown { name: name.clone() });
    let item = match (version, catalogue.source(&name)) {
        (None, Source::Server) => {
            let declaration = everywhere.local().declarations().find(|one| one.name == name);
            ActivityJson::of_server(declaration.ok_or_else(missing)?)
        }
        (None, Source::Configuration) => in_force(app, &name).ok_or_else(missing)?,
        (None, Source::Interface) => {
            let latest = app.in_time(catalogue.latest(&name)).await??.ok_or_else(missing)?;
            if latest.as_ref().is_ok_and(|latest| latest.activity.declaration.is_none()) {
                return Err(missing());
            }
            of_latest(app, &latest)
        }
        (Some(version), _) => {
            let found = app.in_time(catalogue.version(&name, version)).await??.ok_or_else(missing)?;
            let item = match &found.activity.declaration {
                None => ActivityJson::removed(&name),
                Some(_) => {
                    written(&found).map_or_else(|unusable| *unusable, |one| ActivityJson::of_remote(&one))
                }
            };
            item.declared(stamp(&found))
        }
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &item))
}

/// Declares an activity.
pub(super) async fn put<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let name = asked.part(&NAME).await?;
    let [] = asked.query([])?;
    let mut body = asked.json(app.limits().body_bytes_max).await?.unwrap_or_default();
    let Value::Object(fields) = &mut body else {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    };
    let named = fields.insert("name".to_owned(), Value::String(name.clone()));
    if named.is_some_and(|named| named != Value::String(name.clone())) {
        return Err(ApiError::invalid("/name", "it must be the name in the path, or absent"));
    }
    let declaration = RemoteDeclaration::read(&body).map_err(CatalogueError::from)?;
    // Nobody may give up halfway: what is stored must come into force.
    let (changing, now) = (app.clone(), app.now().0);
    let put = tokio::spawn(async move { changing.catalogue().put(declaration, now).await });
    let put = app.in_time(put).await?.map_err(|error| ApiError::internal(&error))??;
    let (status, version) = match put {
        Declared::New(version) => (StatusCode::CREATED, version),
        Declared::Unchanged(version) => (StatusCode::OK, version),
    };
    let item = ActivityJson::of_remote(&catalogue::read(&version)?).declared(stamp(&version));
    Ok(asked.succeed(status, app.now(), &item))
}

/// Takes an activity away.
pub(super) async fn delete<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let name = asked.part(&NAME).await?;
    let [] = asked.query([])?;
    let (changing, taken, now) = (app.clone(), name.clone(), app.now().0);
    let removing = tokio::spawn(async move { changing.catalogue().remove(&taken, now).await });
    let removed = app.in_time(removing).await?.map_err(|error| ApiError::internal(&error))??;
    Ok(asked.succeed(StatusCode::OK, app.now(), &RemovedJson { name, version: removed.version }))
}

fn in_force<S: Store>(app: &App<S>, name: &str) -> Option<ActivityJson> {
    let remote = app.catalogue().everywhere().remote().get(name)?;
    let remote: &Remote = &remote;
    Some(ActivityJson::of_remote(remote.declaration()).in_force(remote))
}

/// One that was declared while the server ran. What it says and which version says so are of one row: while a change is made, the one in
/// force may be the one before. Only how it is doing is of that.
fn of_latest<S: Store>(app: &App<S>, latest: &Latest) -> ActivityJson {
    let latest = match latest {
        Ok(latest) => latest,
        Err(unreadable) => {
            return ActivityJson::unreadable(&unreadable.name, unreadable.reason.to_string());
        }
    };
    let item = match written(latest) {
        Err(unusable) => *unusable,
        Ok(declaration) => {
            let item = ActivityJson::of_remote(&declaration);
            let catalogue = app.catalogue();
            match catalogue.everywhere().remote().get(&latest.name) {
                Some(remote) => item.in_force(&remote),
                None => match catalogue.why_not(&declaration) {
                    Some(reason) => item.unusable(reason),
                    None => item,
                },
            }
        }
    };
    item.declared(stamp(latest))
}

/// What a version says; what is shown instead if nobody understands it any more.
fn written(version: &DeclaredVersion) -> Result<RemoteDeclaration, Box<ActivityJson>> {
    let shown = |error: CatalogueError| ActivityJson::unreadable(&version.name, error.to_string());
    catalogue::read(version).map_err(|error| Box::new(shown(error)))
}

fn stamp(version: &DeclaredVersion) -> VersionJson {
    VersionJson { version: version.version, declared_at_utc: Text(Timestamp(version.activity.declared_at)) }
}
