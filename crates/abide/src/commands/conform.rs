//! `abide conform`: checks whether a service that runs activities keeps the dispatch contract, rule by rule.

use std::process::ExitCode;
use std::time::Duration;

use abide_conform::{ConformError, Finding, Setting, Verdict, Wire};
use anstyle::AnsiColor;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use uuid::Uuid;

use super::exit;
use crate::problem::{Problem, Sought};
use crate::say::{say, visible};
use crate::styles::FAINT;
use crate::times;

/// Some checks let the activity take most of a second.
const TIMEOUT_MIN: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where its activity `conformance` is; of a server alone, it is at /activities/conformance. Over gRPC, the server
    #[arg(value_name = "URL")]
    url: String,
    /// The wire to speak
    #[arg(long, value_name = "WIRE", value_parser = wire(), default_value = "rest")]
    transport: Wire,
    /// What the service calls its activity `conformance`
    #[arg(long, value_name = "NAME", default_value = "conformance")]
    activity: String,
    /// The environment variable that has the bearer token to show
    #[arg(long, value_name = "VARIABLE")]
    bearer_env: Option<String>,
    /// How long an answer may take, at least 2s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = times::duration)]
    timeout: Duration,
    /// How long everything may take; what is not done by then has failed
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = times::duration)]
    within: Duration,
    /// Print JSON for machines: one line per rule
    #[arg(long)]
    json: bool,
}

/// Reads a wire by its name, and knows which there are.
fn wire() -> impl TypedValueParser<Value = Wire> {
    let unknown = || "there is no such wire".to_owned();
    PossibleValuesParser::new(Wire::ALL.map(Wire::as_str))
        .try_map(move |name| Wire::from_name(&name).ok_or_else(unknown))
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let checked = setting(args).and_then(|setting| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(check(&setting, args.json))
    });
    checked.unwrap_or_else(|problem| problem.tell(Sought::Unnamed, args.json)).into()
}

fn setting(args: &Args) -> Result<Setting, Problem> {
    if args.timeout < TIMEOUT_MIN {
        return Err(Problem::Usage(
            "--timeout must be 2s at least: some rules take time to check".to_owned(),
        ));
    }
    let bearer = args.bearer_env.as_ref().map(|variable| {
        std::env::var(variable).map_err(|_| Problem::Usage(format!("the environment has no text {variable}")))
    });
    Ok(Setting {
        url: args.url.clone(),
        transport: args.transport,
        activity: args.activity.clone(),
        bearer: bearer.transpose()?,
        exchange_time_max: args.timeout,
        whole_time_max: args.within,
        unique: Uuid::now_v7().to_string(),
        now_epoch_ms: times::now().as_millisecond(),
    })
}

async fn check(setting: &Setting, json: bool) -> Result<u8, Problem> {
    let tell = if json { machine } else { people };
    let report = abide_conform::run(setting, tell).await.map_err(|error| match error {
        ConformError::Unreachable { .. } => Problem::Unreachable(error.to_string()),
        other => Problem::Usage(other.to_string()),
    })?;
    if !json {
        let (passed, failed, skipped) = report.counts();
        let (all, wire) = (report.findings.len(), setting.transport.as_str());
        say!("");
        say!("{all} rules over {wire}: {passed} pass, {failed} FAIL, {skipped} skipped");
    }
    Ok(if report.is_conformant() { exit::OK } else { exit::NOT_OK })
}

fn machine(finding: &Finding) {
    let Finding { check, rule, verdict } = finding;
    let mut line = json!({"check": check, "rule": rule, "verdict": verdict.word()});
    let mut more = |name: &str, text: &str| {
        if let Some(line) = line.as_object_mut() {
            line.insert(name.to_owned(), Value::from(text));
        }
    };
    match verdict {
        Verdict::Passed => {}
        Verdict::Failed { expected, found } => {
            more("expected", expected);
            more("found", found);
        }
        Verdict::Skipped { why } => more("why", why),
    }
    say!("{line}");
}

fn people(finding: &Finding) {
    let style = match finding.verdict {
        Verdict::Passed => AnsiColor::Green.on_default(),
        Verdict::Failed { .. } => AnsiColor::Red.on_default().bold(),
        Verdict::Skipped { .. } => AnsiColor::Yellow.on_default(),
    };
    say!("{style}{:<7}{style:#}  {:<26} {}", finding.verdict.word(), finding.check, finding.rule);
    let more = |name: &str, text: &str| say!("         {FAINT}{name:<9}{FAINT:#} {}", visible(text));
    match &finding.verdict {
        Verdict::Passed => {}
        Verdict::Failed { expected, found } => {
            more("expected:", expected);
            more("found:", found);
        }
        Verdict::Skipped { why } => more("why:", why),
    }
}
