//! The HTTP interface of Durable Functions, `/runtime/webhooks/durabletask/…`, so that its clients and scripts work unchanged.
//!
//! It is: their paths, parameters, statuses and bodies over the same node that the own interface stands on. It is not: a second way
//! to do anything; what a call means is decided where the own interface has it decided. What is the same and what differs is in
//! docs/reference/durable-functions.md.
//!
//! One route leads here. Theirs are matched without regard to case, to doubled slashes and to one at the end: their clients send all
//! three.

mod answer;
mod entities;
mod history;
mod links;
mod list;
mod orders;
mod parameters;
mod purge;
mod start;
mod status;
mod status_json;

use std::borrow::Cow;

use abide_runtime::hands::Store;
use abide_workflow::Message;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use percent_encoding::percent_decode_str;

use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use answer::{Answered, Otherwise};
use parameters::Parameters;

/// Answers whatever is asked below `/runtime/webhooks/`.
pub(crate) async fn serve<S: Store>(app: &App<S>, asked: &mut Asked) -> Response {
    let answer = match asked.check(app) {
        Ok(()) => lead(app, asked).await,
        Err(error) => Err(error.into()),
    };
    answer.unwrap_or_else(|otherwise| otherwise.to_response(asked.correlation()))
}

/// Which method and path leads to which function.
async fn lead<S: Store>(app: &App<S>, asked: &mut Asked) -> Answered {
    let extension = asked.param("extension").await?;
    if !extension.eq_ignore_ascii_case("durabletask") {
        return Err(Otherwise::Bare(StatusCode::NOT_FOUND));
    }
    let parts = parts(asked.uri().path())?;
    let mut parts = parts.iter().map(String::as_str);
    let resource = parts.next().map(str::to_ascii_lowercase);
    let rest: Vec<&str> = parts.collect();
    match (asked.method().clone(), resource.as_deref(), rest.as_slice()) {
        (Method::POST, Some("orchestrators"), [name]) => start::start(app, asked, name, None).await,
        (Method::POST, Some("orchestrators"), [name, id]) => start::start(app, asked, name, Some(id)).await,
        (Method::GET, Some("instances"), []) => list::page(app, asked).await,
        (Method::DELETE, Some("instances"), []) => purge::matching(app, asked).await,
        (Method::GET, Some("instances"), [id]) => status::show(app, asked, id).await,
        (Method::DELETE, Some("instances"), [id]) => purge::one(app, asked, id).await,
        (Method::POST, Some("instances"), [id, order]) => {
            let order: fn(String) -> Message = match order.to_ascii_lowercase().as_str() {
                "terminate" => |reason| Message::Terminate { reason },
                "suspend" => |reason| Message::Suspend { reason },
                "resume" => |reason| Message::Resume { reason },
                "rewind" => |reason| Message::Rewind { reason },
                "restart" => return start::restart(app, asked, id).await,
                _ => return Err(Otherwise::Bare(StatusCode::NOT_FOUND)),
            };
            orders::give(app, asked, id, order).await
        }
        (Method::POST, Some("instances"), [id, raise, name]) if raise.eq_ignore_ascii_case("raiseEvent") => {
            orders::raise_event(app, asked, id, name).await
        }
        (Method::GET, Some("entities"), []) => entities::page(app, asked, None).await,
        (Method::GET, Some("entities"), [name]) => entities::page(app, asked, Some(name)).await,
        (Method::GET, Some("entities"), [name, key]) => entities::show(app, asked, name, key).await,
        (Method::POST, Some("entities"), [name, key]) => {
            let operation = Parameters::of(asked).text("op").unwrap_or_default().to_owned();
            entities::signal(app, asked, name, key, &operation).await
        }
        (Method::DELETE, Some("entities"), [name, key]) => {
            entities::signal(app, asked, name, key, "delete").await
        }
        // Theirs has no other word for a method that a path does not take.
        _ => Err(Otherwise::Bare(StatusCode::NOT_FOUND)),
    }
}

/// The parts of a path after `/runtime/webhooks/{extension}/`. It is split before it is decoded: a part may have a slash of its own.
fn parts(path: &str) -> Result<Vec<String>, Otherwise> {
    const BEFORE: usize = 3;
    let parts = path.split('/').filter(|part| !part.is_empty()).skip(BEFORE);
    let decoded = parts.map(|part| percent_decode_str(part).decode_utf8().map(Cow::into_owned));
    decoded.collect::<Result<_, _>>().map_err(|_| ApiError::invalid("", "the path is not UTF-8").into())
}
