//! The configuration file: every key with its type and its default. docs/reference/abide.toml says what each is for.
//!
//! What the command line and the environment say goes before the file. Nothing here opens or starts anything.

mod iso;
mod mistake;
mod options;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use abide_dispatch::remote::RemoteDeclaration;
use abide_workflow::Duration;
use serde::{Deserialize, Serialize};

/// Everything that can be configured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The HTTP interface.
    pub server: ServerConfig,
    /// Where everything is kept.
    pub store: StoreConfig,
    /// How runs are worked on.
    pub runtime: RuntimeConfig,
    /// What the activity `http.request` may reach.
    pub http: HttpConfig,
    /// How activities of other services are called.
    pub dispatch: DispatchConfig,
    /// The activities of other services.
    pub activities: Vec<RemoteDeclaration>,
}

/// `[server]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ServerConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Whether an address that others can reach may be listened on, though nobody is asked who they are.
    pub insecure: bool,
    /// Names it is reached by, besides `localhost` and addresses.
    pub hosts: Vec<String>,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// How long the runtime and the store may take for an answer.
    #[serde(with = "iso")]
    pub answer_timeout: Duration,
    /// Connections at the same time.
    pub connections_max: usize,
    /// Requests in a second, of all clients together; 0 if there is no limit.
    pub requests_per_second: u32,
}

/// `[store]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct StoreConfig {
    /// The folder.
    pub data: PathBuf,
    /// How many shards a new store is divided into. Fixed from then on.
    pub shards: u32,
    /// When a commit is acknowledged.
    pub sync: Sync,
}

/// `store.sync`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// When it is forced to the disk.
    #[default]
    EveryCommit,
    /// When the operating system has it: a power cut loses what was acknowledged.
    OperatingSystem,
}

/// `[runtime]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RuntimeConfig {
    /// Activities that run at the same time on this node.
    pub max_concurrent_activity_functions: usize,
    /// Instances with waiting work on this node; more are told to come back.
    pub max_concurrent_orchestrator_functions: usize,
    /// Sessions whose events are taken at the same time on this node; more wait their turn.
    pub max_concurrent_sessions: usize,
    /// Whether instances stay in memory between turns.
    pub extended_sessions_enabled: bool,
    /// Bytes of memory for them on this node.
    pub hot_instances_bytes: usize,
    /// How long an ended run is kept.
    #[serde(with = "iso")]
    pub retention: Duration,
    /// How long a repeated request is recognised.
    #[serde(with = "iso")]
    pub idempotency_window: Duration,
    /// Overdue work taken up per second on this node after a restart.
    pub recovery_rate: u32,
    /// How long calls under way may go on when the server is stopped.
    #[serde(with = "iso")]
    pub drain_grace: Duration,
}

/// `[http]`
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HttpConfig {
    /// Hosts, addresses and networks that may be called though they are private.
    pub allow: Vec<String>,
}

/// `[dispatch]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DispatchConfig {
    /// Hosts, addresses and networks that declared activities may be at though they are private.
    pub allow: Vec<String>,
    /// What the names of variables must begin with that secrets may be in.
    pub secrets_env_prefix: String,
    /// Folders whose files may be secrets.
    pub secrets_folders: Vec<PathBuf>,
    /// Troubles in a row after which a target is left alone for a while.
    pub circuit_troubles: u32,
    /// The first while.
    #[serde(with = "iso")]
    pub circuit_pause: Duration,
    /// The longest while.
    #[serde(with = "iso")]
    pub circuit_pause_max: Duration,
    /// Deliveries under way to one target, of all activities together.
    pub target_concurrency: Option<u32>,
    /// Deliveries to one target begun in a second, of all activities together.
    pub target_rate_per_second: Option<f64>,
    /// How often the records of calls are held against what is under way.
    #[serde(with = "iso")]
    pub reconcile_every: Duration,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            secrets_env_prefix: "ABIDE_SECRET_".to_owned(),
            secrets_folders: Vec::new(),
            circuit_troubles: 10,
            circuit_pause: Duration::seconds(1),
            circuit_pause_max: Duration::seconds(30),
            target_concurrency: None,
            target_rate_per_second: None,
            reconcile_every: Duration::seconds(30),
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
            answer_timeout: Duration::seconds(10),
            connections_max: 10_000,
            requests_per_second: 0,
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { data: PathBuf::from("./abide-data"), shards: 8, sync: Sync::default() }
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            max_concurrent_activity_functions: 1_000,
            max_concurrent_orchestrator_functions: 10_000,
            max_concurrent_sessions: 1_024,
            extended_sessions_enabled: true,
            hot_instances_bytes: 64 * 1024 * 1024,
            retention: Duration::hours(30 * 24),
            idempotency_window: Duration::hours(7 * 24),
            recovery_rate: 6_000,
            drain_grace: Duration::seconds(30),
        }
    }
}

/// What goes before the file.
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
    /// The file cannot be read.
    #[error("{} cannot be read", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file is not as it should be.
    #[error("{}: {reason}", file.display())]
    Invalid {
        /// Which.
        file: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A value out of its range.
    #[error("{key} is {value}; it must be {expected}")]
    Range {
        /// Which, with its table.
        key: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// An entry of `server.hosts`.
    #[error("server.hosts: {name:?} is no name of a server; write it without scheme, port and path")]
    Host {
        /// Which.
        name: String,
    },
    /// An entry of `http.allow` or `dispatch.allow`.
    #[error("{key}: {source}")]
    Allow {
        /// Which list.
        key: &'static str,
        /// What is wrong with it.
        source: abide_dispatch::guard::AllowedError,
    },
    /// A limit of what one target takes.
    #[error("{key}: {reason}")]
    Limit {
        /// Which.
        key: &'static str,
        /// What is wrong with it.
        reason: abide_dispatch::remote::LimitError,
    },
    /// Nobody could be called over TLS.
    #[error(transparent)]
    Tls(#[from] abide_dispatch::TlsError),
}

impl Config {
    /// The defaults, changed by a file if there is one, changed by what goes before it.
    pub fn load(file: Option<&Path>, overrides: Overrides) -> Result<Self, ConfigError> {
        let mut config = match file {
            None => Self::default(),
            Some(file) => {
                let unreadable = |source| ConfigError::Unreadable { file: file.to_owned(), source };
                let text = std::fs::read_to_string(file).map_err(unreadable)?;
                let invalid = |reason: String| ConfigError::Invalid { file: file.to_owned(), reason };
                Self::parse(&text).map_err(|error| invalid(mistake::told(&error, &text)))?
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
