//! Checks time limits: none is zero, none is longer than the workflow's, and the waits between retries fit into them.
//! It does not know how long activities take.

use crate::advance::nominal_delay;
use crate::definition::{Definition, RetryPolicy, State, StateKind, WaitTime};
use crate::finding::{Code, Finding};
use crate::registry::Registry;
use crate::time::Duration;

pub(super) fn check(definition: &Definition, registry: Option<&Registry>, findings: &mut Vec<Finding>) {
    let configuration = &definition.configuration;
    let at = |name: &str| format!("/configuration/{name}");
    for (name, limit) in [
        ("defaultTimeout", configuration.default_timeout),
        ("timeout", configuration.timeout),
        ("stuckAfter", configuration.stuck_after),
    ] {
        report_zero_limit(findings, &at(name), limit);
    }
    if let (Some(default), Some(whole)) = (configuration.default_timeout, configuration.timeout)
        && default > whole
    {
        let message = format!("a step may take {default} by default, but the whole workflow only {whole}");
        let hint = "shorten configuration.defaultTimeout or lengthen configuration.timeout";
        findings.push(Finding::new(Code::TimeoutBeyondWorkflow, at("defaultTimeout"), message, hint));
    }
    if let Some(escalation) = &configuration.escalation {
        report_zero_limit(
            findings,
            "/configuration/escalation/recoverWithin",
            Some(escalation.recover_within),
        );
    }
    check_policy(findings, "/configuration", configuration.retry_policy.as_ref());
    for state in &definition.states {
        check_state(definition, registry, state, findings);
    }
}

fn check_state(
    definition: &Definition,
    registry: Option<&Registry>,
    state: &State,
    findings: &mut Vec<Finding>,
) {
    let pointer = &state.pointer;
    report_zero_limit(findings, &format!("{pointer}/timeout"), state.timeout);
    if let (Some(own), Some(whole)) = (state.timeout, definition.configuration.timeout)
        && own > whole
    {
        let message = format!("state {:?} may take {own}, but the whole workflow only {whole}", state.name);
        let hint = "shorten this timeout or lengthen configuration.timeout";
        findings.push(Finding::new(Code::TimeoutBeyondWorkflow, format!("{pointer}/timeout"), message, hint));
    }
    match &state.kind {
        StateKind::WaitUntil(WaitTime::After(duration))
            if definition.configuration.timeout.is_some_and(|whole| *duration > whole) =>
        {
            let message =
                format!("state {:?} waits {duration}, longer than the whole workflow may take", state.name);
            let hint = "shorten the wait or lengthen configuration.timeout";
            findings.push(Finding::new(
                Code::TimeoutBeyondWorkflow,
                format!("{pointer}/duration"),
                message,
                hint,
            ));
        }
        StateKind::Task(task) => {
            report_zero_limit(findings, &format!("{pointer}/attemptTimeout"), task.attempt_timeout);
            check_policy(findings, pointer, task.retry_policy.as_ref());
            let registered =
                registry.and_then(|registry| registry.get(&task.call.activity)?.retry_policy.as_ref());
            let configured = definition.configuration.retry_policy.as_ref();
            let default = RetryPolicy::default();
            let policy = task.retry_policy.as_ref().or(registered).or(configured).unwrap_or(&default);
            check_retries_fit(definition, state, policy, findings);
        }
        StateKind::Compensation { steps } => {
            for (position, step) in steps.iter().flatten().enumerate() {
                let at = format!("{pointer}/steps/{position}");
                report_zero_limit(findings, &format!("{at}/timeout"), step.timeout);
                report_zero_limit(findings, &format!("{at}/attemptTimeout"), step.attempt_timeout);
                check_policy(findings, &at, step.retry_policy.as_ref());
            }
        }
        _ => {}
    }
}

fn check_policy(findings: &mut Vec<Finding>, pointer: &str, policy: Option<&RetryPolicy>) {
    let Some(policy) = policy else { return };
    report_zero_limit(
        findings,
        &format!("{pointer}/retryPolicy/initialInterval"),
        Some(policy.initial_interval),
    );
    report_zero_limit(findings, &format!("{pointer}/retryPolicy/maxInterval"), policy.max_interval);
}

/// Adds up the waits alone, without the time the activity takes.
fn check_retries_fit(
    definition: &Definition,
    state: &State,
    policy: &RetryPolicy,
    findings: &mut Vec<Finding>,
) {
    let timeout = state
        .timeout
        .or(definition.configuration.default_timeout)
        .filter(|timeout| *timeout > Duration::ZERO);
    let Some(timeout) = timeout else { return };
    let mut waits = Duration::ZERO;
    for failures in 1..policy.max_attempts {
        waits = waits.plus(nominal_delay(policy, failures));
        if waits > timeout {
            let message = format!(
                "{} attempts do not fit into {timeout}: the waits before attempt {} add up to {waits}",
                policy.max_attempts,
                failures + 1
            );
            let hint = "allow more time, fewer attempts or shorter waits";
            let finding = Finding::new(Code::RetriesBeyondTimeout, state.pointer.clone(), message, hint);
            findings.push(finding);
            return;
        }
    }
}

fn report_zero_limit(findings: &mut Vec<Finding>, pointer: &str, limit: Option<Duration>) {
    if limit == Some(Duration::ZERO) {
        let hint = "omit it, or set a duration";
        findings.push(Finding::new(
            Code::ZeroTimeout,
            pointer,
            "a time limit of zero would expire at once",
            hint,
        ));
    }
}
