//! `abide validate`: validates definitions and prints the findings as text or JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use abide_workflow::{Finding, ParsedDefinition, Severity};
use serde_json::{Value, json};

use super::exit;
use crate::output::{errln, outln};
use crate::source_location::SourceLocation;
use crate::{files, findings};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Definitions to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The registered activities; without it their names are not checked
    #[arg(long, value_name = "FILE")]
    activities: Option<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let registry = match files::read_registry(args.activities.as_ref()) {
        Ok(registry) => registry,
        Err(error) => {
            errln!("abide: {error}");
            return exit::USAGE_ERROR.into();
        }
    };
    let mut code = exit::OK;
    let mut reports: Vec<Value> = Vec::new();
    for path in &args.files {
        let name = path.display().to_string();
        let text = match files::read(path) {
            Ok(text) => text,
            Err(error) => {
                code = exit::USAGE_ERROR;
                if args.json {
                    reports.push(
                        json!({"file": name, "valid": false, "error": error.to_string(), "findings": []}),
                    );
                } else {
                    errln!("abide: {error}");
                }
                continue;
            }
        };
        let findings = validate(&text, registry.as_ref());
        let rejecting = if args.strict { Severity::Warning } else { Severity::Error };
        let valid = findings.iter().all(|finding| finding.severity() < rejecting);
        if !valid {
            code = code.max(exit::FAILED);
        }
        if args.json {
            let listed: Vec<Value> = findings.iter().map(|finding| finding_json(&text, finding)).collect();
            reports.push(json!({"file": name, "valid": valid, "findings": listed}));
        } else {
            findings.iter().for_each(|finding| findings::print(&name, &text, finding));
            findings::print_summary(&name, &findings, valid);
        }
    }
    if args.json {
        outln!("{:#}", Value::Array(reports));
    }
    code.into()
}

fn validate(text: &str, registry: Option<&abide_workflow::Registry>) -> Vec<Finding> {
    match ParsedDefinition::parse(text).validate(registry) {
        Ok(validated) => validated.findings().to_vec(),
        Err(rejected) => rejected.findings,
    }
}

fn finding_json(text: &str, finding: &Finding) -> Value {
    let location = SourceLocation::of_finding(text, finding);
    json!({
        "code": finding.code.as_str(),
        "severity": finding.severity().to_string(),
        "pointer": finding.pointer,
        "line": location.as_ref().map(|location| location.line),
        "column": location.as_ref().map(|location| location.column),
        "message": finding.message,
        "hint": finding.hint,
        "consequences": finding.consequences,
    })
}
