//! From keys that count per node to options of the runtime, which count per shard; and to what the guard of outgoing calls allows.

use std::time::Duration as StdDuration;

use abide_dispatch::remote::{
    BreakerConfig, LimitError, Outbound, SecretsConfig, SystemSecrets, TargetConfig, TargetLimits,
};
use abide_dispatch::{Guard, GuardConfig};
use abide_runtime::node::Options;
use abide_runtime::placement::ShardCount;
use abide_store::rows::Capabilities;
use abide_workflow::Duration;

use super::{Config, ConfigError, DispatchConfig, HttpConfig, RuntimeConfig, ServerConfig, StoreConfig};
use crate::callers;

/// A shard that could hardly hold anything would refuse what a burst brings.
const WAITING_MIN: usize = 16;

impl StoreConfig {
    /// How many shards.
    pub fn shard_count(&self) -> Result<ShardCount, ConfigError> {
        let (value, expected) = (u64::from(self.shards), "from 1 to 4096");
        ShardCount::new(self.shards).ok_or(ConfigError::Range { key: "store.shards", value, expected })
    }
}

impl ServerConfig {
    /// Names must be names, and somebody must be served.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Some(name) = self.hosts.iter().find(|name| !callers::is_name(name)) {
            return Err(ConfigError::Host { name: name.clone() });
        }
        for (key, nothing) in [
            ("server.connectionsMax", self.connections_max == 0),
            ("server.answerTimeout", self.answer_timeout.0 == 0),
        ] {
            if nothing {
                return Err(ConfigError::Range { key, value: 0, expected: "more than nothing" });
            }
        }
        Ok(())
    }
}

impl HttpConfig {
    /// What may be called.
    pub fn guard(&self) -> Result<GuardConfig, ConfigError> {
        guard("http.allow", &self.allow)
    }
}

impl DispatchConfig {
    /// The way out to declared activities.
    pub fn outbound(&self) -> Result<Outbound, ConfigError> {
        self.check()?;
        let secrets = SecretsConfig {
            env_prefix: self.secrets_env_prefix.clone(),
            folders: self.secrets_folders.clone(),
        };
        let breaker = BreakerConfig {
            troubles: self.circuit_troubles,
            pause: StdDuration::from_millis(self.circuit_pause.0),
            pause_max: StdDuration::from_millis(self.circuit_pause_max.0.max(self.circuit_pause.0)),
        };
        let guard = Guard::new(guard("dispatch.allow", &self.allow)?);
        let targets = TargetConfig { breaker, limits: self.target_limits()? };
        Ok(Outbound::new(guard, SystemSecrets::new(secrets), targets)?)
    }

    /// What one target takes of all activities together.
    pub(super) fn target_limits(&self) -> Result<TargetLimits, ConfigError> {
        let limits = TargetLimits::new(self.target_concurrency, self.target_rate_per_second);
        limits.map_err(|reason| {
            let key = match reason {
                LimitError::Concurrency(_) => "dispatch.targetConcurrency",
                LimitError::Rate(_) => "dispatch.targetRatePerSecond",
            };
            ConfigError::Limit { key, reason }
        })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let expected = "more than nothing";
        for (key, nothing) in [
            ("dispatch.circuitTroubles", self.circuit_troubles == 0),
            ("dispatch.circuitPause", self.circuit_pause.0 == 0),
            ("dispatch.reconcileEvery", self.reconcile_every.0 == 0),
        ] {
            if nothing {
                return Err(ConfigError::Range { key, value: 0, expected });
            }
        }
        for (key, Duration(value)) in [
            ("dispatch.circuitPause", self.circuit_pause),
            ("dispatch.circuitPauseMax", self.circuit_pause_max),
            ("dispatch.reconcileEvery", self.reconcile_every),
        ] {
            if u128::from(value) > BreakerConfig::PAUSE_LIMIT.as_millis() {
                let expected = "at most P1D, which is 86400000 milliseconds";
                return Err(ConfigError::Range { key, value, expected });
            }
        }
        Ok(())
    }
}

fn guard(key: &'static str, allow: &[String]) -> Result<GuardConfig, ConfigError> {
    let allow = allow.iter().map(|entry| entry.parse()).collect::<Result<_, _>>();
    let allow = allow.map_err(|source| ConfigError::Allow { key, source })?;
    Ok(GuardConfig { allow, ..GuardConfig::default() })
}

impl Config {
    /// Options for a new incarnation of a node on a store.
    pub fn node_options(
        &self,
        node: String,
        incarnation: u64,
        capabilities: &Capabilities,
    ) -> Result<Options, ConfigError> {
        let count = self.store.shard_count()?;
        let shards = self.store.shards as usize;
        let runtime = &self.runtime;
        runtime.check()?;
        let mut shard = abide_runtime::Config::new(node, incarnation, count, capabilities);
        shard.waiting_max = (runtime.max_concurrent_orchestrator_functions / shards).max(WAITING_MIN);
        shard.resting_bytes_max = runtime.hot_instances_bytes / shards;
        if !runtime.extended_sessions_enabled {
            shard.resting_bytes_max = 0;
            shard.resting_max = StdDuration::ZERO;
        }
        shard.retention = runtime.retention;
        shard.repeat_window = runtime.idempotency_window;
        shard.resolves_secrets = true;
        shard.reconcile_every = StdDuration::from_millis(self.dispatch.reconcile_every.0);
        shard.overdue_per_second = (runtime.recovery_rate / self.store.shards).max(1);
        Ok(Options {
            shard,
            activities_max: runtime.max_concurrent_activity_functions,
            drain_grace: StdDuration::from_millis(runtime.drain_grace.0),
        })
    }
}

impl RuntimeConfig {
    /// None of these may be nothing: no work would ever be done.
    fn check(&self) -> Result<(), ConfigError> {
        let expected = "at least 1";
        for (key, nothing) in [
            ("runtime.maxConcurrentActivityFunctions", self.max_concurrent_activity_functions == 0),
            ("runtime.maxConcurrentSessions", self.max_concurrent_sessions == 0),
            ("runtime.maxConcurrentOrchestratorFunctions", self.max_concurrent_orchestrator_functions == 0),
            ("runtime.recoveryRate", self.recovery_rate == 0),
        ] {
            if nothing {
                return Err(ConfigError::Range { key, value: 0, expected });
            }
        }
        Ok(())
    }
}
