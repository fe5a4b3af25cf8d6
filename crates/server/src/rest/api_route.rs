//! One API route: method, path, handler and description together. Knows no particular route.
//!
//! The router and the OpenAPI document are both built from the same list of routes, so neither can lack what the other
//! has.

use abide_store::Store;
use axum::Router;
use axum::http::Method;
use axum::routing::MethodRouter;

use crate::app::App;
use crate::openapi::{DocumentedRoute, OperationSpec};

#[derive(Debug)]
pub(super) struct ApiRoute<S> {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) operation: &'static OperationSpec,
    pub(super) handler: MethodRouter<App<S>>,
}

/// `route!(GET "/path", handler, DESCRIPTION)`
macro_rules! route {
    ($method:ident $path:literal, $handler:path, $operation:path) => {
        crate::rest::api_route::ApiRoute {
            method: axum::http::Method::$method,
            path: $path,
            operation: &$operation,
            handler: axum::routing::on(
                axum::routing::MethodFilter::$method,
                crate::rest::api_route::handler!($handler),
            ),
        }
    };
}

/// Wraps a handler: checks the admission of the request first, and turns errors into responses. A response without room
/// is made again when there is room.
macro_rules! handler {
    ($handler:path) => {
        |axum::extract::State(app): axum::extract::State<crate::app::App<S>>,
         mut request: crate::api_request::ApiRequest| async move {
            if let Err(error) = request.check_admission(&app) {
                return request.respond(Err(error), app.now());
            }
            let mut share = crate::response_share::ResponseShare::default();
            loop {
                let result = $handler(&app, &mut request).await;
                let response = request.respond(result, app.now());
                if !crate::response_share::needs_share(&request, &response) {
                    return response;
                }
                match share.admit(&app, request.method().is_safe(), response).await {
                    Ok(Some(response)) => return response,
                    Ok(None) => {}
                    Err(refusal) => return request.respond(Err(refusal), app.now()),
                }
            }
        }
    };
}

pub(super) use {handler, route};

impl<S: Store> ApiRoute<S> {
    pub(super) fn add_to(self, router: Router<App<S>>) -> Router<App<S>> {
        router.route(self.path, self.handler)
    }

    /// The part of the route that the OpenAPI document shows.
    pub(super) fn documented(&self) -> DocumentedRoute<'_> {
        DocumentedRoute { method: self.method.as_str(), path: self.path, operation: self.operation }
    }
}
