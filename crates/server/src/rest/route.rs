//! One route: method, path, handler and description together. The router and the OpenAPI document are both made of a list of these, so
//! that neither has what the other lacks.

use abide_runtime::hands::Store;
use axum::Router;
use axum::http::Method;
use axum::routing::MethodRouter;

use crate::app::App;
use crate::openapi::{Described, Operation};

/// A route.
#[derive(Debug)]
pub(super) struct Route<S> {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) operation: &'static Operation,
    pub(super) handler: MethodRouter<App<S>>,
}

/// `route!(GET "/path", handler, DESCRIPTION)`
macro_rules! route {
    ($method:ident $path:literal, $handler:path, $operation:path) => {
        crate::rest::route::Route {
            method: axum::http::Method::$method,
            path: $path,
            operation: &$operation,
            handler: axum::routing::on(
                axum::routing::MethodFilter::$method,
                crate::rest::route::answered!($handler),
            ),
        }
    };
}

/// A handler with a response made of whatever it answers.
macro_rules! answered {
    ($handler:path) => {
        |axum::extract::State(app): axum::extract::State<crate::app::App<S>>,
         mut asked: crate::asked::Asked| async move {
            let answer = match asked.check(&app) {
                Ok(()) => $handler(&app, &mut asked).await,
                Err(error) => Err(error),
            };
            asked.answer(answer, app.now())
        }
    };
}

pub(super) use {answered, route};

impl<S: Store> Route<S> {
    /// Adds it to a router.
    pub(super) fn add_to(self, router: Router<App<S>>) -> Router<App<S>> {
        router.route(self.path, self.handler)
    }

    /// As the document has it.
    pub(super) fn described(&self) -> Described<'_> {
        Described { method: self.method.as_str(), path: self.path, operation: self.operation }
    }
}
