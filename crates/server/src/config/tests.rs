//! Tests of the reference file, the mapping to the runtime, and invalid configurations.

use std::io::Write;
use std::time::Duration as StdDuration;

use abide_dispatch::remote::TargetLimits;
use abide_store::rows::{Capabilities, Durability, StoreLimits};

use super::*;

const REFERENCE: &str = include_str!("../../../../docs/reference/abide.toml");
const CAPABILITIES: Capabilities =
    Capabilities { limits: StoreLimits::LOCAL, durability: Durability::Memory, shared: false };

#[test]
fn the_reference_file_has_every_key_with_its_default() {
    assert_eq!(Config::parse(REFERENCE).unwrap(), Config::default());
    let reference: toml::Table = toml::from_str(REFERENCE).unwrap();
    assert_eq!(reference, toml::Table::try_from(Config::default()).unwrap());
}

#[test]
fn every_key_of_the_reference_file_is_explained() {
    let mut explained = false;
    for line in REFERENCE.lines() {
        let is_key = line.contains(" = ") && !line.starts_with('#');
        assert!(!is_key || explained, "{line}");
        explained = line.starts_with('#');
    }
}

#[test]
fn the_command_line_overrides_the_file_and_the_file_the_defaults() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[server]\nlisten = \"127.0.0.1:1\"\n[store]\ndata = \"a\"\nshards = 4\n").unwrap();
    let overrides = Overrides { listen: None, data: Some("b".into()), insecure: true };
    let config = Config::load(Some(file.path()), overrides).unwrap();
    assert_eq!(config.server.listen.port(), 1);
    assert_eq!((config.store.data, config.store.shards), ("b".into(), 4));
    assert!(config.server.insecure);
    assert_eq!(config.runtime, RuntimeConfig::default());
}

#[test]
fn an_unknown_key_or_a_wrong_type_is_rejected_with_its_position() {
    for (text, expected) in [
        ("[server]\nlissten = \"127.0.0.1:1\"", "lissten"),
        ("[servers]", "servers"),
        ("[runtime]\nretention = \"30 days\"", "ISO-8601"),
        ("[server]\nlisten = \"localhost\"", "listen"),
        ("[store]\nshards = -1", "shards"),
    ] {
        let error = load_error(text);
        assert!(error.contains(expected) && error.contains("line "), "{error}");
    }
}

/// The message for a file that cannot be loaded.
fn load_error(text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(Some(file.path()), Overrides::default()).unwrap_err().to_string()
}

#[test]
fn an_error_names_the_position_and_not_the_value() {
    let activity = "[[activities]]\nname = \"a\"\ncategory = \"other\"\ntransport = \"rest\"\nendpoint = \"https://a.test/\"\n";
    for (wrong, position) in [
        ("auth = { bearer = \"s3cret\" }", "line 1, column 1: activity \"a\": auth.bearer must be"),
        ("auth = { bearer = { secretRef = \"s3cret\" } }", "activity \"a\": auth.bearer must be"),
        ("auth = { bearer = \"s3cret\"", "line 6, column"),
        ("auth = { bearer = s3cret }", "line 6, column 19"),
        ("[dispatch]\nsecretsFolders = \"s3cret\"", "line 7, column 18"),
        ("[dispatch]\ncircuitOpenDuration = \"s3cret\"", "line 7, column 23"),
        ("[dispatch]\nallow = [\"ä\", 1, \"s3cret\"]", "line 7, column 15"),
        ("[store]\nsync = \"s3cret\"", "line 7, column 8"),
        ("[server]\nlisten = \"s3cret\"", "line 7, column 10"),
        ("[server]\ninsecure = \"s3cret\"", "line 7, column 12"),
    ] {
        let message = load_error(&format!("{activity}{wrong}"));
        assert!(!message.contains("s3cret") && message.contains(position), "{wrong}: {message}");
    }
}

#[test]
fn activities_are_declared_with_the_same_keys_as_in_the_api() {
    let text = r#"
[dispatch]
allow = ["127.0.0.1"]
circuitOpenDuration = "PT2S"
[[activities]]
name = "charge"
category = "externalApi"
transport = "grpc"
endpoint = "http://127.0.0.1:9"
input = { type = "object", required = ["amount"] }
retryPolicy = { maxAttempts = 5 }
concurrency = 7
auth = { bearer = { secretRef = "env:ABIDE_SECRET_PAYMENTS" } }
"#;
    let config = Config::parse(text).unwrap();
    let declared = serde_json::to_value(&config.activities).unwrap();
    let expected = serde_json::json!([{
        "name": "charge", "category": "externalApi", "transport": "grpc", "endpoint": "http://127.0.0.1:9",
        "input": {"type": "object", "required": ["amount"]}, "retryPolicy": {"maxAttempts": 5}, "concurrency": 7,
        "auth": {"bearer": {"secretRef": "env:ABIDE_SECRET_PAYMENTS"}},
    }]);
    assert_eq!(declared, expected);
    config.dispatch.outbound().unwrap();
    let wrong = Config::parse(&text.replace("grpc", "pigeon")).unwrap_err().to_string();
    assert!(wrong.contains("transport must be"), "{wrong}");
}

#[test]
fn dispatch_settings_that_allow_no_call_are_rejected() {
    let error_of = |change: fn(&mut DispatchConfig)| {
        let mut config = DispatchConfig::default();
        change(&mut config);
        config.outbound().unwrap_err().to_string()
    };
    assert!(error_of(|config| config.allow.push("*.internal".to_owned())).contains("dispatch.allow"));
    assert!(error_of(|config| config.circuit_failure_threshold = 0).contains("circuitFailureThreshold"));
    assert!(error_of(|config| config.reconcile_interval = Duration(0)).contains("reconcileInterval"));
    for longer in ["P2D", "P5000000000D"] {
        let text = format!("[dispatch]\ncircuitOpenDurationMax = \"{longer}\"");
        let result = Config::parse(&text)
            .map_err(|error| error.to_string())
            .and_then(|config| config.dispatch.outbound().map_err(|error| error.to_string()));
        assert!(result.is_err_and(|message| !message.is_empty()), "{longer}");
    }
    assert!(
        error_of(|config| config.circuit_open_duration_max = Duration(u64::MAX))
            .contains("circuitOpenDurationMax")
    );
    assert!(
        error_of(|config| config.circuit_open_duration = Duration(86_400_001))
            .contains("circuitOpenDuration is")
    );
    assert!(error_of(|config| config.reconcile_interval = Duration(u64::MAX)).contains("P1D"));
}

#[test]
fn a_target_is_limited_only_if_it_is_configured() {
    let limits = |text: &str| Config::parse(&format!("[dispatch]\n{text}")).unwrap().dispatch.target_limits();
    assert_eq!(limits("").unwrap(), TargetLimits::default());
    assert_eq!(limits("targetConcurrency = 3").unwrap(), TargetLimits::new(Some(3), None).unwrap());
    for rate in ["50", "50.0"] {
        let limits = limits(&format!("targetRatePerSecond = {rate}"));
        assert_eq!(limits.unwrap(), TargetLimits::new(None, Some(50.0)).unwrap());
    }
    for (wrong, key) in [
        ("targetConcurrency = 0", "dispatch.targetConcurrency: invalid concurrency limit 0:"),
        ("targetConcurrency = 10001", "dispatch.targetConcurrency: invalid concurrency limit 10001:"),
        ("targetRatePerSecond = 0", "dispatch.targetRatePerSecond: invalid rate limit 0:"),
        ("targetRatePerSecond = -1", "dispatch.targetRatePerSecond: invalid rate limit -1:"),
        ("targetRatePerSecond = nan", "dispatch.targetRatePerSecond: invalid rate limit NaN:"),
        ("targetRatePerSecond = inf", "dispatch.targetRatePerSecond: invalid rate limit inf:"),
    ] {
        let config = Config::parse(&format!("[dispatch]\n{wrong}")).unwrap();
        let message = config.dispatch.outbound().unwrap_err().to_string();
        assert!(message.starts_with(key) && message.contains("must be from"), "{message}");
    }
    for wrong in ["targetConcurrency = -1", "targetConcurrency = 1.5", "targetRatePerSecond = \"many\""] {
        let message = load_error(&format!("[dispatch]\n{wrong}"));
        assert!(message.contains("line 2") && message.contains("dispatch.target"), "{message}");
    }
}

#[test]
fn keys_without_a_default_are_in_the_reference_file_as_examples() {
    let is_example = |line: &&str| line.starts_with("# target") && line.contains(" = ");
    let examples: Vec<&str> = REFERENCE.lines().filter(is_example).map(|line| &line[2..]).collect();
    let config = Config::parse(&format!("[dispatch]\n{}", examples.join("\n"))).unwrap().dispatch;
    assert!(config.target_concurrency.is_some() && config.target_rate_per_second.is_some(), "{examples:?}");
}

#[test]
fn settings_per_node_are_divided_among_its_shards() {
    let options = |config: &Config| config.node_options("n".to_owned(), 1, &CAPABILITIES).unwrap();
    let mut config = Config::default();
    let all = options(&config);
    assert_eq!(all.concurrent_calls_max, 1_000);
    assert_eq!(all.shard_config.queued_max, 1_250);
    assert_eq!(all.shard_config.unanswered_max, 10_000);
    assert_eq!(all.shard_config.unanswered_bytes_max, 32 * 1024 * 1024);
    assert_eq!(all.shard_config.idle_bytes_max, 8 * 1024 * 1024);
    assert_eq!(all.shard_config.recovery_per_second, 750);
    assert_eq!(all.drain_grace, StdDuration::from_secs(30));
    assert_eq!(all.shard_config.run_limits.depth_max, 32);
    assert_eq!(all.shard_config.careful_from, 2);
    config.runtime.careful_after_unclean_ends = 7;
    assert_eq!(options(&config).shard_config.careful_from, 7);
    config.runtime.child_depth_max = 5;
    assert_eq!(options(&config).shard_config.run_limits.depth_max, 5);
    assert_eq!(all.shard_config.run_limits.call_bytes_max, 3_670_016);
    config.runtime.call_bytes_max = 2_000_000;
    assert_eq!(options(&config).shard_config.run_limits.call_bytes_max, 2_000_000);
    config.store.shards = 4_096;
    assert_eq!(options(&config).shard_config.queued_max, 16);
    config.runtime.extended_sessions_enabled = false;
    let cold = options(&config).shard_config;
    assert_eq!((cold.idle_bytes_max, cold.idle_max), (0, StdDuration::ZERO));
}

#[test]
fn settings_that_allow_no_work_are_rejected() {
    let error_of = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.node_options("n".to_owned(), 1, &CAPABILITIES).unwrap_err().to_string()
    };
    assert!(error_of(|config| config.store.shards = 0).contains("store.shards is 0"));
    assert!(error_of(|config| config.store.shards = 4_097).contains("4096"));
    assert!(error_of(|config| config.runtime.unanswered_bytes_max = 0).contains("unansweredBytesMax"));
    assert!(error_of(|config| config.runtime.recovery_rate = 0).contains("recoveryRate"));
    assert!(error_of(|config| config.runtime.call_bytes_max = 1).contains("from 1044480 to 3670016"));
    assert!(error_of(|config| config.runtime.call_bytes_max = 3_670_017).contains("callBytesMax"));
    let server = |change: fn(&mut ServerConfig)| {
        let mut server = ServerConfig::default();
        change(&mut server);
        server.check().unwrap_err().to_string()
    };
    assert!(server(|server| server.connections_max = 0).contains("connectionsMax"));
    assert!(server(|server| server.response_bytes_max = 0).contains("responseBytesMax"));
    assert!(server(|server| server.stall_timeout = Duration(0)).contains("stallTimeout"));
    assert!(server(|server| server.reply_timeout = Duration(0)).contains("replyTimeout"));
    assert!(server(|server| server.hosts = vec!["http://abide".to_owned()]).contains("\"http://abide\""));
    let allow = HttpConfig { allow: vec!["10.1.2.3/8".to_owned()] };
    assert!(allow.guard().unwrap_err().to_string().contains("10.0.0.0/8"));
}
