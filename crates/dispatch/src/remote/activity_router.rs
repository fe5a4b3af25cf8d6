//! The registry of remote activities by name, and the router that finds an activity in process or in the registry.
//!
//! Activities may be replaced while calls are in progress; a call keeps the activity that it started with. The
//! router also puts secrets into the input and redacts them from the result, for activities in process too. Knows
//! nothing about where declarations are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::activity::RemoteActivity;
use super::declaration::{DeclarationError, RemoteDeclaration};
use super::input_secrets;
use super::outbound::Outbound;
use crate::declaration::{ActivityDeclaration, registry_json};
use crate::local::LocalActivities;
use crate::transport::{
    ActivityTransport, AttemptResult, CallAttempt, CallFailure, PermitSource, UnlimitedPermits,
};

type ActivitiesByName = BTreeMap<String, Arc<RemoteActivity>>;

/// The remote activities by name.
pub struct RemoteRegistry {
    outbound: Outbound,
    by_name: RwLock<Arc<ActivitiesByName>>,
}

/// Why a set of declarations is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteRegistryError {
    /// Two declarations have the same name.
    #[error("activity {activity:?} is declared twice")]
    Duplicate { activity: String },
    /// A declaration is invalid.
    #[error("activity {activity:?}: {source}")]
    Declaration { activity: String, source: DeclarationError },
}

impl RemoteRegistry {
    /// An empty registry.
    pub fn new(outbound: Outbound) -> Self {
        Self { outbound, by_name: RwLock::default() }
    }

    /// Checks that the declaration could be put, without putting it.
    pub fn check(&self, declaration: &RemoteDeclaration) -> Result<(), DeclarationError> {
        RemoteActivity::new(declaration.clone(), &self.outbound).map(drop)
    }

    /// Adds the activity, or replaces the one with its name. If the declaration is unchanged, the activity stays, with
    /// all its calls in progress.
    pub fn put(&self, declaration: RemoteDeclaration) -> Result<(), DeclarationError> {
        let current = self.snapshot();
        let remote = self.build_or_reuse(&current, declaration)?;
        self.update(|by_name| drop(by_name.insert(remote.declaration().activity.name.clone(), remote)));
        Ok(())
    }

    /// Removes the activity; false if there is none with this name.
    pub fn remove(&self, activity: &str) -> bool {
        let mut existed = false;
        self.update(|by_name| existed = by_name.remove(activity).is_some());
        existed
    }

    /// Replaces all activities at once, or none of them if one declaration is invalid.
    pub fn replace(
        &self,
        declarations: impl IntoIterator<Item = RemoteDeclaration>,
    ) -> Result<(), RemoteRegistryError> {
        let current = self.snapshot();
        let mut next = ActivitiesByName::new();
        for declaration in declarations {
            let activity = declaration.activity.name.clone();
            let invalid = |source| RemoteRegistryError::Declaration { activity: activity.clone(), source };
            let remote = self.build_or_reuse(&current, declaration).map_err(invalid)?;
            if next.insert(activity.clone(), remote).is_some() {
                return Err(RemoteRegistryError::Duplicate { activity });
            }
        }
        self.update(|by_name| *by_name = next);
        Ok(())
    }

    /// The activity with this name.
    pub fn get(&self, activity: &str) -> Option<Arc<RemoteActivity>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(activity).cloned()
    }

    /// All activities, sorted by name.
    pub fn all(&self) -> Vec<Arc<RemoteActivity>> {
        self.snapshot().values().cloned().collect()
    }

    fn snapshot(&self) -> Arc<ActivitiesByName> {
        Arc::clone(&self.by_name.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn build_or_reuse(
        &self,
        current: &ActivitiesByName,
        declaration: RemoteDeclaration,
    ) -> Result<Arc<RemoteActivity>, DeclarationError> {
        match current.get(&declaration.activity.name) {
            Some(same) if *same.declaration() == declaration => Ok(Arc::clone(same)),
            _ => RemoteActivity::new(declaration, &self.outbound).map(Arc::new),
        }
    }

    fn update(&self, change: impl FnOnce(&mut ActivitiesByName)) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut by_name));
    }
}

impl fmt::Debug for RemoteRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.snapshot().keys()).finish()
    }
}

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
            match input_secrets::resolve_input_secrets(call, self.remote.outbound.secrets()).await {
                Ok(resolved) => resolved,
                Err(failure) => return AttemptResult::Failed(failure),
            };
        if self.local.contains(&call.activity) {
            return secrets.redact_result(self.local.run_attempt_with_permit(call, permits).await);
        }
        match self.remote.get(&call.activity) {
            Some(remote) => secrets.redact_result(remote.deliver_with_permit(call, permits).await),
            None => {
                let message = format!("unknown activity {:?}", call.activity);
                AttemptResult::Failed(CallFailure::permanent("ActivityNotFound", message).with_not_sent())
            }
        }
    }
}
