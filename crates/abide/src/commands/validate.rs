//! `abide validate`: findings for people or for machines.

use std::path::PathBuf;
use std::process::ExitCode;

use abide_workflow::{Authored, Finding, Severity};
use anstream::eprintln;
use serde_json::{Value, json};

use super::exit;
use crate::excerpt::Located;
use crate::say::say;
use crate::{files, findings};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Definitions to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The activities there are; without it their names are not checked
    #[arg(long, value_name = "FILE")]
    activities: Option<PathBuf>,
    /// Warnings refuse as errors do
    #[arg(long)]
    strict: bool,
    /// Print JSON for machines
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let registry = match files::registry(args.activities.as_ref()) {
        Ok(registry) => registry,
        Err(error) => {
            eprintln!("abide: {error}");
            return exit::UNUSABLE.into();
        }
    };
    let mut code = exit::OK;
    let mut reports: Vec<Value> = Vec::new();
    for path in &args.files {
        let name = path.display().to_string();
        let text = match files::read(path) {
            Ok(text) => text,
            Err(error) => {
                code = exit::UNUSABLE;
                if args.json {
                    reports.push(
                        json!({"file": name, "valid": false, "error": error.to_string(), "findings": []}),
                    );
                } else {
                    eprintln!("abide: {error}");
                }
                continue;
            }
        };
        let found = check(&text, registry.as_ref());
        let refuses = if args.strict { Severity::Warning } else { Severity::Error };
        let valid = found.iter().all(|finding| finding.severity() < refuses);
        if !valid {
            code = code.max(exit::NOT_OK);
        }
        if args.json {
            let listed: Vec<Value> = found.iter().map(|finding| to_json(&text, finding)).collect();
            reports.push(json!({"file": name, "valid": valid, "findings": listed}));
        } else {
            found.iter().for_each(|finding| findings::print(&name, &text, finding));
            findings::summarise(&name, &found, valid);
        }
    }
    if args.json {
        say!("{:#}", Value::Array(reports));
    }
    code.into()
}

fn check(text: &str, registry: Option<&abide_workflow::Registry>) -> Vec<Finding> {
    match Authored::parse(text).validate(registry) {
        Ok(validated) => validated.findings().to_vec(),
        Err(rejected) => rejected.findings,
    }
}

fn to_json(text: &str, finding: &Finding) -> Value {
    let located = Located::of(text, finding);
    json!({
        "code": finding.code.as_str(),
        "severity": finding.severity().to_string(),
        "pointer": finding.pointer,
        "line": located.as_ref().map(|located| located.line),
        "column": located.as_ref().map(|located| located.column),
        "message": finding.message,
        "hint": finding.hint,
        "consequences": finding.consequences,
    })
}
