//! The composition root: opens the store, starts the node, listens; and takes all of it down in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::local::RegisterError;
use abide_dispatch::{Activities, Declaration, Failure, Guard, Invocation};
use abide_runtime::Node;
use abide_runtime::definitions::Definitions;
use abide_runtime::entity::{EntityKind, Kinds};
use abide_runtime::node::EntityDesk;
use abide_store::rows::{PartitionError, PrivateRows};
use abide_store_embedded::{EmbeddedStore, OpenError, Options as StoreOptions, SyncMode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::app::{App, AppLimits};
use crate::callers::Callers;
use crate::catalogue::{Catalogue, CatalogueError};
use crate::config::{Config, ConfigError, Sync};
use crate::layout::{Layout, LayoutError};
use crate::{listen, rest};

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Everybody could reach it, and nobody is asked who they are.
    #[error(
        "{listen} can be reached by others, and nobody is asked who they are: listen on 127.0.0.1, or say --insecure if that is meant"
    )]
    OpenToAll {
        /// The address.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{listen} cannot be listened on")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The data folder.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The activities.
    #[error(transparent)]
    Activities(#[from] RegisterError),
    /// What is declared of activities.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// No random numbers.
    #[error("the operating system has no random numbers: {0}")]
    Random(getrandom::Error),
    /// A partition's name.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// A server at work. Dropping it without [`Server::stop`] is as good as a crash, which loses nothing but time.
#[derive(Debug)]
pub struct Server {
    app: App<EmbeddedStore>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// A server to be started, with activities and kinds of entities of its own.
pub struct Builder {
    config: Config,
    own: Vec<Registration>,
    kinds: Kinds,
}

/// Registers one activity.
type Registration = Box<dyn FnOnce(&mut Activities) -> Result<(), RegisterError> + Send>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// A server that is configured so.
    pub fn new(config: Config) -> Self {
        Self { config, own: Vec::new(), kinds: Kinds::default() }
    }

    /// With this activity, an async function. It may be delivered more than once; its idempotency key says what is the same.
    #[must_use]
    pub fn activity<H, F>(mut self, declaration: Declaration, handler: H) -> Self
    where
        H: Fn(Invocation) -> F + Send + std::marker::Sync + 'static,
        F: Future<Output = Result<Arc<Value>, Failure>> + Send + 'static,
    {
        self.own.push(Box::new(|activities| activities.register(declaration, handler)));
        self
    }

    /// With entities of this type having these operations.
    #[must_use]
    pub fn entity_kind(mut self, entity_type: &str, kind: impl EntityKind + 'static) -> Self {
        self.kinds = self.kinds.with(entity_type, kind);
        self
    }

    /// Starts it: it listens when this returns, and is ready when [`Server::ready`] says so.
    pub async fn start(self) -> Result<Server, ServeError> {
        Server::with(&self.config, self.own, self.kinds).await
    }
}

impl Server {
    /// Starts a server with the built-in activities: it listens when this returns, and is ready when [`Server::ready`] says so.
    pub async fn start(config: &Config) -> Result<Self, ServeError> {
        Self::with(config, Vec::new(), Kinds::default()).await
    }

    async fn with(config: &Config, own: Vec<Registration>, kinds: Kinds) -> Result<Self, ServeError> {
        let listen = config.server.listen;
        config.server.check()?;
        may_listen(config)?;
        let failed = |source| ServeError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let app = open(config, own, kinds).await?;
        let (stopping, draining) = (app.stopping(), app.clone());
        let drained = async move { draining.node().drain().await };
        let served = listen::Served {
            all: rest::router(app.clone()),
            reserve: rest::reserve(app.clone()),
            connections_max: config.server.connections_max,
        };
        let serving = tokio::spawn(listen::serve(listener, served, stopping, drained));
        Ok(Self { app, address, serving })
    }

    /// Where it listens; the port is the one it got, if it asked for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resolves when requests can be served.
    pub async fn ready(&self) {
        self.app.ready().await;
    }

    /// Takes nothing new, answers who waits, lets calls end within their grace, gives up the shards.
    pub async fn stop(self) {
        self.app.stop();
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "the server did not stop in order");
        }
    }
}

/// Nobody is asked who they are, so only this machine may be served, unless it is said that everybody may.
fn may_listen(config: &Config) -> Result<(), ServeError> {
    let listen = config.server.listen;
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !config.server.insecure {
        return Err(ServeError::OpenToAll { listen });
    }
    tracing::warn!(%listen, "insecure: whoever can reach this address can do everything");
    Ok(())
}

async fn open(
    config: &Config,
    own: Vec<Registration>,
    kinds: Kinds,
) -> Result<App<EmbeddedStore>, ServeError> {
    let mut activities = Activities::with_builtins(Guard::new(config.http.guard()?))?;
    let desk = EntityDesk::default();
    desk.register(&mut activities)?;
    for register in own {
        register(&mut activities)?;
    }
    let data = &config.store.data;
    config.store.shard_count()?;
    let sync = match config.store.sync {
        Sync::EveryCommit => SyncMode::EveryCommit,
        Sync::OperatingSystem => {
            tracing::warn!("store.sync is operating-system: a power cut loses what was acknowledged");
            SyncMode::OperatingSystem
        }
    };
    let store = Arc::new(EmbeddedStore::open(data, StoreOptions { sync, ..StoreOptions::default() })?);
    Layout { shards: config.store.shards }.settle(data)?;
    let incarnation = getrandom::u64().map_err(ServeError::Random)?;
    let mut options =
        config.node_options(format!("node-{}", Uuid::now_v7()), incarnation, &store.capabilities())?;
    options.shard.kinds = kinds;
    let limits = AppLimits {
        body_bytes_max: config.server.body_bytes_max,
        payload_bytes_max: options.shard.run.payload_bytes_max,
        answer_max: Duration::from_millis(config.server.answer_timeout.0),
        requests_per_second: config.server.requests_per_second,
        sessions_max: config.runtime.max_concurrent_sessions,
    };
    let catalogue = Catalogue::new(&store, activities, config.dispatch.outbound()?, &config.activities)?;
    // Before any call is made: one to an activity that is not there yet would fail for good.
    catalogue.load().await?;
    options.shard.targets = catalogue.targets();
    let definitions = Arc::new(Definitions::new(Arc::clone(&store))?);
    let node = Arc::new(Node::start(store, definitions, catalogue.everywhere(), options)?);
    desk.open(&node);
    Ok(App::new(node, catalogue, limits, Callers::new(config.server.listen, &config.server.hosts)))
}
