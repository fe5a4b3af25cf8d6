//! Converts the configuration, which counts per node, into the options of the runtime, which count per shard, and into
//! the options of outgoing calls. Validates ranges; reads no file.

use std::time::Duration as StdDuration;

use abide_dispatch::remote::{
    BreakerConfig, LimitError, Outbound, SecretsConfig, SystemSecrets, TargetConfig, TargetLimits,
};
use abide_dispatch::{EgressGuard, EgressGuardConfig};
use abide_runtime::node::NodeOptions;
use abide_runtime::placement::ShardCount;
use abide_store::rows::Capabilities;
use abide_workflow::{Duration, Limits};

use super::{Config, ConfigError, DispatchConfig, HttpConfig, RuntimeConfig, ServerConfig, StoreConfig};
use crate::origin_check;

/// A shard with a shorter queue would reject ordinary bursts.
const WAITING_PER_SHARD_MIN: usize = 16;

impl StoreConfig {
    /// Fails for a number of shards that no store can have; checked before a data folder is created.
    pub fn shard_count(&self) -> Result<ShardCount, ConfigError> {
        let value = u64::from(self.shards);
        let expected = "from 1 to 4096";
        ShardCount::new(self.shards).ok_or(ConfigError::Range { key: "store.shards", value, expected })
    }
}

impl ServerConfig {
    /// Host names must be valid, at least one connection and one byte must be allowed, and the times must not be zero.
    /// Whether the address is safe is decided in `server.rs`.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Some(name) = self.hosts.iter().find(|name| !origin_check::is_host_name(name)) {
            return Err(ConfigError::Host { name: name.clone() });
        }
        for (key, is_zero) in [
            ("server.connectionsMax", self.connections_max == 0),
            ("server.responseBytesMax", self.response_bytes_max == 0),
            ("server.stallTimeout", self.stall_timeout.0 == 0),
            ("server.replyTimeout", self.reply_timeout.0 == 0),
        ] {
            if is_zero {
                return Err(ConfigError::Range { key, value: 0, expected: "greater than 0" });
            }
        }
        Ok(())
    }
}

impl HttpConfig {
    /// The egress guard of `http.request`.
    pub fn guard(&self) -> Result<EgressGuardConfig, ConfigError> {
        guard_config("http.allow", &self.allow)
    }
}

impl DispatchConfig {
    /// The shared parts of all calls to remote activities.
    pub fn outbound(&self) -> Result<Outbound, ConfigError> {
        self.check()?;
        let secrets = SecretsConfig {
            env_prefix: self.secrets_env_prefix.clone(),
            folders: self.secrets_folders.clone(),
        };
        let breaker = BreakerConfig {
            failure_threshold: self.circuit_failure_threshold,
            open_duration: StdDuration::from_millis(self.circuit_open_duration.0),
            open_duration_max: StdDuration::from_millis(
                self.circuit_open_duration_max.0.max(self.circuit_open_duration.0),
            ),
        };
        let guard = EgressGuard::new(guard_config("dispatch.allow", &self.allow)?);
        let targets = TargetConfig { breaker, limits: self.target_limits()? };
        Ok(Outbound::new(guard, SystemSecrets::new(secrets), targets)?)
    }

    /// The limits of one target, over all activities together.
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
        let expected = "greater than 0";
        for (key, is_zero) in [
            ("dispatch.circuitFailureThreshold", self.circuit_failure_threshold == 0),
            ("dispatch.circuitOpenDuration", self.circuit_open_duration.0 == 0),
            ("dispatch.reconcileInterval", self.reconcile_interval.0 == 0),
        ] {
            if is_zero {
                return Err(ConfigError::Range { key, value: 0, expected });
            }
        }
        for (key, Duration(value)) in [
            ("dispatch.circuitOpenDuration", self.circuit_open_duration),
            ("dispatch.circuitOpenDurationMax", self.circuit_open_duration_max),
            ("dispatch.reconcileInterval", self.reconcile_interval),
        ] {
            if u128::from(value) > BreakerConfig::OPEN_DURATION_LIMIT.as_millis() {
                let expected = "at most P1D, which is 86400000 milliseconds";
                return Err(ConfigError::Range { key, value, expected });
            }
        }
        Ok(())
    }
}

fn guard_config(key: &'static str, allow: &[String]) -> Result<EgressGuardConfig, ConfigError> {
    let allow = allow.iter().map(|entry| entry.parse()).collect::<Result<_, _>>();
    let allow = allow.map_err(|source| ConfigError::Allow { key, source })?;
    Ok(EgressGuardConfig { allow, ..EgressGuardConfig::default() })
}

impl Config {
    /// The options for a new incarnation of a node on a store with these capabilities. The composition root adds entity
    /// kinds and call targets.
    pub fn node_options(
        &self,
        node: String,
        incarnation: u64,
        capabilities: &Capabilities,
    ) -> Result<NodeOptions, ConfigError> {
        let count = self.store.shard_count()?;
        let shards = self.store.shards as usize;
        let runtime = &self.runtime;
        runtime.check()?;
        let mut shard = abide_runtime::ShardConfig::new(node, incarnation, count, capabilities);
        shard.queued_max =
            (runtime.max_concurrent_orchestrator_functions / shards).max(WAITING_PER_SHARD_MIN);
        shard.idle_bytes_max = runtime.idle_instances_bytes / shards;
        if !runtime.extended_sessions_enabled {
            shard.idle_bytes_max = 0;
            shard.idle_max = StdDuration::ZERO;
        }
        // One shard may owe all replies: short bursts are not spread evenly. The bytes are what fills the memory.
        shard.unanswered_max = runtime.max_concurrent_orchestrator_functions.max(WAITING_PER_SHARD_MIN);
        shard.unanswered_bytes_max = runtime.unanswered_bytes_max / shards;
        shard.retention = runtime.retention;
        shard.idempotency_window = runtime.idempotency_window;
        shard.careful_from = runtime.careful_after_unclean_ends;
        shard.run_limits.depth_max = runtime.child_depth_max;
        shard.run_limits.call_bytes_max = shard.run_limits.call_bytes_max.min(runtime.call_bytes_max);
        shard.resolves_secrets = true;
        shard.reconcile_interval = StdDuration::from_millis(self.dispatch.reconcile_interval.0);
        shard.recovery_per_second = (runtime.recovery_rate / self.store.shards).max(1);
        Ok(NodeOptions {
            shard_config: shard,
            concurrent_calls_max: runtime.max_concurrent_activity_functions,
            drain_grace: StdDuration::from_millis(runtime.drain_grace.0),
        })
    }
}

impl RuntimeConfig {
    /// None of these may be zero: no work would ever be done.
    fn check(&self) -> Result<(), ConfigError> {
        let expected = "at least 1";
        for (key, is_zero) in [
            ("runtime.maxConcurrentActivityFunctions", self.max_concurrent_activity_functions == 0),
            ("runtime.maxConcurrentSessions", self.max_concurrent_sessions == 0),
            ("runtime.maxConcurrentOrchestratorFunctions", self.max_concurrent_orchestrator_functions == 0),
            ("runtime.unansweredBytesMax", self.unanswered_bytes_max == 0),
            ("runtime.recoveryRate", self.recovery_rate == 0),
            ("runtime.carefulAfterUncleanEnds", self.careful_after_unclean_ends == 0),
        ] {
            if is_zero {
                return Err(ConfigError::Range { key, value: 0, expected });
            }
        }
        // Not below other payloads, such as the input of a run.
        let limits = Limits::default();
        if !(limits.payload_bytes_max..=limits.call_bytes_max).contains(&self.call_bytes_max) {
            let expected = "from 1044480 to 3670016";
            return Err(ConfigError::Range {
                key: "runtime.callBytesMax",
                value: self.call_bytes_max,
                expected,
            });
        }
        Ok(())
    }
}
