//! The error of a command: its message, a hint on what to do, and the exit code. The same error is always reported in
//! the same way, whatever the command.

use std::io;

use abide_client::{ClientError, ErrorCode, ErrorDetail, ErrorResponse};
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::commands::exit;
use crate::files::FileError;
use crate::output::{errln, escape_control_chars};
use crate::styles::FAINT;

const ERROR_STYLE: Style = AnsiColor::Red.on_default().bold();

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] FileError),
    /// An unusable argument. The message says what it must be.
    #[error("{0}")]
    Usage(String),
    /// A service other than the Abide server cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The user did not confirm.
    #[error("cancelled: nothing was done")]
    Declined,
    #[error("operating system error")]
    System(#[from] io::Error),
}

/// The kind of resource a command works on. If the resource does not exist, the hint names the command that lists them.
#[derive(Clone, Copy)]
pub(crate) enum ResourceKind {
    Instance,
    Workflow,
    Entity,
    EventRoute,
    DeadLetter,
    Call,
    /// No single resource.
    Other,
}

impl ResourceKind {
    /// The hint for a resource that does not exist.
    fn hint(self) -> &'static str {
        match self {
            Self::Instance => "`abide list` lists the runs",
            Self::Workflow => {
                "`abide workflows list` lists the definitions, `abide workflows versions` the versions of one"
            }
            Self::Entity => "`abide entity list` lists the entities",
            Self::EventRoute => "`abide route list` lists the event routes",
            Self::DeadLetter => "`abide dlq list` lists the dead letters",
            Self::Call => "`abide dispatches list` lists the calls",
            Self::Other => OTHER_VERSION_HINT,
        }
    }
}

const OTHER_VERSION_HINT: &str =
    "check that the server has the version of this command: `abide doctor` compares them";

impl CliError {
    /// Prints the error to standard error and returns the exit code.
    pub(crate) fn report(&self, resource: ResourceKind, json: bool) -> u8 {
        if json {
            errln!("{}", json!({"error": self.to_json()}));
        } else {
            errln!("{ERROR_STYLE}abide:{ERROR_STYLE:#} {}", escape_control_chars(&error_chain(self)));
            if let Self::Client(ClientError::Refused(response)) = self {
                response.details.iter().for_each(report_detail);
            }
            if let Some(hint) = self.hint(resource) {
                errln!("  {FAINT}hint:{FAINT:#} {}", escape_control_chars(&hint));
            }
        }
        self.exit_code()
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) => match error {
                ClientError::Refused(_) => exit::FAILED,
                ClientError::InvalidUrl { .. } | ClientError::InvalidRequest { .. } => exit::USAGE_ERROR,
                ClientError::Unreachable { .. }
                | ClientError::Interrupted { .. }
                | ClientError::Timeout { .. }
                | ClientError::UnexpectedResponse { .. } => exit::UNREACHABLE,
            },
            Self::Declined => exit::FAILED,
            Self::Unreachable(_) => exit::UNREACHABLE,
            Self::File(_) | Self::Usage(_) | Self::System(_) => exit::USAGE_ERROR,
        }
    }

    /// Says what to do, where the message does not.
    fn hint(&self, resource: ResourceKind) -> Option<String> {
        let Self::Client(error) = self else { return None };
        let hint = match error {
            ClientError::Unreachable { .. } => {
                "start a server with `abide serve`, or give its address with --url or ABIDE_URL; `abide doctor` checks further"
            }
            ClientError::Interrupted { .. } => {
                "the outcome is unknown: check before retrying (`abide show`, `abide list`)"
            }
            ClientError::Timeout { .. } => {
                "the request may still take effect: check before retrying, or wait longer with --timeout"
            }
            ClientError::UnexpectedResponse { .. } => OTHER_VERSION_HINT,
            ClientError::InvalidUrl { .. } => "give a URL such as http://127.0.0.1:7070",
            ClientError::InvalidRequest { .. } => return None,
            ClientError::Refused(response) => return error_response_hint(response, resource),
        };
        Some(hint.to_owned())
    }

    fn to_json(&self) -> Value {
        let message = error_chain(self);
        match self {
            // The server's own error, unchanged.
            Self::Client(ClientError::Refused(response)) => json!(response),
            Self::Client(_) | Self::Unreachable(_) if self.exit_code() == exit::UNREACHABLE => {
                json!({"code": "UNREACHABLE", "message": message})
            }
            Self::Declined => json!({"code": "DECLINED", "message": message}),
            _ => json!({"code": "UNUSABLE", "message": message}),
        }
    }
}

fn error_response_hint(response: &ErrorResponse, resource: ResourceKind) -> Option<String> {
    match response.code {
        ErrorCode::InternalError => {
            Some(format!("the server's log has the reason, under correlation id {}", response.correlation_id))
        }
        ErrorCode::ResourceNotFound => Some(resource.hint().to_owned()),
        ErrorCode::RateLimited | ErrorCode::ServiceUnavailable => Some("try again in a moment".to_owned()),
        // Several places have been listed as details already.
        _ if response.details.is_empty() => response.target.as_ref().map(|target| format!("check {target}")),
        _ => None,
    }
}

fn report_detail(detail: &ErrorDetail) {
    let place = if detail.target.is_empty() { "the whole request" } else { &detail.target };
    errln!(
        "  {FAINT}-->{FAINT:#} {}: {}",
        escape_control_chars(place),
        escape_control_chars(&detail.message)
    );
    if let Some(hint) = &detail.hint {
        errln!("      {FAINT}hint:{FAINT:#} {}", escape_control_chars(hint));
    }
}

/// An error followed by its sources. The text of an error does not repeat that of its source.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // A transparent error has the same text as its source.
        if cause != text {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}
