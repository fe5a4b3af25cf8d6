//! The registry of remote activities by name.
//!
//! Activities may be replaced while calls are in progress; a call keeps the activity that it started with. Knows
//! nothing about where declarations are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::activity::RemoteActivity;
use super::declaration::{DeclarationError, RemoteDeclaration};
use super::outbound::Outbound;

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

    /// What the activities send their calls through.
    pub(crate) fn outbound(&self) -> &Outbound {
        &self.outbound
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
