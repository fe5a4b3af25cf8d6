//! Values with holes: JSON in which strings that start with `$` are paths. `$$` writes a literal `$`.
//!
//! `{"secretRef": "…"}` is written out by the author and passes through untouched; its places are known, and only they are
//! resolved at dispatch.

use serde_json::{Map, Value};

use super::{Missing, Path, PathError, Roots};

/// A compiled template. Parts without paths are kept as they are.
#[derive(Clone, PartialEq, Debug)]
pub enum Template {
    /// No holes.
    Literal(Value),
    /// One hole.
    Path(Path),
    /// Elements, some with holes.
    Array(Vec<Template>),
    /// Members, some with holes.
    Object(Vec<(String, Template)>),
}

impl Template {
    /// Compiles a template. Errors come with the JSON pointer of the string they are about, relative to the template.
    pub fn compile(value: &Value, errors: &mut Vec<(String, PathError)>) -> Self {
        compile_at(value, &mut String::new(), errors)
    }

    /// The value with every hole filled, at most so many bytes of it.
    pub fn render(&self, roots: &dyn Roots, bytes_max: u64) -> Result<Value, Unfilled> {
        let (value, unfilled) = self.render_lenient(roots, bytes_max);
        unfilled.map_or(Ok(value), Err)
    }

    /// The value with null in every hole that could not be filled, and the first reason for one.
    pub fn render_lenient(&self, roots: &dyn Roots, bytes_max: u64) -> (Value, Option<Unfilled>) {
        let mut filling = Filling { roots, bytes_max, bytes_left: bytes_max, unfilled: None };
        let value = filling.fill(self);
        (value, filling.unfilled)
    }

    /// The value, if there are no holes.
    pub fn literal(&self) -> Option<&Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The places where the author refers to a secret: objects with `secretRef` alone, written out.
    pub fn secrets(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_secrets("", &mut found);
        found
    }

    fn collect_secrets(&self, at: &str, found: &mut Vec<String>) {
        fn in_value(value: &Value, at: &str, found: &mut Vec<String>) {
            match value {
                Value::Object(_) if is_secret(value) => found.push(at.to_owned()),
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

    /// Objects whose `secretRef` has a hole in it.
    pub fn secrets_from_data(&self) -> Vec<String> {
        let in_reference = |at: &String| at.split('/').any(|token| token == "secretRef");
        self.paths().into_iter().map(|(at, _)| at).filter(in_reference).collect()
    }

    /// The paths in it, with their pointers relative to the template.
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

/// Why a hole could not be filled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfilled {
    /// Its path has no value.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The whole would be too large. Found while filling: a few holes can multiply what they hold a thousand times.
    #[error("the value would have more than {bytes_max} bytes")]
    TooLarge {
        /// What it may have.
        bytes_max: u64,
    },
}

/// Filling under way.
struct Filling<'a> {
    roots: &'a dyn Roots,
    bytes_max: u64,
    bytes_left: u64,
    unfilled: Option<Unfilled>,
}

impl Filling<'_> {
    fn fill(&mut self, template: &Template) -> Value {
        // Once too large, nothing more is looked at: measuring on would cost what copying would have.
        if matches!(self.unfilled, Some(Unfilled::TooLarge { .. })) {
            return Value::Null;
        }
        match template {
            Template::Literal(value) => self.count(value).map_or(Value::Null, |()| value.clone()),
            Template::Path(path) => match path.get(self.roots) {
                Ok(value) => self.count(&value).map_or(Value::Null, |()| value.into_owned()),
                Err(missing) => {
                    self.unfilled.get_or_insert(missing.into());
                    Value::Null
                }
            },
            Template::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Template::Object(fields) => {
                Value::Object(fields.iter().map(|(name, field)| (name.clone(), self.fill(field))).collect())
            }
        }
    }

    fn count(&mut self, value: &Value) -> Option<()> {
        let bytes = crate::json::size(value);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => {
                self.unfilled = Some(Unfilled::TooLarge { bytes_max: self.bytes_max });
                return None;
            }
        }
        Some(())
    }
}

/// `{"secretRef": "…"}` and nothing else.
fn is_secret(value: &Value) -> bool {
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
                within(at, &position.to_string(), |at| compile_at(item, at, errors))
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
                (name.clone(), within(at, &token, |at| compile_at(field, at, errors)))
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

fn within<T>(at: &mut String, token: &str, inside: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    at.push_str(token);
    let result = inside(at);
    at.truncate(length);
    result
}
