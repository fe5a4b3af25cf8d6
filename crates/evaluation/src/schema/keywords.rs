//! A compiled schema: what it asks of a value itself, and which subschemas apply to the value or to its parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::Validator;

use super::pattern::Pattern;

/// What a schema of this shape asks of a value.
#[derive(Debug)]
pub(super) enum Node {
    /// `true`, or a schema that asks nothing.
    Any,
    /// `false`.
    Never,
    Keywords(Box<Keywords>),
}

/// The keywords of a schema.
#[derive(Default, Debug)]
pub(super) struct Keywords {
    pub(super) own: Option<OwnKeywords>,
    /// `$ref` and `allOf`.
    pub(super) all_of: Vec<Arc<Node>>,
    pub(super) any_of: Vec<Arc<Node>>,
    pub(super) one_of: Vec<Arc<Node>>,
    /// With the schema as text, for the message.
    pub(super) not: Option<(Arc<Node>, String)>,
    pub(super) condition: Option<Condition>,
    pub(super) object: Option<Box<ObjectKeywords>>,
    pub(super) array: Option<Box<ArrayKeywords>>,
}

/// `if`, `then` and `else`.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) test: Arc<Node>,
    pub(super) then: Option<Arc<Node>>,
    pub(super) otherwise: Option<Arc<Node>>,
}

#[derive(Default, Debug)]
pub(super) struct ObjectKeywords {
    pub(super) properties: BTreeMap<String, Arc<Node>>,
    pub(super) pattern_properties: Vec<(Pattern, Arc<Node>)>,
    pub(super) additional_properties: Option<Arc<Node>>,
    pub(super) property_names: Option<Arc<Node>>,
    /// `dependentSchemas`, and `dependencies` on schemas.
    pub(super) dependent_schemas: Vec<(String, Arc<Node>)>,
}

#[derive(Default, Debug)]
pub(super) struct ArrayKeywords {
    /// `prefixItems`, or `items` as an array.
    pub(super) prefix: Vec<Arc<Node>>,
    /// For the items after the prefix: `items`, or `additionalItems`.
    pub(super) rest: Option<Arc<Node>>,
    pub(super) rest_keyword: &'static str,
    pub(super) contains: Option<Contains>,
}

#[derive(Debug)]
pub(super) struct Contains {
    pub(super) node: Arc<Node>,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

/// The keywords that look at a value without applying a subschema to its parts. The library checks them: their cost is
/// known before.
#[derive(Debug)]
pub(super) struct OwnKeywords {
    pub(super) validator: Arc<Validator>,
    /// Steps for a value of any kind: the values in `enum` and `const`, the names in `required`.
    pub(super) steps: u64,
    pub(super) pattern: Option<Pattern>,
    /// `uniqueItems` is true.
    pub(super) unique_items: bool,
    /// The memory that a keyword takes for each byte of a text that it decodes or parses: `format` or `content…`.
    pub(super) parsed_bytes_per_byte: Option<u64>,
}
