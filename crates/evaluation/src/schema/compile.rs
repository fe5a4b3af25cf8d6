//! Compiles a schema that the library has accepted: splits the keywords of each schema into those about the value
//! itself, which stay with the library, and those that apply subschemas.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use super::keywords::{ArrayKeywords, Condition, Contains, Keywords, Node, ObjectKeywords, OwnKeywords};
use super::mismatch::truncated;
use super::pattern::{PATTERN_BYTES_MAX, Pattern};
use super::places;

/// Keywords about a value itself.
const OWN: [&str; 21] = [
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
];
/// Whether these hold depends on which other subschemas held, which is nowhere recorded.
const UNSUPPORTED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

pub(super) fn compile(schema: &Value) -> Result<Arc<Node>, String> {
    // Says what is wrong with a schema, in the words of the standard. What it compiled is not needed.
    library(schema)?;
    let draft = Draft::default().detect(schema);
    let mut compiler = Compiler { root: schema, draft, own: HashMap::new(), targets: HashMap::new() };
    compiler.node(schema)
}

fn library(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::options().with_pattern_options(patterns);
    options.build(schema).map_err(truncated)
}

struct Compiler<'s> {
    root: &'s Value,
    draft: Draft,
    /// Equal keywords share their validator, which is large.
    own: HashMap<String, Arc<Validator>>,
    /// The targets of references.
    targets: HashMap<&'s str, Arc<Node>>,
}

impl<'s> Compiler<'s> {
    fn node(&mut self, schema: &'s Value) -> Result<Arc<Node>, String> {
        let fields = match schema {
            Value::Bool(false) => return Ok(Arc::new(Node::Never)),
            Value::Object(fields) => fields,
            _ => return Ok(Arc::new(Node::Any)),
        };
        self.check_identifier(schema, fields)?;
        if let Some(keyword) = UNSUPPORTED.into_iter().find(|keyword| fields.contains_key(*keyword)) {
            return Err(format!(
                "{keyword} is not supported; use additionalProperties, items or prefixItems"
            ));
        }
        let mut keywords = Keywords::default();
        if let Some(Value::String(reference)) = fields.get("$ref") {
            keywords.all_of.push(self.target(reference)?);
            // Older drafts ignore everything beside a reference.
            if self.draft <= Draft::Draft7 {
                return Ok(Arc::new(Node::Keywords(Box::new(keywords))));
            }
        }
        keywords.own = self.own_keywords(fields)?;
        keywords.all_of.extend(self.nodes(fields.get("allOf"))?);
        keywords.any_of = self.nodes(fields.get("anyOf"))?;
        keywords.one_of = self.nodes(fields.get("oneOf"))?;
        keywords.not = match fields.get("not") {
            Some(not) => Some((self.node(not)?, truncated(not))),
            None => None,
        };
        if let Some(test) = fields.get("if").filter(|_| self.draft >= Draft::Draft7) {
            let (then, otherwise) = (self.optional(fields, "then")?, self.optional(fields, "else")?);
            keywords.condition = Some(Condition { test: self.node(test)?, then, otherwise });
        }
        keywords.object = self.object_keywords(fields)?;
        keywords.array = self.array_keywords(fields)?;
        Ok(Arc::new(Node::Keywords(Box::new(keywords))))
    }

    /// References start at the root here, so a part of the schema with an identifier of its own must not have any.
    fn check_identifier(&self, schema: &Value, fields: &Map<String, Value>) -> Result<(), String> {
        let identifier = if self.draft == Draft::Draft4 { "id" } else { "$id" };
        if std::ptr::eq(schema, self.root) || !fields.get(identifier).is_some_and(Value::is_string) {
            return Ok(());
        }
        if has_reference(schema) || fields.contains_key("$schema") {
            return Err(format!("a subschema with {identifier} must have neither $ref nor $schema"));
        }
        Ok(())
    }

    fn target(&mut self, reference: &'s str) -> Result<Arc<Node>, String> {
        if let Some(known) = self.targets.get(reference) {
            return Ok(known.clone());
        }
        let target = places::resolve(reference, self.root)
            .ok_or_else(|| format!("{reference:?} does not refer to a place in this schema (#/…)"))?;
        let node = self.node(target)?;
        self.targets.insert(reference, node.clone());
        Ok(node)
    }

    fn optional(&mut self, fields: &'s Map<String, Value>, name: &str) -> Result<Option<Arc<Node>>, String> {
        fields.get(name).map(|schema| self.node(schema)).transpose()
    }

    fn nodes(&mut self, schemas: Option<&'s Value>) -> Result<Vec<Arc<Node>>, String> {
        let schemas = schemas.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        schemas.iter().map(|schema| self.node(schema)).collect()
    }

    fn object_keywords(
        &mut self,
        fields: &'s Map<String, Value>,
    ) -> Result<Option<Box<ObjectKeywords>>, String> {
        let mut keywords = ObjectKeywords::default();
        let mut any = false;
        let object = |name: &str| fields.get(name).and_then(Value::as_object);
        if let Some(properties) = object("properties") {
            any = true;
            let compiled = properties.iter().map(|(name, schema)| Ok((name.clone(), self.node(schema)?)));
            keywords.properties = compiled.collect::<Result<BTreeMap<_, _>, String>>()?;
        }
        for (pattern, schema) in object("patternProperties").into_iter().flatten() {
            any = true;
            keywords.pattern_properties.push((Pattern::compile(pattern)?, self.node(schema)?));
        }
        keywords.additional_properties = self.optional(fields, "additionalProperties")?;
        if self.draft >= Draft::Draft6 {
            keywords.property_names = self.optional(fields, "propertyNames")?;
        }
        let dependent = object("dependentSchemas").filter(|_| self.draft >= Draft::Draft201909);
        let dependencies = object("dependencies").into_iter().flatten().filter(|(_, on)| !on.is_array());
        for (name, schema) in dependent.into_iter().flatten().chain(dependencies) {
            keywords.dependent_schemas.push((name.clone(), self.node(schema)?));
        }
        any |= keywords.additional_properties.is_some() || keywords.property_names.is_some();
        any |= !keywords.dependent_schemas.is_empty();
        Ok(any.then(|| Box::new(keywords)))
    }

    fn array_keywords(
        &mut self,
        fields: &'s Map<String, Value>,
    ) -> Result<Option<Box<ArrayKeywords>>, String> {
        let mut keywords = ArrayKeywords { rest_keyword: "items", ..ArrayKeywords::default() };
        let items = fields.get("items");
        if self.draft >= Draft::Draft202012 {
            keywords.prefix = self.nodes(fields.get("prefixItems"))?;
            keywords.rest = self.optional(fields, "items")?;
        } else if items.is_some_and(Value::is_array) {
            keywords.prefix = self.nodes(items)?;
            keywords.rest = self.optional(fields, "additionalItems")?;
            keywords.rest_keyword = "additionalItems";
        } else {
            keywords.rest = self.optional(fields, "items")?;
        }
        if let Some(schema) = fields.get("contains").filter(|_| self.draft >= Draft::Draft6) {
            let bound = |name: &str| {
                fields.get(name).filter(|_| self.draft >= Draft::Draft201909).and_then(whole_number)
            };
            let (min, max) = (bound("minContains").unwrap_or(1), bound("maxContains"));
            keywords.contains = Some(Contains { node: self.node(schema)?, min, max });
        }
        let any = !keywords.prefix.is_empty() || keywords.rest.is_some() || keywords.contains.is_some();
        Ok(any.then(|| Box::new(keywords)))
    }

    fn own_keywords(&mut self, fields: &Map<String, Value>) -> Result<Option<OwnKeywords>, String> {
        let mut own: Map<String, Value> = Map::new();
        for keyword in OWN {
            if let Some(value) = fields.get(keyword) {
                own.insert(keyword.to_owned(), value.clone());
            }
        }
        // `dependencies` on names; those on schemas are applied here.
        let dependencies = fields.get("dependencies").and_then(Value::as_object).into_iter().flatten();
        let on_names: Map<String, Value> = dependencies
            .filter(|(_, on)| on.is_array())
            .map(|(name, on)| (name.clone(), on.clone()))
            .collect();
        if !on_names.is_empty() {
            own.insert("dependencies".to_owned(), Value::Object(on_names));
        }
        if own.is_empty() {
            return Ok(None);
        }
        let has = |keyword: &str| own.contains_key(keyword);
        let steps = ["enum", "const", "required", "dependentRequired", "dependencies"];
        let compared: u64 = steps.into_iter().filter_map(|keyword| own.get(keyword)).map(count).sum();
        let unique_items = own.get("uniqueItems") == Some(&Value::Bool(true));
        // A text that is parsed as JSON takes up to a hundred times its length; decoded or matched, a few times.
        let parsed_bytes_per_byte = if has("contentMediaType") {
            Some(100)
        } else {
            (has("format") || has("contentEncoding")).then_some(4)
        };
        let pattern = own.get("pattern").and_then(Value::as_str).map(Pattern::compile).transpose()?;
        if let Some(dialect) = self.root.get("$schema") {
            own.insert("$schema".to_owned(), dialect.clone());
        }
        let schema = Value::Object(own);
        let text = schema.to_string();
        let validator = match self.own.get(&text) {
            Some(validator) => validator.clone(),
            None => {
                let validator = Arc::new(library(&schema)?);
                self.own.insert(text, validator.clone());
                validator
            }
        };
        Ok(Some(OwnKeywords {
            validator,
            steps: 1 + compared / 16,
            pattern,
            unique_items,
            parsed_bytes_per_byte,
        }))
    }
}

fn whole_number(value: &Value) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64))
}

/// The values in a value.
fn count(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 32,
        _ => 1,
    }
}

fn has_reference(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(has_reference),
        Value::Object(fields) => {
            fields.get("$ref").is_some_and(Value::is_string) || fields.values().any(has_reference)
        }
        _ => false,
    }
}
