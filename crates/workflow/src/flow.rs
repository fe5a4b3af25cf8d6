//! The transitions of a definition as a graph: successors, reachability and loops.
//!
//! It knows nothing of findings or of running: validation and compilation both build on it. Every operation is linear
//! in the number of states and transitions.

use std::collections::BTreeSet;

use crate::definition::{Definition, State};
use crate::ids::{BlockId, StateId};

/// Successors of every state within its block. Targets that do not exist are left out.
#[derive(Debug)]
pub(crate) struct Flow {
    next: Vec<Vec<StateId>>,
}

impl Flow {
    pub(crate) fn of(definition: &Definition) -> Self {
        let next = definition.states.iter().map(|state| {
            let mut targets: Vec<StateId> = state
                .targets()
                .iter()
                .filter_map(|(_, name)| resolve(definition, state.block, name))
                .collect();
            targets.sort();
            targets.dedup();
            targets
        });
        Self { next: next.collect() }
    }

    /// The same graph with only the states that `keep` holds for.
    pub(crate) fn restricted(&self, keep: impl Fn(StateId) -> bool) -> Self {
        let kept: Vec<bool> = (0_u32..).map(StateId).zip(&self.next).map(|(state, _)| keep(state)).collect();
        let is_kept = |state: StateId| kept.get(state.0 as usize) == Some(&true);
        let targets = |(state, targets): (StateId, &Vec<StateId>)| match is_kept(state) {
            true => targets.iter().copied().filter(|target| is_kept(*target)).collect(),
            false => Vec::new(),
        };
        Self { next: (0_u32..).map(StateId).zip(&self.next).map(targets).collect() }
    }

    pub(crate) fn successors(&self, state: StateId) -> &[StateId] {
        self.next.get(state.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The given states and all states that can follow them.
    pub(crate) fn reachable(&self, from: impl IntoIterator<Item = StateId>) -> BTreeSet<StateId> {
        self.reachable_until(from, |_| false)
    }

    /// The given states and all states that can follow them without passing a state where `stop` holds.
    pub(crate) fn reachable_until(
        &self,
        from: impl IntoIterator<Item = StateId>,
        stop: impl Fn(StateId) -> bool,
    ) -> BTreeSet<StateId> {
        closure(from, |state| if stop(state) { Vec::new() } else { self.successors(state).to_vec() })
    }

    /// The given states and all states that can lead to them.
    pub(crate) fn leading_to(&self, to: impl IntoIterator<Item = StateId>) -> BTreeSet<StateId> {
        let mut previous: Vec<Vec<StateId>> = vec![Vec::new(); self.next.len()];
        for (state, targets) in (0_u32..).zip(&self.next) {
            for target in targets {
                if let Some(sources) = previous.get_mut(target.0 as usize) {
                    sources.push(StateId(state));
                }
            }
        }
        closure(to, |state| previous.get(state.0 as usize).cloned().unwrap_or_default())
    }

    /// Strongly connected components, each after all components it leads to. Tarjan's algorithm without recursion: a
    /// chain may be 1,000 states long.
    pub(crate) fn components(&self) -> Vec<Vec<StateId>> {
        let mut search = Tarjan {
            flow: self,
            order: vec![None; self.next.len()],
            low: vec![0; self.next.len()],
            on_stack: vec![false; self.next.len()],
            stack: Vec::new(),
            counter: 0,
            components: Vec::new(),
        };
        for (state, _) in (0_u32..).zip(&self.next) {
            search.visit(StateId(state));
        }
        search.components
    }

    /// True if a component is a loop.
    pub(crate) fn is_loop(&self, component: &[StateId]) -> bool {
        match component {
            [only] => self.successors(*only).contains(only),
            _ => true,
        }
    }
}

/// The state with this name in a block.
pub(crate) fn resolve(definition: &Definition, block: BlockId, name: &str) -> Option<StateId> {
    definition.blocks.get(block.0 as usize)?.states.get(name).copied()
}

pub(crate) fn state_of(definition: &Definition, id: StateId) -> Option<&State> {
    definition.states.get(id.0 as usize)
}

fn closure(
    from: impl IntoIterator<Item = StateId>,
    step: impl Fn(StateId) -> Vec<StateId>,
) -> BTreeSet<StateId> {
    let mut visited: BTreeSet<StateId> = BTreeSet::new();
    let mut open: Vec<StateId> = from.into_iter().collect();
    while let Some(state) = open.pop() {
        if visited.insert(state) {
            open.extend(step(state));
        }
    }
    visited
}

struct Tarjan<'a> {
    flow: &'a Flow,
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<StateId>,
    counter: usize,
    components: Vec<Vec<StateId>>,
}

impl Tarjan<'_> {
    fn visit(&mut self, root: StateId) {
        if self.order_of(root).is_some() {
            return;
        }
        self.open(root);
        let mut path: Vec<(StateId, usize)> = vec![(root, 0)];
        while let Some((state, position)) = path.pop() {
            match self.flow.successors(state).get(position).copied() {
                Some(next) => {
                    path.push((state, position + 1));
                    match self.order_of(next) {
                        None => {
                            self.open(next);
                            path.push((next, 0));
                        }
                        Some(order) if self.on_stack.get(next.0 as usize) == Some(&true) => {
                            self.lower(state, order)
                        }
                        Some(_) => {}
                    }
                }
                None => {
                    if let Some((parent, _)) = path.last() {
                        let parent = *parent;
                        let low = self.low_of(state);
                        self.lower(parent, low);
                    }
                    if Some(self.low_of(state)) == self.order_of(state) {
                        self.close(state);
                    }
                }
            }
        }
    }

    fn open(&mut self, state: StateId) {
        let at = state.0 as usize;
        if let (Some(order), Some(low), Some(on_stack)) =
            (self.order.get_mut(at), self.low.get_mut(at), self.on_stack.get_mut(at))
        {
            *order = Some(self.counter);
            *low = self.counter;
            *on_stack = true;
        }
        self.counter += 1;
        self.stack.push(state);
    }

    fn close(&mut self, state: StateId) {
        let mut component = Vec::new();
        while let Some(member) = self.stack.pop() {
            if let Some(on_stack) = self.on_stack.get_mut(member.0 as usize) {
                *on_stack = false;
            }
            component.push(member);
            if member == state {
                break;
            }
        }
        self.components.push(component);
    }

    fn order_of(&self, state: StateId) -> Option<usize> {
        self.order.get(state.0 as usize).copied().flatten()
    }

    fn low_of(&self, state: StateId) -> usize {
        self.low.get(state.0 as usize).copied().unwrap_or(0)
    }

    fn lower(&mut self, state: StateId, to: usize) {
        if let Some(low) = self.low.get_mut(state.0 as usize) {
            *low = (*low).min(to);
        }
    }
}
