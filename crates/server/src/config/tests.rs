//! The reference file, the mapping to the runtime, and what is refused.

use std::io::Write;
use std::time::Duration as StdDuration;

use abide_dispatch::remote::TargetLimits;
use abide_store::rows::{Capabilities, Durability, Limits};

use super::*;

const REFERENCE: &str = include_str!("../../../../docs/reference/abide.toml");
const CAPABILITIES: Capabilities =
    Capabilities { limits: Limits::LOCAL, durability: Durability::Memory, shared: false };

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
fn the_command_line_goes_before_the_file_and_the_file_before_the_defaults() {
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
fn what_is_unknown_or_of_another_type_is_refused_with_its_place() {
    for (text, told) in [
        ("[server]\nlissten = \"127.0.0.1:1\"", "lissten"),
        ("[servers]", "servers"),
        ("[runtime]\nretention = \"30 days\"", "ISO-8601"),
        ("[server]\nlisten = \"localhost\"", "listen"),
        ("[store]\nshards = -1", "shards"),
    ] {
        let error = told_of(text);
        assert!(error.contains(told) && error.contains("line "), "{error}");
    }
}

/// What people are told of a file.
fn told_of(text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(Some(file.path()), Overrides::default()).unwrap_err().to_string()
}

#[test]
fn a_mistake_is_told_by_its_place_and_not_by_what_stands_there() {
    let activity = "[[activities]]\nname = \"a\"\ncategory = \"other\"\ntransport = \"rest\"\nendpoint = \"https://a.test/\"\n";
    for (wrong, place) in [
        ("auth = { bearer = \"s3cret\" }", "line 1, column 1: activity \"a\": auth.bearer must be"),
        ("auth = { bearer = { secretRef = \"s3cret\" } }", "activity \"a\": auth.bearer must be"),
        ("auth = { bearer = \"s3cret\"", "line 6, column"),
        ("auth = { bearer = s3cret }", "line 6, column 19"),
        ("[dispatch]\nsecretsFolders = \"s3cret\"", "line 7, column 18"),
        ("[dispatch]\ncircuitPause = \"s3cret\"", "line 7, column 16"),
        ("[dispatch]\nallow = [\"ä\", 1, \"s3cret\"]", "line 7, column 15"),
        ("[store]\nsync = \"s3cret\"", "line 7, column 8"),
        ("[server]\nlisten = \"s3cret\"", "line 7, column 10"),
        ("[server]\ninsecure = \"s3cret\"", "line 7, column 12"),
    ] {
        let told = told_of(&format!("{activity}{wrong}"));
        assert!(!told.contains("s3cret") && told.contains(place), "{wrong}: {told}");
    }
}

#[test]
fn activities_are_declared_in_the_words_of_the_interface() {
    let text = r#"
[dispatch]
allow = ["127.0.0.1"]
circuitPause = "PT2S"
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
fn what_nobody_could_be_called_with_is_refused() {
    let refused = |change: fn(&mut DispatchConfig)| {
        let mut config = DispatchConfig::default();
        change(&mut config);
        config.outbound().unwrap_err().to_string()
    };
    assert!(refused(|config| config.allow.push("*.internal".to_owned())).contains("dispatch.allow"));
    assert!(refused(|config| config.circuit_troubles = 0).contains("circuitTroubles"));
    assert!(refused(|config| config.reconcile_every = Duration(0)).contains("reconcileEvery"));
    for longer in ["P2D", "P5000000000D"] {
        let text = format!("[dispatch]\ncircuitPauseMax = \"{longer}\"");
        let told = Config::parse(&text)
            .map_err(|error| error.to_string())
            .and_then(|config| config.dispatch.outbound().map_err(|error| error.to_string()));
        assert!(told.is_err_and(|told| !told.is_empty()), "{longer}");
    }
    assert!(refused(|config| config.circuit_pause_max = Duration(u64::MAX)).contains("circuitPauseMax"));
    assert!(refused(|config| config.circuit_pause = Duration(86_400_001)).contains("circuitPause is"));
    assert!(refused(|config| config.reconcile_every = Duration(u64::MAX)).contains("P1D"));
}

#[test]
fn what_one_target_takes_is_limited_only_if_it_is_said() {
    let limits = |text: &str| Config::parse(&format!("[dispatch]\n{text}")).unwrap().dispatch.target_limits();
    assert_eq!(limits("").unwrap(), TargetLimits::default());
    assert_eq!(limits("targetConcurrency = 3").unwrap(), TargetLimits::new(Some(3), None).unwrap());
    for rate in ["50", "50.0"] {
        let limits = limits(&format!("targetRatePerSecond = {rate}"));
        assert_eq!(limits.unwrap(), TargetLimits::new(None, Some(50.0)).unwrap());
    }
    for (wrong, key) in [
        ("targetConcurrency = 0", "dispatch.targetConcurrency: 0 is"),
        ("targetConcurrency = 10001", "dispatch.targetConcurrency: 10001 is"),
        ("targetRatePerSecond = 0", "dispatch.targetRatePerSecond: 0 is"),
        ("targetRatePerSecond = -1", "dispatch.targetRatePerSecond: -1 is"),
        ("targetRatePerSecond = nan", "dispatch.targetRatePerSecond: NaN is"),
        ("targetRatePerSecond = inf", "dispatch.targetRatePerSecond: inf is"),
    ] {
        let config = Config::parse(&format!("[dispatch]\n{wrong}")).unwrap();
        let told = config.dispatch.outbound().unwrap_err().to_string();
        assert!(told.starts_with(key) && told.contains("it must be from"), "{told}");
    }
    for wrong in ["targetConcurrency = -1", "targetConcurrency = 1.5", "targetRatePerSecond = \"many\""] {
        let told = told_of(&format!("[dispatch]\n{wrong}"));
        assert!(told.contains("line 2") && told.contains("dispatch.target"), "{told}");
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
fn what_counts_per_node_is_divided_among_its_shards() {
    let options = |config: &Config| config.node_options("n".to_owned(), 1, &CAPABILITIES).unwrap();
    let mut config = Config::default();
    let all = options(&config);
    assert_eq!(all.activities_max, 1_000);
    assert_eq!(all.shard.waiting_max, 1_250);
    assert_eq!(all.shard.resting_bytes_max, 8 * 1024 * 1024);
    assert_eq!(all.shard.overdue_per_second, 750);
    assert_eq!(all.drain_grace, StdDuration::from_secs(30));
    config.store.shards = 4_096;
    assert_eq!(options(&config).shard.waiting_max, 16);
    config.runtime.extended_sessions_enabled = false;
    let cold = options(&config).shard;
    assert_eq!((cold.resting_bytes_max, cold.resting_max), (0, StdDuration::ZERO));
}

#[test]
fn numbers_that_no_work_could_be_done_with_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.node_options("n".to_owned(), 1, &CAPABILITIES).unwrap_err().to_string()
    };
    assert!(refused(|config| config.store.shards = 0).contains("store.shards is 0"));
    assert!(refused(|config| config.store.shards = 4_097).contains("4096"));
    assert!(refused(|config| config.runtime.recovery_rate = 0).contains("recoveryRate"));
    let server = |change: fn(&mut ServerConfig)| {
        let mut server = ServerConfig::default();
        change(&mut server);
        server.check().unwrap_err().to_string()
    };
    assert!(server(|server| server.connections_max = 0).contains("connectionsMax"));
    assert!(server(|server| server.answer_timeout = Duration(0)).contains("answerTimeout"));
    assert!(server(|server| server.hosts = vec!["http://abide".to_owned()]).contains("\"http://abide\""));
    let allow = HttpConfig { allow: vec!["10.1.2.3/8".to_owned()] };
    assert!(allow.guard().unwrap_err().to_string().contains("10.0.0.0/8"));
}
