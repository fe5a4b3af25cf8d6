//! Finds the entity that an activity means: the one it names, or for a key alone that of its run, or the only one.
//!
//! A run knows the type and the key of the entity it acts for from its start. For any other key, all entities that
//! exist are searched. So an empty answer always means that there is nothing: event routes, which may have been deleted
//! since, play no part.

use abide_dispatch::CallFailure;
use abide_dispatch::local::LocalInvocation;
use abide_store::Store;
use abide_store::tables::instances::{InstanceRow, ParentRun};
use abide_workflow::{InstanceId, RunNumber};
use serde_json::Value;

use crate::entity::{EntityId, EntityReadError};
use crate::node::Node;

/// Types of entities that are searched for a key.
const TYPES_MAX: usize = 1_000;
/// Parents that are asked for the entity of a child.
const PARENTS_MAX: usize = 64;

impl<S: Store> Node<S> {
    /// The entity that an input names. Without a type it is the entity of the call's run, if that has the key; else the
    /// only entity with the key. None if no entity has the key.
    pub(super) async fn find_entity(&self, call: &LocalInvocation) -> Result<Option<EntityId>, CallFailure> {
        if let Some(entity_type) = call.input.get("entityType").and_then(Value::as_str) {
            return parse_entity_id(&call.input, entity_type).map(Some);
        }
        let key = call.input.get("entityId").and_then(Value::as_str).unwrap_or_default();
        let run = parse_execution_id(&call.metadata.execution_id);
        if let Some((id, run_number)) = &run
            && let Some(entity_type) = self.entity_type_of_run(id, *run_number, key).await?
        {
            return parse_entity_id(&call.input, &entity_type).map(Some);
        }
        // Entities of one key share a shard, whatever their types.
        let sibling = parse_entity_id(&call.input, "any")?;
        let Some(reader) = self.entity_reader_for(&sibling) else { return Ok(None) };
        let Some(found) = reader.with_key(key, TYPES_MAX).await.map_err(|error| unreadable(&error))? else {
            let message = format!("there are more than {TYPES_MAX} types of entities: set entityType");
            return Err(CallFailure::permanent("EntityTypeRequired", message));
        };
        match &*found {
            [] => Ok(None),
            [only] => Ok(Some(only.clone())),
            [first, second, ..] => {
                if let Some((id, _)) = &run
                    && let Some(named) = self.entity_type_in_input(id, key).await
                    && let Some(named) = found.iter().find(|found| found.entity_type() == named)
                {
                    return Ok(Some(named.clone()));
                }
                let message = format!("{first} and {second} both have this key: set entityType");
                Err(CallFailure::permanent("AmbiguousEntity", message))
            }
        }
    }

    /// The type of the entity with this key, if the run or one of its ancestors was started for it. A child acts for
    /// the entity of its parent, and only the first of them has the type.
    async fn entity_type_of_run(
        &self,
        id: &InstanceId,
        run_number: RunNumber,
        key: &str,
    ) -> Result<Option<Box<str>>, CallFailure> {
        let mut next = Some((id.clone(), run_number));
        for _ in 0..PARENTS_MAX {
            let Some((id, run_number)) = next.take() else { return Ok(None) };
            let Some(partition) = self.store_effects.partition(self.shard_of_instance(&id)) else {
                return Ok(None);
            };
            let row = self.store_effects.run_reader().instance_row(partition, &id).await;
            let row = row.map_err(|error| unreadable(&error.into()))?;
            let row = row.map_err(|row| CallFailure::retryable("EntityUnreadable", row.reason))?;
            let is_meant =
                |row: &InstanceRow| row.run_number == run_number && row.entity_id.as_deref() == Some(key);
            let Some(row) = row.filter(is_meant) else { return Ok(None) };
            if row.entity_type.is_some() {
                return Ok(row.entity_type);
            }
            next = row.parent.and_then(|parent| {
                let ParentRun { instance_id, run_number, .. } = *parent;
                Some((InstanceId::new(instance_id).ok()?, run_number))
            });
        }
        Ok(None)
    }

    /// The type in the input of a run whose start did not record it, if the input has this key as well: event routes
    /// give both to the runs they start. In lower case.
    async fn entity_type_in_input(&self, id: &InstanceId, key: &str) -> Option<String> {
        let view = self.view_instance(id).await.ok()??;
        let text = |name: &str| view.input.get(name).and_then(Value::as_str);
        text("entityId").filter(|of| *of == key).and(text("entityType")).map(str::to_ascii_lowercase)
    }
}

/// The instance and the run number in an execution id, `{instance}/{run}`.
pub(super) fn parse_execution_id(text: &str) -> Option<(InstanceId, RunNumber)> {
    let (id, run) = text.rsplit_once('/')?;
    Some((InstanceId::new(id).ok()?, RunNumber(run.parse().ok()?)))
}

pub(super) fn parse_entity_id(input: &Value, entity_type: &str) -> Result<EntityId, CallFailure> {
    let key = input.get("entityId").and_then(Value::as_str).unwrap_or_default();
    EntityId::new(entity_type, key)
        .map_err(|error| CallFailure::permanent("EntityIdInvalid", error.to_string()))
}

pub(super) fn unreadable(error: &EntityReadError) -> CallFailure {
    CallFailure::retryable("EntityUnreadable", error.to_string())
}
