//! `abide conform`: checks that a service that runs activities keeps the dispatch contract, rule by rule. The rules are
//! in the crate `abide-conform`.

use std::process::ExitCode;
use std::time::Duration;

use abide_conform::{CheckReport, CheckVerdict, ConformError, ConformOptions, WireFormat};
use anstyle::AnsiColor;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use uuid::Uuid;

use super::exit;
use crate::errors::{CliError, ResourceKind};
use crate::output::{escape_control_chars, outln};
use crate::styles::FAINT;
use crate::time_format;

/// In some checks the activity takes most of a second.
const TIMEOUT_MIN: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The URL of its activity `conformance`; without a path, /activities/ and the activity's name. Over gRPC, the URL
    /// of the server
    #[arg(value_name = "URL")]
    url: String,
    /// The wire format
    #[arg(long, value_name = "WIRE", value_parser = wire_parser(), default_value = "rest")]
    transport: WireFormat,
    /// The service's name for the activity `conformance`
    #[arg(long, value_name = "NAME", default_value = "conformance")]
    activity: String,
    /// The environment variable with the bearer token to send
    #[arg(long, value_name = "VARIABLE")]
    bearer_env: Option<String>,
    /// How long a response may take, at least 2s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time_format::parse_duration)]
    timeout: Duration,
    /// How long all checks together may take; a check that is not done by then has failed
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = time_format::parse_duration)]
    within: Duration,
    /// Print JSON: one line per rule
    #[arg(long)]
    json: bool,
}

/// Parses the name of a wire format. The help text lists all names.
fn wire_parser() -> impl TypedValueParser<Value = WireFormat> {
    let unknown = || "unknown wire format".to_owned();
    PossibleValuesParser::new(WireFormat::ALL.map(WireFormat::as_str))
        .try_map(move |name| WireFormat::from_name(&name).ok_or_else(unknown))
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let code = conform_setting(args).and_then(|options| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(check(&options, args.json))
    });
    code.unwrap_or_else(|error| error.report(ResourceKind::Other, args.json)).into()
}

fn conform_setting(args: &Args) -> Result<ConformOptions, CliError> {
    if args.timeout < TIMEOUT_MIN {
        return Err(CliError::Usage(
            "--timeout must be at least 2s: some rules take time to check".to_owned(),
        ));
    }
    let bearer = args.bearer_env.as_ref().map(|variable| {
        std::env::var(variable).map_err(|_| {
            CliError::Usage(format!("the environment variable {variable} is not set, or is not UTF-8 text"))
        })
    });
    Ok(ConformOptions {
        url: args.url.clone(),
        transport: args.transport,
        activity: args.activity.clone(),
        bearer_token: bearer.transpose()?,
        exchange_timeout: args.timeout,
        total_timeout: args.within,
        unique_prefix: Uuid::now_v7().to_string(),
        now: abide_ids::Timestamp(time_format::now().as_millisecond()),
    })
}

async fn check(options: &ConformOptions, json: bool) -> Result<u8, CliError> {
    let print = if json { print_json } else { print_text };
    let report = abide_conform::run(options, print).await.map_err(|error| match error {
        ConformError::Unreachable { .. } => CliError::Unreachable(error.to_string()),
        other => CliError::Usage(other.to_string()),
    })?;
    if !json {
        let (passed, failed, skipped) = report.counts();
        let all = report.checks.len();
        let wire = options.transport.as_str();
        outln!("");
        outln!("{all} rules over {wire}: {passed} pass, {failed} FAIL, {skipped} skipped");
    }
    Ok(if report.is_conformant() { exit::OK } else { exit::FAILED })
}

fn print_json(report: &CheckReport) {
    let CheckReport { check, rule, verdict } = report;
    let mut line = json!({"check": check, "rule": rule, "verdict": verdict.label()});
    let mut insert = |name: &str, text: &str| {
        if let Some(line) = line.as_object_mut() {
            line.insert(name.to_owned(), Value::from(text));
        }
    };
    match verdict {
        CheckVerdict::Passed => {}
        CheckVerdict::Failed { expected, found } => {
            insert("expected", expected);
            insert("found", found);
        }
        CheckVerdict::Skipped { reason } => insert("why", reason),
    }
    outln!("{line}");
}

fn print_text(report: &CheckReport) {
    let style = match report.verdict {
        CheckVerdict::Passed => AnsiColor::Green.on_default(),
        CheckVerdict::Failed { .. } => AnsiColor::Red.on_default().bold(),
        CheckVerdict::Skipped { .. } => AnsiColor::Yellow.on_default(),
    };
    outln!("{style}{:<7}{style:#}  {:<26} {}", report.verdict.label(), report.check, report.rule);
    let detail =
        |name: &str, text: &str| outln!("         {FAINT}{name:<9}{FAINT:#} {}", escape_control_chars(text));
    match &report.verdict {
        CheckVerdict::Passed => {}
        CheckVerdict::Failed { expected, found } => {
            detail("expected:", expected);
            detail("found:", found);
        }
        CheckVerdict::Skipped { reason } => detail("reason:", reason),
    }
}
