//! Evaluates a query on a value, step by step on the budget. It copies nothing and keeps no list of intermediate
//! values: each selected value is passed on at once.
//!
//! Recursion is bounded by the length of the path and by the depth of the data, which are both limited.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use serde_json::Value;

use super::query::{Comparison, Operand, Query, QuerySegment, Selector, Start, Test};
use crate::evaluation::{BudgetExhausted, EvaluationBudget};
use crate::json;

/// Evaluates queries over one set of data.
pub(super) struct QueryEvaluator<'v> {
    pub(super) budget: &'v EvaluationBudget,
    /// The values that filters refer to by `$`.
    pub(super) absolute: &'v [Option<&'v Value>],
}

/// Takes a selected value; `Break` ends the search.
type Visitor<'s, 'v> = dyn FnMut(&'v Value) -> Result<ControlFlow<()>, BudgetExhausted> + 's;
type Visited = Result<ControlFlow<()>, BudgetExhausted>;

/// A side of a comparison.
enum Operated<'v> {
    Nothing,
    Value(&'v Value),
    Number(u64),
}

impl<'v> QueryEvaluator<'v> {
    /// Passes every value that the query selects to `visit`, in order.
    pub(super) fn select(
        &self,
        query: &'v Query,
        current: &'v Value,
        visit: &mut Visitor<'_, 'v>,
    ) -> Visited {
        let start = match query.start {
            Start::Current => Some(current),
            Start::Absolute(position) => self.absolute.get(position).copied().flatten(),
        };
        match start {
            Some(start) => self.follow(&query.segments, start, visit),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn follow(&self, segments: &'v [QuerySegment], at: &'v Value, visit: &mut Visitor<'_, 'v>) -> Visited {
        self.budget.charge_steps(1)?;
        match segments.split_first() {
            None => visit(at),
            Some((segment, rest)) if segment.descends => self.descend(segment, rest, at, visit),
            Some((segment, rest)) => self.apply(segment, rest, at, visit),
        }
    }

    /// Applies a segment to a value and then to everything below it.
    fn descend(
        &self,
        segment: &'v QuerySegment,
        rest: &'v [QuerySegment],
        at: &'v Value,
        visit: &mut Visitor<'_, 'v>,
    ) -> Visited {
        self.budget.charge_steps(1)?;
        if self.apply(segment, rest, at, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        self.each_child(at, &mut |child| self.descend(segment, rest, child, visit))
    }

    fn apply(
        &self,
        segment: &'v QuerySegment,
        rest: &'v [QuerySegment],
        at: &'v Value,
        visit: &mut Visitor<'_, 'v>,
    ) -> Visited {
        for selector in &segment.selectors {
            let flow = match selector {
                Selector::Name(name) => self.follow_found(rest, at.get(name), visit),
                Selector::Index(index) => {
                    let found = at.as_array().and_then(|items| items.get(position(*index, items.len())?));
                    self.follow_found(rest, found, visit)
                }
                Selector::Wildcard => self.each_child(at, &mut |child| self.follow(rest, child, visit)),
                Selector::Slice { start, end, step } => {
                    let items = at.as_array().map(Vec::as_slice).unwrap_or_default();
                    self.slice(items, (*start, *end, *step), &mut |item| self.follow(rest, item, visit))
                }
                Selector::Filter(test) => self.each_child(at, &mut |child| {
                    if self.holds(test, child)? {
                        self.follow(rest, child, visit)
                    } else {
                        Ok(ControlFlow::Continue(()))
                    }
                }),
            };
            if flow?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn follow_found(
        &self,
        rest: &'v [QuerySegment],
        found: Option<&'v Value>,
        visit: &mut Visitor<'_, 'v>,
    ) -> Visited {
        found.map_or(Ok(ControlFlow::Continue(())), |found| self.follow(rest, found, visit))
    }

    fn each_child(&self, at: &'v Value, visit: &mut Visitor<'_, 'v>) -> Visited {
        match at {
            Value::Array(items) => self.each(items.iter(), visit),
            Value::Object(fields) => self.each(fields.values(), visit),
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    fn each(&self, values: impl Iterator<Item = &'v Value>, visit: &mut Visitor<'_, 'v>) -> Visited {
        for value in values {
            self.budget.charge_steps(1)?;
            if visit(value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The elements of a slice, as RFC 9535 section 2.3.4.2.2 normalises its bounds.
    fn slice(
        &self,
        items: &'v [Value],
        (start, end, step): (Option<i64>, Option<i64>, i64),
        visit: &mut Visitor<'_, 'v>,
    ) -> Visited {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let normal = |index: i64| if index < 0 { length.saturating_add(index) } else { index };
        let at = |index: i64| usize::try_from(index).ok().and_then(|index| items.get(index));
        let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
        if step > 0 {
            let lower = normal(start.unwrap_or(0)).clamp(0, length);
            let upper = normal(end.unwrap_or(length)).clamp(0, length);
            return self.each((lower..upper).step_by(stride).filter_map(at), visit);
        }
        if step < 0 {
            let upper = normal(start.unwrap_or(length - 1)).clamp(-1, length - 1);
            let lower = end.map_or(-1, normal).clamp(-1, length - 1);
            return self.each((lower + 1..=upper).rev().step_by(stride).filter_map(at), visit);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn holds(&self, test: &'v Test, current: &'v Value) -> Result<bool, BudgetExhausted> {
        self.budget.charge_steps(1)?;
        match test {
            Test::Or(any) => {
                for test in any {
                    if self.holds(test, current)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Test::And(all) => {
                for test in all {
                    if !self.holds(test, current)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Test::Not(test) => Ok(!self.holds(test, current)?),
            Test::Exists(query) => {
                let found = self.select(query, current, &mut |_| Ok(ControlFlow::Break(())))?;
                Ok(found.is_break())
            }
            Test::Compare { left, comparison, right } => {
                let left = self.operand(left, current)?;
                let right = self.operand(right, current)?;
                self.compare(&left, *comparison, &right)
            }
        }
    }

    fn operand(&self, operand: &'v Operand, current: &'v Value) -> Result<Operated<'v>, BudgetExhausted> {
        match operand {
            Operand::Literal(value) => Ok(Operated::Value(value)),
            Operand::ValueOf(query) => {
                let mut found = None;
                let flow = self.select(query, current, &mut |value| {
                    Ok(if found.replace(value).is_some() {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    })
                })?;
                Ok(found.filter(|_| flow.is_continue()).map_or(Operated::Nothing, Operated::Value))
            }
            Operand::Count(query) => {
                let mut count = 0;
                let _ = self.select(query, current, &mut |_| {
                    count += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(Operated::Number(count))
            }
            Operand::Length(operand) => match self.operand(operand, current)? {
                Operated::Value(Value::String(text)) => {
                    self.budget.charge_text(text.len())?;
                    Ok(Operated::Number(text.chars().count() as u64))
                }
                Operated::Value(Value::Array(items)) => Ok(Operated::Number(items.len() as u64)),
                Operated::Value(Value::Object(fields)) => Ok(Operated::Number(fields.len() as u64)),
                _ => Ok(Operated::Nothing),
            },
        }
    }

    fn compare(
        &self,
        left: &Operated<'_>,
        comparison: Comparison,
        right: &Operated<'_>,
    ) -> Result<bool, BudgetExhausted> {
        let (left, right) = (left.as_value(), right.as_value());
        let (left, right) = (left.as_deref(), right.as_deref());
        match comparison {
            Comparison::Equal => self.equal(left, right),
            Comparison::NotEqual => Ok(!self.equal(left, right)?),
            Comparison::Less => self.is_ordered(left, right, Ordering::is_lt),
            Comparison::Greater => self.is_ordered(left, right, Ordering::is_gt),
            Comparison::LessOrEqual => {
                Ok(self.is_ordered(left, right, Ordering::is_lt)? || self.equal(left, right)?)
            }
            Comparison::GreaterOrEqual => {
                Ok(self.is_ordered(left, right, Ordering::is_gt)? || self.equal(left, right)?)
            }
        }
    }

    fn equal(&self, left: Option<&Value>, right: Option<&Value>) -> Result<bool, BudgetExhausted> {
        match (left, right) {
            (Some(left), Some(right)) => json::equal(left, right, self.budget),
            (left, right) => Ok(left.is_none() && right.is_none()),
        }
    }

    fn is_ordered(
        &self,
        left: Option<&Value>,
        right: Option<&Value>,
        expected: impl Fn(Ordering) -> bool,
    ) -> Result<bool, BudgetExhausted> {
        let order = match left.zip(right) {
            Some((left, right)) => json::order(left, right, self.budget)?,
            None => None,
        };
        Ok(order.is_some_and(expected))
    }
}

impl<'v> Operated<'v> {
    fn as_value(&self) -> Option<std::borrow::Cow<'v, Value>> {
        match self {
            Self::Nothing => None,
            Self::Value(value) => Some(std::borrow::Cow::Borrowed(value)),
            Self::Number(number) => Some(std::borrow::Cow::Owned((*number).into())),
        }
    }
}

/// The position that an index means in an array of this length.
pub(super) fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(from_start) => Some(from_start),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}
