//! Templates: JSON in which strings that start with `$` are paths. `$$` writes a literal `$`. This file does not
//! resolve secrets.
//!
//! `{"secretRef": "…"}` is written by the author and passes through unchanged. Its places are known, and dispatch
//! resolves only those.

use serde_json::{Map, Value};

use super::{MissingValue, Path, PathError, Roots};

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
    /// A path has no value.
    #[error(transparent)]
    Missing(#[from] MissingValue),
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
        // Once the result is too large, rendering stops: measuring further would cost as much as copying.
        if matches!(self.first_error, Some(RenderError::TooLarge { .. })) {
            return Value::Null;
        }
        match template {
            Template::Literal(value) => self.count_bytes(value).map_or(Value::Null, |()| value.clone()),
            Template::Path(path) => match path.get(self.roots) {
                Ok(value) => self.count_bytes(&value).map_or(Value::Null, |()| value.into_owned()),
                Err(missing) => {
                    self.first_error.get_or_insert(missing.into());
                    Value::Null
                }
            },
            Template::Array(items) => items.iter().map(|item| self.render(item)).collect(),
            Template::Object(fields) => {
                Value::Object(fields.iter().map(|(name, field)| (name.clone(), self.render(field))).collect())
            }
        }
    }

    fn count_bytes(&mut self, value: &Value) -> Option<()> {
        let bytes = crate::json::size(value);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => {
                self.first_error = Some(RenderError::TooLarge { bytes_max: self.bytes_max });
                return None;
            }
        }
        Some(())
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
