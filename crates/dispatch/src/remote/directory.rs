//! The remote activities by name, replaced while calls are under way; and the transport that finds an activity wherever it is.
//!
//! A call that is under way keeps the activity it began with. Knows nothing of where declarations are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::activity::Remote;
use super::declaration::{DeclarationError, RemoteDeclaration};
use super::input_secrets;
use super::outbound::Outbound;
use crate::declaration::{Declaration, registry_json};
use crate::local::Activities;
use crate::transport::{Answer, Call, Failure, Room, Transport, Unbounded};

type ByName = BTreeMap<String, Arc<Remote>>;

/// The remote activities.
pub struct Directory {
    outbound: Outbound,
    by_name: RwLock<Arc<ByName>>,
}

/// A declaration among others that is not one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Two of one name.
    #[error("activity {activity:?} is declared twice")]
    Duplicate {
        /// Which.
        activity: String,
    },
    /// One that cannot be.
    #[error("activity {activity:?}: {source}")]
    Declaration {
        /// Which.
        activity: String,
        /// What is wrong.
        source: DeclarationError,
    },
}

impl Directory {
    /// A directory of nothing yet.
    pub fn new(outbound: Outbound) -> Self {
        Self { outbound, by_name: RwLock::default() }
    }

    /// Whether the declaration could be put, without putting it.
    pub fn check(&self, declaration: &RemoteDeclaration) -> Result<(), DeclarationError> {
        Remote::new(declaration.clone(), &self.outbound).map(drop)
    }

    /// Adds the activity, or replaces the one of its name. What is the same as before stays as it is, with all that is under way.
    pub fn put(&self, declaration: RemoteDeclaration) -> Result<(), DeclarationError> {
        let now = self.now();
        let remote = self.made(&now, declaration)?;
        self.change(|by_name| drop(by_name.insert(remote.declaration().activity.name.clone(), remote)));
        Ok(())
    }

    /// Removes the activity; false if there is none of this name.
    pub fn remove(&self, activity: &str) -> bool {
        let mut was_there = false;
        self.change(|by_name| was_there = by_name.remove(activity).is_some());
        was_there
    }

    /// Replaces all activities at once, or none of them if one cannot be.
    pub fn replace(
        &self,
        declarations: impl IntoIterator<Item = RemoteDeclaration>,
    ) -> Result<(), DirectoryError> {
        let (now, mut next) = (self.now(), ByName::new());
        for declaration in declarations {
            let activity = declaration.activity.name.clone();
            let wrong = |source| DirectoryError::Declaration { activity: activity.clone(), source };
            let remote = self.made(&now, declaration).map_err(wrong)?;
            if next.insert(activity.clone(), remote).is_some() {
                return Err(DirectoryError::Duplicate { activity });
            }
        }
        self.change(|by_name| *by_name = next);
        Ok(())
    }

    /// The activity of this name.
    pub fn get(&self, activity: &str) -> Option<Arc<Remote>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(activity).cloned()
    }

    /// All activities, sorted by name.
    pub fn all(&self) -> Vec<Arc<Remote>> {
        self.now().values().cloned().collect()
    }

    fn now(&self) -> Arc<ByName> {
        Arc::clone(&self.by_name.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn made(&self, now: &ByName, declaration: RemoteDeclaration) -> Result<Arc<Remote>, DeclarationError> {
        match now.get(&declaration.activity.name) {
            Some(same) if *same.declaration() == declaration => Ok(Arc::clone(same)),
            _ => Remote::new(declaration, &self.outbound).map(Arc::new),
        }
    }

    fn change(&self, change: impl FnOnce(&mut ByName)) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut by_name));
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.now().keys()).finish()
    }
}

/// All activities there are: those in process first, then those of other services.
#[derive(Debug)]
pub struct Everywhere {
    local: Activities,
    remote: Arc<Directory>,
}

impl Everywhere {
    /// Activities of both kinds. One in process hides a remote one of its name.
    pub fn new(local: Activities, remote: Arc<Directory>) -> Self {
        Self { local, remote }
    }

    /// Those in process.
    pub fn local(&self) -> &Activities {
        &self.local
    }

    /// Those of other services.
    pub fn remote(&self) -> &Directory {
        &self.remote
    }

    /// What definitions may name now, as the JSON text that validation reads.
    pub fn registry_json(&self) -> String {
        self.registry_json_with("", None)
    }

    /// As [`Self::registry_json`] would be if the remote activity `name` were this, or were not.
    pub fn registry_json_with(&self, name: &str, declaration: Option<&Declaration>) -> String {
        let remote = self.remote.all();
        let others = remote.iter().map(|remote| &remote.declaration().activity);
        let remote = others.filter(|activity| activity.name != name).chain(declaration);
        let seen = remote.filter(|activity| !self.local.contains(&activity.name));
        registry_json(self.local.declarations().chain(seen))
    }

    /// Where an activity is, such as `rest https://devices.test`; none if it is in process, or nowhere.
    pub fn whereabouts(&self, activity: &str) -> Option<String> {
        let remote = self.remote.get(activity).filter(|_| !self.local.contains(activity))?;
        Some(format!("{} {}", remote.declaration().transport.as_str(), remote.target()))
    }
}

impl Transport for Everywhere {
    async fn deliver(&self, call: Call) -> Answer {
        self.deliver_in(call, &Unbounded).await
    }

    async fn deliver_in<R: Room>(&self, call: Call, room: &R) -> Answer {
        let (call, secrets) = match input_secrets::reveal(call, self.remote.outbound.secrets()).await {
            Ok(revealed) => revealed,
            Err(failure) => return Answer::Failed(failure),
        };
        if self.local.contains(&call.activity) {
            return secrets.taken_out_of(self.local.deliver_in(call, room).await);
        }
        match self.remote.get(&call.activity) {
            Some(remote) => secrets.taken_out_of(remote.deliver_in(call, room).await),
            None => {
                let message = format!("there is no activity {:?}", call.activity);
                Answer::Failed(Failure::for_good("ActivityNotFound", message).with_not_sent())
            }
        }
    }
}
