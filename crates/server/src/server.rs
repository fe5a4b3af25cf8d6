//! The composition root: opens the store, starts the node, listens, and shuts all of it down gracefully.
//!
//! Handles no request itself.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::local::LocalRegisterError;
use abide_dispatch::{ActivityDeclaration, CallFailure, EgressGuard, LocalActivities, LocalInvocation};
use abide_runtime::Node;
use abide_runtime::definitions::Definitions;
use abide_runtime::entity::{EntityKind, EntityKinds};
use abide_runtime::node::EntityActivities;
use abide_store::rows::{PartitionError, PrivateRows};
use abide_store_embedded::{EmbeddedOptions as StoreOptions, EmbeddedStore, StoreOpenError, SyncMode};
use serde_json::Value;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::activity_catalogue::{ActivityCatalogue, CatalogueError};
use crate::app::{App, AppLimits};
use crate::backup::RunningStore;
use crate::config::{Config, ConfigError, SyncConfig};
use crate::data_layout::{Layout, LayoutError};
use crate::origin_check::OriginPolicy;
use crate::readiness_watch::watch_readiness;
use crate::{connections, rest};

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines could reach the server, and there is no authentication.
    #[error(
        "other machines can reach {listen}, and there is no authentication: listen on 127.0.0.1, or pass --insecure if you accept that"
    )]
    InsecureAddress { listen: SocketAddr },
    #[error("cannot listen on {listen}")]
    Listen { listen: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Activities(#[from] LocalRegisterError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error("the operating system provides no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// A running server. Dropping it without [`Server::stop`] is equivalent to a crash, which loses nothing but time.
#[derive(Debug)]
pub struct Server {
    app: App<EmbeddedStore>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// Configures a server with additional activities and entity kinds, and starts it.
pub struct ServerBuilder {
    config: Config,
    activities: Vec<ActivityRegistration>,
    kinds: EntityKinds,
}

/// Registers one activity.
type ActivityRegistration = Box<dyn FnOnce(&mut LocalActivities) -> Result<(), LocalRegisterError> + Send>;

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("config", &self.config)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

impl ServerBuilder {
    pub fn new(config: Config) -> Self {
        Self { config, activities: Vec::new(), kinds: EntityKinds::default() }
    }

    /// Adds an activity: an async function. It may be called more than once for the same work; repeated calls have the
    /// same idempotency key.
    #[must_use]
    pub fn activity<H, F>(mut self, declaration: ActivityDeclaration, handler: H) -> Self
    where
        H: Fn(LocalInvocation) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Arc<Value>, CallFailure>> + Send + 'static,
    {
        self.activities.push(Box::new(|activities| activities.register(declaration, handler)));
        self
    }

    /// Adds an entity type with its operations.
    #[must_use]
    pub fn entity_kind(mut self, entity_type: &str, kind: impl EntityKind + 'static) -> Self {
        self.kinds = self.kinds.with(entity_type, kind);
        self
    }

    /// Starts the server. It listens when this returns, and is ready when [`Server::ready`] resolves.
    pub async fn start(self) -> Result<Server, ServeError> {
        Server::start_with(&self.config, self.activities, self.kinds).await
    }
}

impl Server {
    /// Starts a server with the built-in activities only. It listens when this returns, and is ready when
    /// [`Server::ready`] resolves.
    pub async fn start(config: &Config) -> Result<Self, ServeError> {
        Self::start_with(config, Vec::new(), EntityKinds::default()).await
    }

    /// Listens first, so that a port in use is found before the data folder is created or locked. Then assembles the
    /// app and serves connections until [`App::stop`].
    async fn start_with(
        config: &Config,
        registrations: Vec<ActivityRegistration>,
        kinds: EntityKinds,
    ) -> Result<Self, ServeError> {
        let listen = config.server.listen;
        config.server.check()?;
        check_listen_address(config)?;
        let failed = |source| ServeError::Listen { listen, source };
        let listener = connections::listen(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let app = build_app(config, registrations, kinds).await?;
        let stopping = app.wait_for_stop();
        let draining = app.clone();
        let drain = async move { draining.node().drain().await };
        let connection_config = connections::ConnectionConfig {
            router: rest::router(app.clone()),
            overload_router: rest::overload_router(app.clone()),
            connections_max: config.server.connections_max,
            stall_timeout: Duration::from_millis(config.server.stall_timeout.0),
            load: Arc::clone(app.load()),
        };
        let serving =
            tokio::spawn(connections::serve_connections(listener, connection_config, stopping, drain));
        tokio::spawn(watch_readiness(app.clone()));
        let data = config.store.data.display();
        tracing::info!(%address, %data, shards = config.store.shards, "server started");
        Ok(Self { app, address, serving })
    }

    /// The address it listens on, with the port that the operating system assigned if port 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resolves when requests can be served.
    pub async fn ready(&self) {
        self.app.ready().await;
    }

    /// Stops accepting requests, answers waiting clients, lets calls finish within their grace period and releases the
    /// shards.
    pub async fn stop(self) {
        tracing::info!(address = %self.address, "server shutting down");
        self.app.stop();
        match self.serving.await {
            Ok(()) => tracing::info!(address = %self.address, "server stopped"),
            Err(error) => tracing::error!(address = %self.address, %error, "graceful shutdown failed"),
        }
    }
}

/// The store takes the permissions of others from its folder, unless the folder belongs to another user.
fn warn_if_others_can_read(data: &Path) {
    let mode = data.metadata().map_or(0, |about| about.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(data = %data.display(), mode = format_args!("{:o}", mode & 0o777), "other users can enter the data folder, which belongs to another user");
    }
}

/// There is no authentication, so the server listens on loopback only, unless the operator sets `insecure`.
fn check_listen_address(config: &Config) -> Result<(), ServeError> {
    let listen = config.server.listen;
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !config.server.insecure {
        return Err(ServeError::InsecureAddress { listen });
    }
    tracing::warn!(%listen, "insecure: every client that can reach this address has full access");
    Ok(())
}

/// Assembles what the handlers need. Opens and locks the data folder, which it creates with its layout file if there is
/// none, and starts the node last, with all activity declarations in force.
async fn build_app(
    config: &Config,
    registrations: Vec<ActivityRegistration>,
    kinds: EntityKinds,
) -> Result<App<EmbeddedStore>, ServeError> {
    let mut activities = LocalActivities::with_builtins(EgressGuard::new(config.http.guard()?))?;
    let entity_activities = EntityActivities::default();
    entity_activities.register(&mut activities)?;
    for register in registrations {
        register(&mut activities)?;
    }
    let data = &config.store.data;
    config.store.shard_count()?;
    let sync = match config.store.sync {
        SyncConfig::EveryCommit => SyncMode::EveryCommit,
        SyncConfig::OperatingSystem => {
            tracing::warn!("store.sync is operating-system: a power failure loses acknowledged writes");
            SyncMode::OperatingSystem
        }
    };
    let store = Arc::new(EmbeddedStore::open(data, StoreOptions { sync, ..StoreOptions::default() })?);
    let layout = Layout { shards: config.store.shards };
    layout.write_or_verify(data)?;
    let backup_source = Arc::new(RunningStore { store: Arc::clone(&store), layout });
    warn_if_others_can_read(data);
    let incarnation = getrandom::u64().map_err(ServeError::Random)?;
    let mut options =
        config.node_options(format!("node-{}", Uuid::now_v7()), incarnation, &store.capabilities())?;
    options.shard_config.entity_kinds = kinds;
    let limits = AppLimits {
        body_bytes_max: config.server.body_bytes_max,
        payload_bytes_max: options.shard_config.run_limits.payload_bytes_max,
        reply_timeout: Duration::from_millis(config.server.reply_timeout.0),
        response_bytes_max: config.server.response_bytes_max,
        requests_per_second: config.server.requests_per_second,
        concurrent_sessions_max: config.runtime.max_concurrent_sessions,
    };
    let catalogue =
        ActivityCatalogue::new(&store, activities, config.dispatch.outbound()?, &config.activities)?;
    // Before any call is made: a call to an activity that is not loaded yet would fail permanently.
    catalogue.load().await?;
    options.shard_config.targets = catalogue.targets();
    let definitions = Arc::new(Definitions::new(Arc::clone(&store))?);
    let node = Arc::new(Node::start(store, definitions, catalogue.activity_router(), options)?);
    entity_activities.attach(&node);
    let origin_policy = OriginPolicy::new(config.server.listen, &config.server.hosts);
    let app = App::new(node, catalogue, limits, origin_policy);
    app.set_backup_source(backup_source);
    Ok(app)
}
