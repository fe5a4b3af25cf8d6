//! Checks a value against a compiled schema: applies each subschema to the value or to its parts, on the budget. It
//! stops at the first mismatch that is not recorded.
//!
//! Recursion is bounded by the depth of the schema.

use serde_json::{Map, Value};

use super::keywords::{ArrayKeywords, Contains, Keywords, Node, ObjectKeywords, OwnKeywords};
use super::mismatch::{Place, Report, ShownValues};
use crate::{BudgetExhausted, EvaluationBudget};

pub(super) struct Checker<'b> {
    pub(super) budget: &'b EvaluationBudget,
}

type Checked = Result<bool, BudgetExhausted>;

/// Goes on after a mismatch only while mismatches are recorded.
macro_rules! all {
    ($valid:ident, $report:ident, $check:expr) => {
        if !$check? {
            $valid = false;
            if $report.is_full() {
                return Ok(false);
            }
        }
    };
}

impl Checker<'_> {
    /// True if the value matches.
    pub(super) fn check(&self, node: &Node, value: &Value, place: Place<'_>, report: &mut Report) -> Checked {
        self.budget.charge_steps(1)?;
        let keywords = match node {
            Node::Any => return Ok(true),
            Node::Never => {
                let message = format_args!("no value is allowed here");
                report.record(&place, "false", message, self.budget)?;
                return Ok(false);
            }
            Node::Keywords(keywords) => keywords,
        };
        let mut valid = true;
        if let Some(own) = &keywords.own {
            all!(valid, report, self.check_own(own, value, &place, report));
        }
        for node in &keywords.all_of {
            all!(valid, report, self.check(node, value, place, report));
        }
        all!(valid, report, self.check_choices(keywords, value, place, report));
        match value {
            Value::Object(fields) => {
                if let Some(keywords) = &keywords.object {
                    all!(valid, report, self.check_object(keywords, value, fields, place, report));
                }
            }
            Value::Array(items) => {
                if let Some(keywords) = &keywords.array {
                    all!(valid, report, self.check_array(keywords, items, place, report));
                }
            }
            _ => {}
        }
        Ok(valid)
    }

    fn matches(&self, node: &Node, value: &Value) -> Checked {
        self.check(node, value, Place::ROOT, &mut Report::quiet())
    }

    /// The keywords about the value itself. Their cost is charged as a whole, then the library checks them.
    fn check_own(&self, own: &OwnKeywords, value: &Value, place: &Place<'_>, report: &mut Report) -> Checked {
        self.budget.charge_steps(own.steps)?;
        match value {
            Value::String(text) => {
                self.budget.charge_text(text.len())?;
                if let Some(pattern) = &own.pattern {
                    pattern.charge(text.len(), self.budget)?;
                }
                if let Some(bytes_per_byte) = own.parsed_bytes_per_byte {
                    // What parsing makes is gone when the library returns.
                    self.budget.charge_steps(text.len() as u64)?;
                    self.budget.check_bytes(bytes_per_byte * text.len() as u64)?;
                }
            }
            Value::Array(items) if own.unique_items => {
                // Each item is hashed; the set of them has up to twice as many places.
                const SET_BYTES: u64 = 48;
                self.budget.charge_bytes(SET_BYTES * items.len() as u64)?;
                items.iter().try_for_each(|item| self.charge_hash(item))?;
            }
            _ => {}
        }
        if report.is_full() {
            return Ok(own.validator.is_valid(value));
        }
        let mut valid = true;
        for error in own.validator.iter_errors(value) {
            valid = false;
            let keyword = error.kind().keyword();
            match report.shown {
                ShownValues::Truncated => report.record(place, keyword, &error, self.budget)?,
                ShownValues::Hidden => report.record(place, keyword, error.masked(), self.budget)?,
            }
        }
        Ok(valid)
    }

    fn charge_hash(&self, value: &Value) -> Result<(), BudgetExhausted> {
        // An item is compared with others of the same hash, or with up to fifteen.
        self.budget.charge_steps(8)?;
        match value {
            Value::String(text) => self.budget.charge_text(text.len()),
            Value::Array(items) => items.iter().try_for_each(|item| self.charge_hash(item)),
            Value::Object(fields) => fields.values().try_for_each(|field| self.charge_hash(field)),
            _ => Ok(()),
        }
    }

    /// `anyOf`, `oneOf`, `not` and `if`.
    fn check_choices(
        &self,
        keywords: &Keywords,
        value: &Value,
        place: Place<'_>,
        report: &mut Report,
    ) -> Checked {
        let mut valid = true;
        if !keywords.any_of.is_empty() && self.count_matching(&keywords.any_of, value, 1)? == 0 {
            valid = false;
            let message = "is not valid under any of the schemas listed in the 'anyOf' keyword";
            self.record(report, &place, "anyOf", value, message)?;
        }
        if !keywords.one_of.is_empty() {
            let message = match self.count_matching(&keywords.one_of, value, 2)? {
                0 => Some("is not valid under any of the schemas listed in the 'oneOf' keyword"),
                1 => None,
                _ => Some("is valid under more than one of the schemas listed in the 'oneOf' keyword"),
            };
            if let Some(message) = message {
                valid = false;
                self.record(report, &place, "oneOf", value, message)?;
            }
        }
        if let Some((not, text)) = &keywords.not
            && self.matches(not, value)?
        {
            valid = false;
            self.record(report, &place, "not", value, &format!("is not allowed by {text}"))?;
        }
        if !valid && report.is_full() {
            return Ok(false);
        }
        if let Some(condition) = &keywords.condition {
            let holds = self.matches(&condition.test, value)?;
            if let Some(node) = if holds { &condition.then } else { &condition.otherwise } {
                all!(valid, report, self.check(node, value, place.conditionally(), report));
            }
        }
        Ok(valid)
    }

    /// How many of the schemas match, counted up to `enough`.
    fn count_matching(
        &self,
        nodes: &[std::sync::Arc<Node>],
        value: &Value,
        enough: usize,
    ) -> Result<usize, BudgetExhausted> {
        let mut matching = 0;
        for node in nodes {
            if self.matches(node, value)? {
                matching += 1;
                if matching == enough {
                    break;
                }
            }
        }
        Ok(matching)
    }

    fn check_object(
        &self,
        keywords: &ObjectKeywords,
        value: &Value,
        fields: &Map<String, Value>,
        place: Place<'_>,
        report: &mut Report,
    ) -> Checked {
        let mut valid = true;
        let mut unexpected = Unexpected::default();
        for (name, field) in fields {
            self.budget.charge_text(name.len())?;
            let at = place.field(name);
            let mut is_additional = true;
            if let Some(node) = keywords.properties.get(name) {
                is_additional = false;
                all!(valid, report, self.check(node, field, at, report));
            }
            for (pattern, node) in &keywords.pattern_properties {
                if pattern.is_match(name, self.budget)? {
                    is_additional = false;
                    all!(valid, report, self.check(node, field, at, report));
                }
            }
            match keywords.additional_properties.as_deref().filter(|_| is_additional) {
                Some(Node::Never) => {
                    if report.is_full() {
                        return Ok(false);
                    }
                    unexpected.add(name, self.budget)?;
                }
                Some(node) => all!(valid, report, self.check(node, field, at, report)),
                None => {}
            }
            if let Some(node) = &keywords.property_names {
                self.budget.charge_bytes(name.len() as u64)?;
                let name = Value::String(name.clone());
                let mut found = Report::new(report.shown, usize::from(!report.is_full()));
                if !self.check(node, &name, Place::ROOT, &mut found)? {
                    valid = false;
                    let message = found.into_mismatches().into_iter().next().map(|first| first.message);
                    report.record(&place, "propertyNames", message.unwrap_or_default(), self.budget)?;
                    if report.is_full() {
                        return Ok(false);
                    }
                }
            }
        }
        if unexpected.count > 0 {
            valid = false;
            report.record(&place, "additionalProperties", unexpected.message(), self.budget)?;
            if report.is_full() {
                return Ok(false);
            }
        }
        for (name, node) in &keywords.dependent_schemas {
            self.budget.charge_steps(1)?;
            if fields.contains_key(name) {
                all!(valid, report, self.check(node, value, place.conditionally(), report));
            }
        }
        Ok(valid)
    }

    fn check_array(
        &self,
        keywords: &ArrayKeywords,
        items: &[Value],
        place: Place<'_>,
        report: &mut Report,
    ) -> Checked {
        let mut valid = true;
        for (position, item) in items.iter().enumerate() {
            match (keywords.prefix.get(position), keywords.rest.as_deref()) {
                (Some(node), _) => all!(valid, report, self.check(node, item, place.item(position), report)),
                (None, Some(Node::Never)) => {
                    let extra = items.len() - keywords.prefix.len();
                    let message =
                        format_args!("at most {} items are allowed, {extra} fewer", keywords.prefix.len());
                    report.record(&place, keywords.rest_keyword, message, self.budget)?;
                    valid = false;
                    break;
                }
                (None, Some(node)) => {
                    all!(valid, report, self.check(node, item, place.item(position), report));
                }
                (None, None) => break,
            }
        }
        if !valid && report.is_full() {
            return Ok(false);
        }
        match &keywords.contains {
            Some(contains) => Ok(self.check_contains(contains, items, place, report)? && valid),
            None => Ok(valid),
        }
    }

    fn check_contains(
        &self,
        contains: &Contains,
        items: &[Value],
        place: Place<'_>,
        report: &mut Report,
    ) -> Checked {
        let mut found = 0_u64;
        for item in items {
            let decided = match contains.max {
                Some(max) => found > max,
                None => found >= contains.min,
            };
            if decided {
                break;
            }
            if self.matches(&contains.node, item)? {
                found += 1;
            }
        }
        let too_many = contains.max.is_some_and(|max| found > max);
        if found >= contains.min && !too_many {
            return Ok(true);
        }
        let message = if too_many { "too many items match" } else { "too few items match" };
        report.record(&place, "contains", format_args!("{message} the schema of 'contains'"), self.budget)?;
        Ok(false)
    }

    fn record(
        &self,
        report: &mut Report,
        place: &Place<'_>,
        keyword: &str,
        value: &Value,
        message: &str,
    ) -> Result<(), BudgetExhausted> {
        match report.shown {
            ShownValues::Truncated => {
                let beginning = super::mismatch::beginning(value);
                report.record(place, keyword, format_args!("{beginning} {message}"), self.budget)
            }
            ShownValues::Hidden => {
                report.record(place, keyword, format_args!("the value {message}"), self.budget)
            }
        }
    }
}

/// The names of properties that are not allowed; the first few are kept.
#[derive(Default)]
struct Unexpected {
    names: Vec<String>,
    count: usize,
}

impl Unexpected {
    fn add(&mut self, name: &str, budget: &EvaluationBudget) -> Result<(), BudgetExhausted> {
        const NAMES_MAX: usize = 8;
        self.count += 1;
        if self.names.len() < NAMES_MAX {
            budget.charge_bytes(2 * (size_of::<String>() + name.len()) as u64)?;
            self.names.push(format!("'{name}'"));
        }
        Ok(())
    }

    fn message(&self) -> String {
        let were = if self.count == 1 { "was" } else { "were" };
        let more = match self.count - self.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("Additional properties are not allowed ({}{more} {were} unexpected)", self.names.join(", "))
    }
}
