//! Why a command could not do its work: what is said, what to do about it, and the exit code.

use std::io;

use abide_client::{ClientError, Code, Detail, Refusal};
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::commands::exit;
use crate::files::FileError;
use crate::say::visible;
use crate::styles::FAINT;

const BAD: Style = AnsiColor::Red.on_default().bold();

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] FileError),
    /// An argument that cannot be used, and what it must be.
    #[error("{0}")]
    Usage(String),
    /// Somebody else than a server of ours is not there.
    #[error("{0}")]
    Unreachable(String),
    /// Somebody was asked, and did not want it.
    #[error("nothing was done")]
    Declined,
    #[error("the operating system refused what the command needs")]
    System(#[from] io::Error),
}

/// What a command asks the server for; if there is no such thing, it says where to look.
#[derive(Clone, Copy)]
pub(crate) enum Sought {
    Instance,
    Workflow,
    Entity,
    Route,
    DeadLetter,
    Dispatch,
    /// Nothing that has a name.
    Unnamed,
}

impl Sought {
    /// What to do if there is no such thing.
    fn hint(self) -> &'static str {
        match self {
            Self::Instance => "`abide list` shows which runs there are",
            Self::Workflow => {
                "`abide workflows list` shows which definitions there are, `abide workflows versions` the versions of one"
            }
            Self::Entity => "`abide entity list` shows which entities there are",
            Self::Route => "`abide route list` shows which routes there are",
            Self::DeadLetter => "`abide dlq list` shows which dead letters there are",
            Self::Dispatch => "`abide dispatches list` shows which calls there are",
            Self::Unnamed => OTHER_VERSION,
        }
    }
}

const OTHER_VERSION: &str = "is it a server of this version? `abide doctor` compares them";

impl Problem {
    /// Says it to standard error; answers the exit code.
    pub(crate) fn tell(&self, sought: Sought, json: bool) -> u8 {
        if json {
            eprintln!("{}", json!({"error": self.to_json()}));
        } else {
            anstream::eprintln!("{BAD}abide:{BAD:#} {}", visible(&with_sources(self)));
            if let Self::Client(ClientError::Refused(refusal)) = self {
                refusal.details.iter().for_each(tell_detail);
            }
            if let Some(hint) = self.hint(sought) {
                anstream::eprintln!("  {FAINT}do:{FAINT:#} {}", visible(&hint));
            }
        }
        self.code()
    }

    fn code(&self) -> u8 {
        match self {
            Self::Client(error) => match error {
                ClientError::Refused(_) => exit::NOT_OK,
                ClientError::Url { .. } | ClientError::Request { .. } => exit::UNUSABLE,
                ClientError::Unreachable { .. }
                | ClientError::Interrupted { .. }
                | ClientError::Timeout { .. }
                | ClientError::Unexpected { .. } => exit::UNREACHABLE,
            },
            Self::Declined => exit::NOT_OK,
            Self::Unreachable(_) => exit::UNREACHABLE,
            Self::File(_) | Self::Usage(_) | Self::System(_) => exit::UNUSABLE,
        }
    }

    /// What to do about it, where that is not in the message.
    fn hint(&self, sought: Sought) -> Option<String> {
        let Self::Client(error) = self else { return None };
        let hint = match error {
            ClientError::Unreachable { .. } => {
                "start a server with `abide serve`, or say where it is with --url or ABIDE_URL; `abide doctor` looks further"
            }
            ClientError::Interrupted { .. } => {
                "whether it was done is not known: look before you ask again (`abide show`, `abide list`)"
            }
            ClientError::Timeout { .. } => {
                "it may still be done: look before you ask again, or wait longer with --timeout"
            }
            ClientError::Unexpected { .. } => OTHER_VERSION,
            ClientError::Url { .. } => "write it as http://127.0.0.1:7070",
            ClientError::Request { .. } => return None,
            ClientError::Refused(refusal) => return hint_for(refusal, sought),
        };
        Some(hint.to_owned())
    }

    fn to_json(&self) -> Value {
        let message = with_sources(self);
        match self {
            // As the server said it.
            Self::Client(ClientError::Refused(refusal)) => json!(refusal),
            Self::Client(_) | Self::Unreachable(_) if self.code() == exit::UNREACHABLE => {
                json!({"code": "UNREACHABLE", "message": message})
            }
            Self::Declined => json!({"code": "DECLINED", "message": message}),
            _ => json!({"code": "UNUSABLE", "message": message}),
        }
    }
}

fn hint_for(refusal: &Refusal, sought: Sought) -> Option<String> {
    match refusal.code {
        Code::InternalError => {
            Some(format!("the server's log has the reason, under correlation id {}", refusal.correlation_id))
        }
        Code::ResourceNotFound => Some(sought.hint().to_owned()),
        Code::RateLimited | Code::ServiceUnavailable => Some("try again in a moment".to_owned()),
        // One place is in the message's own line; several have been listed.
        _ if refusal.details.is_empty() => refusal.target.as_ref().map(|target| format!("look at {target}")),
        _ => None,
    }
}

fn tell_detail(detail: &Detail) {
    let place = if detail.target.is_empty() { "the whole" } else { &detail.target };
    anstream::eprintln!("  {FAINT}-->{FAINT:#} {}: {}", visible(place), visible(&detail.message));
    if let Some(hint) = &detail.hint {
        anstream::eprintln!("      {FAINT}do:{FAINT:#} {}", visible(hint));
    }
}

/// An error with what it came from: its own text does not repeat that.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let told = error.to_string();
        // A transparent error is its own source.
        if told != text {
            text.push_str(": ");
            text.push_str(&told);
        }
        source = error.source();
    }
    text
}
