//! The configuration file: every key with its type and default. docs/reference/abide.toml explains each key.
//!
//! Command line and environment take precedence over the file. Nothing here opens or starts anything.

mod error_message;
mod iso;
mod options;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use abide_dispatch::remote::RemoteDeclaration;
use abide_workflow::{Duration, Limits};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: ServerConfig,
    pub store: StoreConfig,
    pub runtime: RuntimeConfig,
    /// The hosts that the activity `http.request` may reach.
    pub http: HttpConfig,
    /// How remote activities are called.
    pub dispatch: DispatchConfig,
    /// The remote activities.
    pub activities: Vec<RemoteDeclaration>,
}

/// `[server]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// Allows an address that other machines can reach, although there is no authentication.
    pub insecure: bool,
    /// Host names under which the server is reached, besides `localhost` and addresses.
    pub hosts: Vec<String>,
    /// Of a request's body.
    pub body_bytes_max: usize,
    /// How long a request waits for the runtime or the store.
    #[serde(with = "iso")]
    pub reply_timeout: Duration,
    pub connections_max: usize,
    /// Of the large responses that clients have not taken yet, over all connections.
    pub response_bytes_max: usize,
    /// How long a client may take nothing of a response.
    #[serde(with = "iso")]
    pub stall_timeout: Duration,
    /// Over all clients together; 0 means no limit.
    pub requests_per_second: u32,
}

/// `[store]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct StoreConfig {
    /// The data folder.
    pub data: PathBuf,
    /// The number of shards of a new store. It cannot be changed later.
    pub shards: u32,
    /// When a commit is acknowledged.
    pub sync: SyncConfig,
}

/// `store.sync`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncConfig {
    /// When it is on disk.
    #[default]
    EveryCommit,
    /// When the operating system has it: a power failure loses acknowledged writes.
    OperatingSystem,
}

/// `[runtime]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RuntimeConfig {
    /// Activity calls in flight at the same time on this node.
    pub max_concurrent_activity_functions: usize,
    /// Instances with queued work on this node; requests beyond that are rejected as transient errors.
    pub max_concurrent_orchestrator_functions: usize,
    /// Bytes of requests to which this node owes a reply; requests beyond that are rejected as transient errors.
    pub unanswered_bytes_max: usize,
    /// Sessions whose events are recorded at the same time on this node; others wait.
    pub max_concurrent_sessions: usize,
    /// Keeps instances in memory between turns.
    pub extended_sessions_enabled: bool,
    /// Memory for these idle instances on this node.
    pub idle_instances_bytes: usize,
    /// How long an ended run is retained.
    #[serde(with = "iso")]
    pub retention: Duration,
    /// How long an idempotency key is recognised.
    #[serde(with = "iso")]
    pub idempotency_window: Duration,
    /// Overdue work resumed per second on this node after a restart.
    pub recovery_rate: u32,
    /// Unclean ends in a row from which on stored work is recovered one instance at a time.
    pub careful_after_unclean_ends: u32,
    /// Runs that may be above a run that was started as a child.
    pub child_depth_max: u32,
    /// Bytes of one input or result of an activity.
    pub call_bytes_max: u64,
    /// How long calls in flight may continue when the server shuts down.
    #[serde(with = "iso")]
    pub drain_grace: Duration,
}

/// `[http]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HttpConfig {
    /// Private hosts, addresses and networks that may be called.
    pub allow: Vec<String>,
}

/// `[dispatch]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DispatchConfig {
    /// Private hosts, addresses and networks that remote activities may be at.
    pub allow: Vec<String>,
    /// Only environment variables with this prefix can be used as secrets.
    pub secrets_env_prefix: String,
    /// Folders whose files can be used as secrets.
    pub secrets_folders: Vec<PathBuf>,
    /// The number of consecutive failures that opens a target's circuit breaker.
    pub circuit_failure_threshold: u32,
    /// How long a circuit breaker stays open the first time.
    #[serde(with = "iso")]
    pub circuit_open_duration: Duration,
    /// The longest time a circuit breaker stays open.
    #[serde(with = "iso")]
    pub circuit_open_duration_max: Duration,
    /// Attempts in flight to one target, over all activities together.
    pub target_concurrency: Option<u32>,
    /// Attempts started per second to one target, over all activities together.
    pub target_rate_per_second: Option<f64>,
    /// How often the records of calls are compared with the attempts in flight.
    #[serde(with = "iso")]
    pub reconcile_interval: Duration,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            secrets_env_prefix: "ABIDE_SECRET_".to_owned(),
            secrets_folders: Vec::new(),
            circuit_failure_threshold: 10,
            circuit_open_duration: Duration::seconds(1),
            circuit_open_duration_max: Duration(1_500),
            target_concurrency: None,
            target_rate_per_second: None,
            reconcile_interval: Duration::seconds(30),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070));
        Self {
            listen,
            insecure: false,
            hosts: Vec::new(),
            body_bytes_max: 1024 * 1024,
            reply_timeout: Duration::seconds(10),
            connections_max: 10_000,
            response_bytes_max: 64 * 1024 * 1024,
            stall_timeout: Duration::seconds(30),
            requests_per_second: 0,
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { data: PathBuf::from("./abide-data"), shards: 8, sync: SyncConfig::default() }
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            max_concurrent_activity_functions: 1_000,
            max_concurrent_orchestrator_functions: 10_000,
            unanswered_bytes_max: 256 * 1024 * 1024,
            max_concurrent_sessions: 1_024,
            extended_sessions_enabled: true,
            idle_instances_bytes: 64 * 1024 * 1024,
            retention: Duration::hours(30 * 24),
            idempotency_window: Duration::hours(7 * 24),
            recovery_rate: 6_000,
            careful_after_unclean_ends: 2,
            child_depth_max: 32,
            call_bytes_max: Limits::CALL_BYTES_MAX,
            drain_grace: Duration::seconds(30),
        }
    }
}

/// Settings of the command line and the environment, which take precedence over the file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Overrides {
    /// `--listen`, `ABIDE_LISTEN`
    pub listen: Option<SocketAddr>,
    /// `--data`, `ABIDE_DATA`
    pub data: Option<PathBuf>,
    /// `--insecure`
    pub insecure: bool,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{} cannot be read", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("{}: {reason}", file.display())]
    Invalid {
        file: PathBuf,
        /// The problem and its position.
        reason: String,
    },
    /// A value outside its range.
    #[error("{key} is {value}; it must be {expected}")]
    Range {
        /// With its table.
        key: &'static str,
        value: u64,
        expected: &'static str,
    },
    /// An invalid entry of `server.hosts`.
    #[error("server.hosts: {name:?} is not a host name; write it without scheme, port and path")]
    Host { name: String },
    /// An invalid entry of `http.allow` or `dispatch.allow`.
    #[error("{key}: {source}")]
    Allow { key: &'static str, source: abide_dispatch::egress_guard::AllowEntryError },
    /// An invalid limit for targets.
    #[error("{key}: {reason}")]
    Limit { key: &'static str, reason: abide_dispatch::remote::LimitError },
    /// TLS for outgoing calls cannot be set up.
    #[error(transparent)]
    Tls(#[from] abide_dispatch::TlsError),
}

impl Config {
    /// The defaults, overridden by the file if there is one, overridden by `overrides`. Ranges are checked later, when
    /// the server starts.
    pub fn load(file: Option<&Path>, overrides: Overrides) -> Result<Self, ConfigError> {
        let mut config = match file {
            None => Self::default(),
            Some(file) => {
                let unreadable = |source| ConfigError::Unreadable { file: file.to_owned(), source };
                let text = std::fs::read_to_string(file).map_err(unreadable)?;
                let invalid = |reason: String| ConfigError::Invalid { file: file.to_owned(), reason };
                Self::parse(&text).map_err(|error| invalid(error_message::redacted_message(&error, &text)))?
            }
        };
        config.server.listen = overrides.listen.unwrap_or(config.server.listen);
        config.server.insecure |= overrides.insecure;
        if let Some(data) = overrides.data {
            config.store.data = data;
        }
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}

#[cfg(test)]
mod tests;
