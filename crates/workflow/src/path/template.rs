//! Templates: JSON in which strings that start with `$` are paths. `$$` writes a literal `$`. This file does not
//! resolve secrets.
//!
//! `{"secretRef": "…"}` is written by the author and passes through unchanged. Its places are known, and dispatch
//! resolves only those.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Path, PathError, ReadError, Roots};
use crate::evaluation::{BudgetExhausted, EvaluationLimitExceeded, memory};

/// A compiled template. Parts without paths are stored as literals.
#[derive(Clone, PartialEq, Debug)]
pub enum Template {
    /// A value without paths.
    Literal(Value),
    Path(Path),
    /// An array with at least one path in it.
    Array(Vec<Template>),
    /// An object with at least one path in it.
    Object(Vec<(String, Template)>),
}

impl Template {
    /// Compiles a template. Each error has the JSON pointer of its string, relative to the template.
    pub fn compile(value: &Value, errors: &mut Vec<(String, PathError)>) -> Self {
        compile_at(value, &mut String::new(), errors)
    }

    /// Replaces every path by its value; the result has at most `bytes_max` bytes.
    pub fn render(&self, roots: &dyn Roots, bytes_max: u64) -> Result<Value, RenderError> {
        let (value, error) = self.render_lenient(roots, bytes_max);
        error.map_or(Ok(value), Err)
    }

    /// Like `render`, but with null for every path that has no value; also returns the first error.
    pub fn render_lenient(&self, roots: &dyn Roots, bytes_max: u64) -> (Value, Option<RenderError>) {
        let mut renderer = Renderer { roots, bytes_max, bytes_left: bytes_max, first_error: None };
        let value = renderer.render(self);
        (value, renderer.first_error)
    }

    /// The value, if the template has no paths.
    pub fn literal(&self) -> Option<&Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The places where the author refers to a secret: literal objects that have only `secretRef`.
    pub fn secret_pointers(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_secrets("", &mut found);
        found
    }

    fn collect_secrets(&self, at: &str, found: &mut Vec<String>) {
        fn in_value(value: &Value, at: &str, found: &mut Vec<String>) {
            match value {
                Value::Object(_) if is_secret_ref(value) => found.push(at.to_owned()),
                Value::Object(fields) => {
                    for (name, field) in fields {
                        in_value(field, &format!("{at}/{}", crate::finding::pointer_token(name)), found);
                    }
                }
                Value::Array(items) => {
                    for (position, item) in items.iter().enumerate() {
                        in_value(item, &format!("{at}/{position}"), found);
                    }
                }
                _ => {}
            }
        }
        match self {
            Self::Literal(value) => in_value(value, at, found),
            Self::Path(_) => {}
            Self::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    item.collect_secrets(&format!("{at}/{position}"), found);
                }
            }
            Self::Object(fields) => {
                for (name, field) in fields {
                    field.collect_secrets(&format!("{at}/{}", crate::finding::pointer_token(name)), found);
                }
            }
        }
    }

    /// The places of paths inside a `secretRef`.
    pub fn dynamic_secret_pointers(&self) -> Vec<String> {
        let in_reference = |at: &String| at.split('/').any(|token| token == "secretRef");
        self.paths().into_iter().map(|(at, _)| at).filter(in_reference).collect()
    }

    /// All paths in the template, with their pointers relative to it.
    pub fn paths(&self) -> Vec<(String, &Path)> {
        let mut found = Vec::new();
        self.collect_paths("", &mut found);
        found
    }

    fn collect_paths<'a>(&'a self, at: &str, found: &mut Vec<(String, &'a Path)>) {
        match self {
            Self::Literal(_) => {}
            Self::Path(path) => found.push((at.to_owned(), path)),
            Self::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    item.collect_paths(&format!("{at}/{position}"), found);
                }
            }
            Self::Object(fields) => {
                for (name, field) in fields {
                    field.collect_paths(&format!("{at}/{}", crate::finding::pointer_token(name)), found);
                }
            }
        }
    }
}

/// Why a template could not be rendered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RenderError {
    /// A path has no value, or is too costly.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The result would be too large. Checked while rendering: a few paths can repeat a large value a thousand times.
    #[error("the value would have more than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
}

/// The state of one rendering.
struct Renderer<'a> {
    roots: &'a dyn Roots,
    bytes_max: u64,
    bytes_left: u64,
    first_error: Option<RenderError>,
}

impl Renderer<'_> {
    fn render(&mut self, template: &Template) -> Value {
        // Once a limit is exceeded, rendering stops: going on would cost as much again.
        if self.first_error.as_ref().is_some_and(RenderError::is_final) {
            return Value::Null;
        }
        self.try_render(template).unwrap_or_else(|error| {
            let earlier = self.first_error.take().filter(|_| !error.is_final());
            self.first_error = earlier.or(Some(error));
            Value::Null
        })
    }

    fn try_render(&mut self, template: &Template) -> Result<Value, RenderError> {
        let budget = self.roots.budget();
        match template {
            Template::Literal(value) => {
                self.count_bytes(value)?;
                Ok(budget.copy(value)?)
            }
            Template::Path(path) => {
                let value = path.get(self.roots)?;
                self.count_bytes(&value)?;
                match value {
                    Cow::Borrowed(value) => Ok(budget.copy(value).map_err(|spent| spent.at(path.text()))?),
                    Cow::Owned(value) => Ok(value),
                }
            }
            Template::Array(items) => {
                budget.charge_bytes(memory::array(items.len()))?;
                Ok(items.iter().map(|item| self.render(item)).collect())
            }
            Template::Object(fields) => {
                let names: usize = fields.iter().map(|(name, _)| name.len()).sum();
                budget.charge_bytes(memory::object(fields.len()) + names as u64)?;
                let render = |(name, field): &(String, Template)| (name.clone(), self.render(field));
                Ok(Value::Object(fields.iter().map(render).collect()))
            }
        }
    }

    fn count_bytes(&mut self, value: &Value) -> Result<(), RenderError> {
        let left = self.bytes_left.checked_sub(crate::json::size(value));
        self.bytes_left = left.ok_or(RenderError::TooLarge { bytes_max: self.bytes_max })?;
        Ok(())
    }
}

impl RenderError {
    /// True if nothing more may be rendered after it.
    fn is_final(&self) -> bool {
        !matches!(self, Self::Read(ReadError::Missing(_)))
    }
}

impl From<EvaluationLimitExceeded> for RenderError {
    fn from(exceeded: EvaluationLimitExceeded) -> Self {
        Self::Read(exceeded.into())
    }
}

impl From<BudgetExhausted> for RenderError {
    fn from(exhausted: BudgetExhausted) -> Self {
        exhausted.at("the template").into()
    }
}

/// True for `{"secretRef": "…"}` without any other field.
fn is_secret_ref(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|fields| fields.len() == 1 && fields.get("secretRef").is_some_and(Value::is_string))
}

fn compile_at(value: &Value, at: &mut String, errors: &mut Vec<(String, PathError)>) -> Template {
    match value {
        Value::String(text) if text.starts_with("$$") => {
            Template::Literal(Value::String(text.replacen("$$", "$", 1)))
        }
        Value::String(text) if text.starts_with('$') => match Path::parse(text) {
            Ok(path) => Template::Path(path),
            Err(error) => {
                errors.push((at.clone(), error));
                Template::Literal(Value::Null)
            }
        },
        Value::Array(items) => {
            let compile = |(position, item): (usize, &Value)| {
                with_pointer_token(at, &position.to_string(), |at| compile_at(item, at, errors))
            };
            let compiled: Vec<Template> = items.iter().enumerate().map(compile).collect();
            match compiled.iter().map(Template::literal).collect::<Option<Vec<_>>>() {
                Some(literals) => Template::Literal(Value::Array(literals.into_iter().cloned().collect())),
                None => Template::Array(compiled),
            }
        }
        Value::Object(fields) => {
            let compile = |(name, field): (&String, &Value)| {
                let token = crate::finding::pointer_token(name);
                (name.clone(), with_pointer_token(at, &token, |at| compile_at(field, at, errors)))
            };
            let compiled: Vec<(String, Template)> = fields.iter().map(compile).collect();
            let literal = |(name, field): &(String, Template)| Some((name.clone(), field.literal()?.clone()));
            match compiled.iter().map(literal).collect::<Option<Map<_, _>>>() {
                Some(literals) => Template::Literal(Value::Object(literals)),
                None => Template::Object(compiled),
            }
        }
        other => Template::Literal(other.clone()),
    }
}

fn with_pointer_token<T>(at: &mut String, token: &str, inside: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    at.push_str(token);
    let result = inside(at);
    at.truncate(length);
    result
}
