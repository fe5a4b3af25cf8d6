//! Mismatches: where a value does not fit, and which keyword says so. Their number and their texts are bounded.

use std::fmt::{self, Write};

use crate::{BudgetExhausted, EvaluationBudget, EvaluationLimitExceeded};

/// The longest text of a mismatch, in bytes; a rule or a value can be as long as its schema or input.
const MESSAGE_BYTES_MAX: usize = 400;

/// One place where a value does not match its schema.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {message}", if pointer.is_empty() { "the value" } else { pointer.as_str() })]
pub struct Mismatch {
    /// JSON pointer into the value.
    pub pointer: String,
    /// The violated schema keyword.
    pub keyword: String,
    pub message: String,
    /// True if this part of the schema applies only if another part does.
    pub conditional: bool,
}

impl Mismatch {
    /// Nobody knows whether the value matches: the check would have exceeded its budget.
    pub fn undecided(exceeded: &EvaluationLimitExceeded) -> Self {
        Self {
            pointer: String::new(),
            keyword: "evaluationLimit".to_owned(),
            message: exceeded.to_string(),
            conditional: false,
        }
    }
}

/// How much of a value a message shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownValues {
    /// The beginning of the value.
    Truncated,
    /// Nothing: it may contain secrets.
    Hidden,
}

/// Where the check is in the value: a list from the innermost part outwards, on the stack.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    step: Option<(&'p Place<'p>, Step<'p>)>,
    pub(super) conditional: bool,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Name(&'p str),
    Position(usize),
}

impl<'p> Place<'p> {
    pub(super) const ROOT: Place<'static> = Place { step: None, conditional: false };

    pub(super) fn field(&'p self, name: &'p str) -> Place<'p> {
        Place { step: Some((self, Step::Name(name))), conditional: self.conditional }
    }

    pub(super) fn item(&'p self, position: usize) -> Place<'p> {
        Place { step: Some((self, Step::Position(position))), conditional: self.conditional }
    }

    pub(super) fn conditionally(self) -> Place<'p> {
        Place { conditional: true, ..self }
    }

    fn pointer_bytes(&self) -> usize {
        self.step.map_or(0, |(parent, step)| {
            parent.pointer_bytes()
                + match step {
                    Step::Name(name) => 1 + 2 * name.len(),
                    Step::Position(_) => 21,
                }
        })
    }

    fn write_pointer(&self, pointer: &mut String) {
        let Some((parent, step)) = self.step else { return };
        parent.write_pointer(pointer);
        pointer.push('/');
        match step {
            Step::Name(name) => pointer.push_str(&name.replace('~', "~0").replace('/', "~1")),
            Step::Position(position) => {
                let _ = write!(pointer, "{position}");
            }
        }
    }
}

/// The mismatches found so far.
pub(super) struct Report {
    pub(super) shown: ShownValues,
    max: usize,
    mismatches: Vec<Mismatch>,
}

impl Report {
    pub(super) fn new(shown: ShownValues, max: usize) -> Self {
        Self { shown, max, mismatches: Vec::new() }
    }

    /// Records nothing: only whether the value matches is of interest.
    pub(super) fn quiet() -> Self {
        Self::new(ShownValues::Hidden, 0)
    }

    /// True if the first mismatch from now on ends the check.
    pub(super) fn is_full(&self) -> bool {
        self.mismatches.len() >= self.max
    }

    pub(super) fn into_mismatches(self) -> Vec<Mismatch> {
        self.mismatches
    }

    pub(super) fn record(
        &mut self,
        place: &Place<'_>,
        keyword: &str,
        message: impl fmt::Display,
        budget: &EvaluationBudget,
    ) -> Result<(), BudgetExhausted> {
        if self.is_full() {
            return Ok(());
        }
        let bytes = MESSAGE_BYTES_MAX + keyword.len() + 2 * place.pointer_bytes() + 2 * size_of::<Mismatch>();
        budget.charge_bytes(bytes as u64)?;
        let mut pointer = String::new();
        place.write_pointer(&mut pointer);
        let conditional = place.conditional || matches!(keyword, "anyOf" | "oneOf" | "not");
        let message = truncated(message);
        self.mismatches.push(Mismatch { pointer, keyword: keyword.to_owned(), message, conditional });
        Ok(())
    }
}

/// The beginning of a message, without ever making the whole of it.
pub(super) fn truncated(text: impl fmt::Display) -> String {
    let mut beginning = Beginning { text: String::new(), room: MESSAGE_BYTES_MAX };
    // An error means that the text went on.
    let _ = write!(beginning, "{text}");
    beginning.text
}

/// The beginning of a value, with a sign that it goes on.
pub(super) fn beginning(value: &serde_json::Value) -> String {
    const VALUE_BYTES_MAX: usize = 120;
    let mut beginning = Beginning { text: String::new(), room: VALUE_BYTES_MAX };
    let complete = write!(beginning, "{value}").is_ok();
    beginning.text + if complete { "" } else { "…" }
}

/// Takes a text until there is no more room.
struct Beginning {
    text: String,
    room: usize,
}

impl Write for Beginning {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = part.floor_char_boundary(self.room);
        self.text.push_str(part.get(..end).unwrap_or_default());
        self.room -= end;
        if end < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
}
