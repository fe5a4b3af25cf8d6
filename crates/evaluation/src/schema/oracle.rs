//! The check against the library, on drawn schemas of every draft and small drawn data: both accept the same values,
//! and both find the first mismatch at a place and keyword that the other reports too.

use std::collections::BTreeSet;

use jsonschema::PatternOptions;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Schema, ShownValues};
use crate::{EvaluationBudget, EvaluationLimits};

const DRAFTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

fn any_data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2..5_i64).prop_map(Value::from),
        prop::sample::select(vec![json!(1.5), json!(2.0), json!("2024-01-01"), json!("a b")]),
        prop::sample::select(vec!["", "a", "ab", "ä"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any_name(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", "x"]).prop_map(str::to_owned)
}

fn own_keyword() -> impl Strategy<Value = (&'static str, Value)> {
    let types = ["null", "boolean", "integer", "number", "string", "array", "object"];
    let names = || prop::collection::btree_set(any_name(), 1..3);
    prop_oneof![
        prop::sample::subsequence(types.to_vec(), 1..4).prop_map(|types| ("type", json!(types))),
        prop::sample::select(types.to_vec()).prop_map(|one| ("type", json!(one))),
        prop::collection::vec(any_data(), 1..3).prop_map(|mut values| {
            values.dedup();
            ("enum", json!(values[..1]))
        }),
        any_data().prop_map(|value| ("const", value)),
        prop::sample::select(vec![
            ("multipleOf", json!(2)),
            ("multipleOf", json!(0.5)),
            ("pattern", json!("^a")),
            ("format", json!("date")),
            ("format", json!("ipv4")),
            ("contentEncoding", json!("base64")),
            ("contentMediaType", json!("application/json")),
            ("uniqueItems", json!(true)),
            ("maximum", json!(2)),
            ("minimum", json!(1.5)),
        ]),
        (
            prop::sample::select(vec![
                "maxLength",
                "minLength",
                "maxItems",
                "minItems",
                "maxProperties",
                "minProperties"
            ]),
            0..3_u32
        )
            .prop_map(|(name, bound)| (name, json!(bound))),
        names().prop_map(|names| ("required", json!(names))),
        (any_name(), names()).prop_map(|(name, names)| ("dependentRequired", json!({name: names}))),
        (any_name(), names()).prop_map(|(name, names)| ("dependencies", json!({name: names}))),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    let object = |keywords: Vec<(&'static str, Value)>| {
        Value::Object(keywords.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let leaf = prop_oneof![
        6 => prop::collection::vec(own_keyword(), 0..3).prop_map(object),
        1 => Just(json!({"$ref": "#/definitions/shared"})),
        1 => Just(json!({"not": {}})),
    ];
    leaf.prop_recursive(3, 16, 3, move |inner| {
        let inner = inner.boxed();
        let several = || prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from);
        let by_name = |names: BoxedStrategy<String>| {
            prop::collection::btree_map(names, inner.clone(), 1..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        };
        let patterns = || prop::sample::select(vec!["^a", "b$", "."]).prop_map(str::to_owned).boxed();
        let one = |name: &'static str| inner.clone().prop_map(move |schema| (name, schema));
        let keyword = prop_oneof![
            own_keyword(),
            one("additionalProperties"),
            one("propertyNames"),
            one("additionalItems"),
            one("contains"),
            one("not"),
            one("if"),
            one("then"),
            one("else"),
            one("items"),
            Just(("additionalProperties", json!(false))),
            Just(("$ref", json!("#/definitions/shared"))),
            several().prop_map(|schemas| ("allOf", schemas)),
            several().prop_map(|schemas| ("anyOf", schemas)),
            several().prop_map(|schemas| ("oneOf", schemas)),
            several().prop_map(|schemas| ("items", schemas)),
            several().prop_map(|schemas| ("prefixItems", schemas)),
            by_name(any_name().boxed()).prop_map(|schemas| ("properties", schemas)),
            by_name(patterns()).prop_map(|schemas| ("patternProperties", schemas)),
            by_name(any_name().boxed()).prop_map(|schemas| ("dependentSchemas", schemas)),
            by_name(any_name().boxed()).prop_map(|schemas| ("dependencies", schemas)),
            (0..3_u32).prop_map(|bound| ("minContains", json!(bound))),
            (0..3_u32).prop_map(|bound| ("maxContains", json!(bound))),
        ];
        prop::collection::vec(keyword, 1..5).prop_map(object)
    })
}

fn places(found: impl Iterator<Item = (String, String)>) -> BTreeSet<String> {
    // `contains` covers its bounds here; the library names them apart.
    found.map(|(pointer, _)| pointer).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn values_match_as_the_library_says(
        draft in prop::sample::select(DRAFTS.to_vec()),
        mut schema in any_schema(),
        shared in any_schema(),
        values in prop::collection::vec(any_data(), 1..6),
    ) {
        schema["$schema"] = draft.into();
        schema["definitions"] = json!({"shared": shared});
        let library = jsonschema::options().with_pattern_options(PatternOptions::regex()).build(&schema);
        let compiled = Schema::compile(&schema);
        let Ok(compiled) = compiled else {
            let own = super::places::check(&schema).is_err();
            prop_assert!(own || library.is_err(), "{:?} on {}", compiled, schema);
            return Ok(());
        };
        let library = library.unwrap();
        for value in values {
            let expected = library.is_valid(&value);
            prop_assert_eq!(compiled.is_valid(&value), expected, "{} on {}", schema, value);
            let budget = EvaluationBudget::new(EvaluationLimits::default());
            let all = compiled.check(&value, &budget, ShownValues::Truncated, 1_000).unwrap();
            prop_assert_eq!(all.is_empty(), expected, "{} on {}", schema, value);
            let ours = places(all.into_iter().map(|found| (found.pointer, found.keyword)));
            let theirs = places(library.iter_errors(&value).map(|error| {
                (error.instance_path().as_str().to_owned(), error.kind().keyword().to_owned())
            }));
            prop_assert_eq!(ours, theirs, "{} on {}", schema, value);
        }
    }
}
