//! Resolves the data a branch sees: its own first, then that of its ancestor branches.
//!
//! It only reads. A branch's writes stay in its own slots, so the data of its ancestors does not change while it runs.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::definition::StateKind;
use crate::evaluation::{BudgetExhausted, EvaluationBudget, memory};
use crate::ids::{BranchId, digest_uuid};
use crate::instance::{Branch, Instance, SlotName};
use crate::path::{Root, Roots, SYSTEM_FIELDS};
use crate::plan::Plan;
use crate::time::Timestamp;

/// One branch's view of the run's data.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) instance: &'a Instance,
    pub(crate) branch: BranchId,
    pub(crate) now: Timestamp,
    /// A candidate event, visible as `$.event` while it is matched.
    pub(crate) event: Option<&'a Value>,
    /// Charged by everything that is evaluated on this view.
    pub(crate) budget: &'a EvaluationBudget,
}

impl<'a> Scope<'a> {
    /// The branch and its ancestors, innermost first.
    fn lineage(&self) -> impl Iterator<Item = (BranchId, &'a Branch)> {
        let instance = self.instance;
        let first = instance.branch(self.branch).ok().map(|branch| (self.branch, branch));
        std::iter::successors(first, move |(_, branch)| {
            let parent = branch.parent?.branch;
            instance.branch(parent).ok().map(|branch| (parent, branch))
        })
    }

    fn inherited_slot(&self, name: &SlotName) -> Option<Cow<'a, Value>> {
        let instance = self.instance;
        self.lineage().find_map(|(id, _)| instance.slot(id, name)).map(|value| Cow::Borrowed(&**value))
    }

    fn event(&self) -> Option<Cow<'a, Value>> {
        let trigger = || self.instance.origin().event.as_ref().map(|event| Cow::Borrowed(&**event));
        self.event.map(Cow::Borrowed).or_else(|| self.inherited_slot(&SlotName::Event)).or_else(trigger)
    }

    /// The innermost enclosing map: the branch that runs it, and this branch's position in it.
    fn map_position(&self) -> Option<(BranchId, u32)> {
        self.lineage().find_map(|(_, branch)| {
            let parent = branch.parent?;
            let owner = self.instance.branch(parent.branch).ok()?;
            let state = self.plan.state(owner.state).ok()?;
            matches!(state.kind, StateKind::Map { .. }).then_some((parent.branch, parent.index))
        })
    }

    fn item(&self) -> Result<Option<Cow<'a, Value>>, BudgetExhausted> {
        let Some((owner, index)) = self.map_position() else { return Ok(None) };
        if let Some(items) = self.instance.slot(owner, &SlotName::Items) {
            return Ok(items.get(index as usize).map(Cow::Borrowed));
        }
        let Some(StateKind::Map { items, .. }) = self.kind_of_state(owner) else { return Ok(None) };
        let outer = Scope { branch: owner, event: None, ..*self };
        let items = items.find_on_budget(&outer)?;
        let item = items.as_deref().and_then(|items| items.get(index as usize));
        item.map(|item| self.budget.copy(item).map(Cow::Owned)).transpose()
    }

    fn kind_of_state(&self, branch: BranchId) -> Option<&'a StateKind> {
        let state = self.plan.state(self.instance.branch(branch).ok()?.state).ok()?;
        Some(&state.kind)
    }

    fn merged_state(&self) -> Result<Value, BudgetExhausted> {
        let mut merged = Map::new();
        for (id, _) in self.lineage() {
            for (name, value) in self.instance.state_slots(id) {
                if !merged.contains_key(name) {
                    // At most: a node of the map for each name.
                    self.budget.charge_bytes(memory::object(1) + name.len() as u64)?;
                    merged.insert(name.clone(), self.budget.copy(value)?);
                }
            }
        }
        Ok(Value::Object(merged))
    }

    fn system_field(&self, name: &str) -> Option<Value> {
        let origin = self.instance.origin();
        Some(match name {
            "instanceId" => origin.instance_id.as_str().into(),
            "executionId" => origin.execution_id().to_string().into(),
            "correlationId" => origin.correlation_id.as_str().into(),
            "entityId" => origin.entity_id.clone().map_or(Value::Null, Value::String),
            "startTime" => self.instance.started_at().to_string().into(),
            "currentTime" => self.now.to_string().into(),
            "newId" => self.new_id().into(),
            _ => return None,
        })
    }

    /// The id is the same for every attempt of one visit and differs for every other visit.
    fn new_id(&self) -> String {
        let execution = self.instance.origin().execution_id().to_string();
        let mut place = Vec::new();
        for (_, branch) in self.lineage() {
            place.extend(branch.state.0.to_be_bytes());
            place.extend(branch.visit.to_be_bytes());
            place.extend(branch.parent.map_or(u32::MAX, |parent| parent.index).to_be_bytes());
        }
        digest_uuid(&[b"newId", execution.as_bytes(), &place])
    }
}

impl Roots for Scope<'_> {
    fn root_value(&self, root: Root) -> Result<Option<Cow<'_, Value>>, BudgetExhausted> {
        Ok(match root {
            Root::Input => Some(Cow::Borrowed(&*self.instance.origin().input)),
            Root::State => Some(Cow::Owned(self.merged_state()?)),
            Root::Event => self.event(),
            Root::Error => self.inherited_slot(&SlotName::Error),
            Root::Item => self.item()?,
            Root::Index => self.map_position().map(|(_, index)| Cow::Owned(index.into())),
            Root::System => {
                let field = |name: &&str| Some(((*name).to_owned(), self.system_field(name)?));
                Some(Cow::Owned(Value::Object(SYSTEM_FIELDS.iter().filter_map(field).collect())))
            }
        })
    }

    fn root_field(&self, root: Root, name: &str) -> Result<Option<Cow<'_, Value>>, BudgetExhausted> {
        Ok(match root {
            Root::State => {
                let slot = self.lineage().find_map(|(id, _)| self.instance.state_slot(id, name));
                slot.map(|value| Cow::Borrowed(&**value))
            }
            Root::System => self.system_field(name).map(Cow::Owned),
            _ => self.root_value(root)?.and_then(|value| match value {
                Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
                Cow::Owned(mut value) => value.get_mut(name).map(|field| Cow::Owned(field.take())),
            }),
        })
    }

    fn budget(&self) -> &EvaluationBudget {
        self.budget
    }
}
