//! The router that finds an activity in process or in the registry of remote ones.
//!
//! It puts secrets into the input and redacts them from the result, for activities in process too. Knows nothing about
//! where declarations are stored, and nothing about how an activity is reached.

use std::sync::Arc;

use crate::declaration::{ActivityDeclaration, registry_json};
use crate::local::LocalActivities;
use crate::remote::{RemoteRegistry, input_secrets};
use crate::transport::{
    ActivityTransport, AttemptResult, CallAttempt, CallFailure, PermitSource, UnlimitedPermits,
};

/// Routes calls to all activities: first to those in process, then to remote ones.
#[derive(Debug)]
pub struct ActivityRouter {
    local: LocalActivities,
    remote: Arc<RemoteRegistry>,
}

impl ActivityRouter {
    /// A router over both kinds of activities. One in process hides a remote one with the same name.
    pub fn new(local: LocalActivities, remote: Arc<RemoteRegistry>) -> Self {
        Self { local, remote }
    }

    /// The activities in process.
    pub fn local(&self) -> &LocalActivities {
        &self.local
    }

    /// The activities of other services.
    pub fn remote(&self) -> &RemoteRegistry {
        &self.remote
    }

    /// The activities that definitions may use now, as the JSON text that validation reads.
    pub fn registry_json(&self) -> String {
        self.registry_json_with("", None)
    }

    /// [`Self::registry_json`] as it would be if the remote activity `name` had this declaration, or were removed.
    pub fn registry_json_with(&self, name: &str, declaration: Option<&ActivityDeclaration>) -> String {
        let remote = self.remote.all();
        let others = remote.iter().map(|remote| &remote.declaration().activity);
        let remote = others.filter(|activity| activity.name != name).chain(declaration);
        let visible = remote.filter(|activity| !self.local.contains(&activity.name));
        registry_json(self.local.declarations().chain(visible))
    }

    /// The wire format and target of an activity, such as `rest https://devices.test`; none if it is in process, or
    /// unknown.
    pub fn target_label(&self, activity: &str) -> Option<String> {
        let remote = self.remote.get(activity).filter(|_| !self.local.contains(activity))?;
        Some(format!("{} {}", remote.declaration().transport.as_str(), remote.target()))
    }
}

impl ActivityTransport for ActivityRouter {
    async fn run_attempt(&self, call: CallAttempt) -> AttemptResult {
        self.run_attempt_with_permit(call, &UnlimitedPermits).await
    }

    async fn run_attempt_with_permit<R: PermitSource>(
        &self,
        call: CallAttempt,
        permits: &R,
    ) -> AttemptResult {
        let (call, secrets) =
            match input_secrets::resolve_input_secrets(call, self.remote.outbound().secrets()).await {
                Ok(resolved) => resolved,
                Err(failure) => return AttemptResult::Failed(failure),
            };
        if self.local.contains(&call.activity) {
            return secrets.redact_result(self.local.run_attempt_with_permit(call, permits).await);
        }
        match self.remote.get(&call.activity) {
            Some(remote) => secrets.redact_result(remote.run_attempt_with_permit(call, permits).await),
            None => {
                let message = format!("unknown activity {:?}", call.activity);
                AttemptResult::Failed(CallFailure::permanent("ActivityNotFound", message).with_not_sent())
            }
        }
    }
}
