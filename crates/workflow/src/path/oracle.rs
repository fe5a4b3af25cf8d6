//! Queries against the JSONPath library, on drawn paths and small drawn data: both select the same values in the same
//! order. Where the library departs from RFC 9535, a table says what holds here.

use proptest::prelude::*;
use serde_json::{Value, json};
use serde_json_path::JsonPath;

use super::Path;
use super::tests::document_of;

fn any_data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2..4_i64).prop_map(Value::from),
        Just(json!(1.5)),
        prop::sample::select(vec!["", "a", "b", "ä'\""]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any_name(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "ä'\"", "x y"]).prop_map(str::to_owned)
}

fn quoted() -> impl Strategy<Value = String> {
    (any_name(), any::<bool>()).prop_map(|(name, single)| {
        if single {
            format!("'{}'", name.replace('\'', "\\'"))
        } else {
            format!("\"{}\"", name.replace('"', "\\\""))
        }
    })
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        (-2..4_i64).prop_map(|number| number.to_string()),
        prop::sample::select(vec!["1.5", "-0", "1e0", "true", "false", "null", "'a'", "\"b\"", "''"])
            .prop_map(str::to_owned),
    ]
}

fn singular_segments() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        Just(".a".to_owned()),
        Just(" .b".to_owned()),
        quoted().prop_map(|name| format!("[{name}]")),
        (0..3_i64).prop_map(|index| format!("[ {index} ]")),
    ];
    prop::collection::vec(segment, 0..3).prop_map(|segments| segments.concat())
}

fn absolute() -> impl Strategy<Value = String> {
    let below = prop_oneof![
        Just("$.input"),
        Just("$.input.a"),
        Just("$['input']['b']"),
        Just("$.state.a"),
        Just("$.gone.a"),
        Just("$")
    ];
    (below, singular_segments()).prop_map(|(start, segments)| format!("{start}{segments}"))
}

fn singular_query() -> impl Strategy<Value = String> {
    prop_oneof![singular_segments().prop_map(|segments| format!("@{segments}")), absolute()]
}

fn test(segments: BoxedStrategy<String>) -> impl Strategy<Value = String> {
    let relative = segments.prop_map(|segments| format!("@{segments}")).boxed();
    let value = prop_oneof![
        literal(),
        singular_query(),
        singular_query().prop_map(|query| format!("length({query})")),
        relative.clone().prop_map(|query| format!("count( {query} )")),
        relative.clone().prop_map(|query| format!("value({query})")),
        relative.clone().prop_map(|query| format!("length(value({query}))")),
    ]
    .boxed();
    // The library orders values that RFC 9535 gives no order, so one side is a number or a string.
    let ordered = prop::sample::select(vec!["1", "-1", "1.5", "'a'"]);
    let basic = prop_oneof![
        (value.clone(), prop::sample::select(vec!["==", " != "]), value.clone())
            .prop_map(|(left, op, right)| format!("{left}{op}{right}")),
        (value, prop::sample::select(vec!["<", " <=", ">", ">= "]), ordered)
            .prop_map(|(left, op, right)| format!("{left}{op}{right}")),
        relative.clone(),
        relative.prop_map(|query| format!("! {query}")),
        absolute(),
    ];
    basic.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["&&", " || "]), inner.clone())
                .prop_map(|(left, op, right)| format!("{left}{op}{right}")),
            inner.clone().prop_map(|test| format!("( {test} )")),
            inner.prop_map(|test| format!("!({test})")),
        ]
    })
}

fn selector(segments: BoxedStrategy<String>) -> impl Strategy<Value = String> {
    let bound =
        || prop::option::of(-3..4_i64).prop_map(|bound| bound.map_or(String::new(), |n| n.to_string()));
    prop_oneof![
        quoted(),
        Just("*".to_owned()),
        (-3..4_i64).prop_map(|index| index.to_string()),
        (bound(), bound()).prop_map(|(start, end)| format!("{start} : {end}")),
        (bound(), bound(), bound()).prop_map(|(start, end, step)| format!("{start}:{end} :{step}")),
        test(segments).prop_map(|test| format!("?{test}")),
    ]
}

/// Segments with filters nested in filters; a text that the bounds on paths reject is not tested.
fn segments() -> BoxedStrategy<String> {
    let plain = prop_oneof![
        prop::sample::select(vec![".a", ".b", ".*", "[*]", "..a", "..*", "..[0]"]).prop_map(str::to_owned),
        singular_segments(),
    ];
    plain
        .prop_recursive(2, 8, 2, |inner| {
            let bracket = prop::collection::vec(selector(inner.clone().boxed()), 1..3);
            prop_oneof![
                (inner.clone(), inner).prop_map(|(first, second)| format!("{first}{second}")),
                (any::<bool>(), bracket).prop_map(|(descends, mut selectors)| {
                    if let [only] = selectors.as_mut_slice() {
                        // In singular queries, the library does not count from the end.
                        *only = only.strip_prefix('-').unwrap_or(only).to_owned();
                    }
                    format!("{}[{}]", if descends { ".." } else { "" }, selectors.join(" , "))
                }),
            ]
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, max_global_rejects: 200_000, ..ProptestConfig::default() })]

    #[test]
    fn queries_select_what_the_library_selects(segments in segments(), input in any_data(), state in any_data()) {
        let text = format!("$.input{segments}");
        let Ok(path) = Path::parse(&text) else {
            // Rejected by the bounds, or by the library itself.
            let rejected = super::cost::check(&text).is_err() || JsonPath::parse(&text).is_err();
            prop_assert!(rejected, "{} is a JSONPath", text);
            return Ok(());
        };
        let data = json!({"input": input, "state": state});
        let expected: Vec<Value> =
            JsonPath::parse(&text).unwrap().query(&data).all().into_iter().cloned().collect();
        let document = document_of(data.clone());
        let found = path.find(&document).unwrap().map(std::borrow::Cow::into_owned);
        if path.query.is_some() {
            prop_assert_eq!(found, Some(Value::Array(expected)), "{} on {}", text, data);
        } else {
            prop_assert_eq!(found, expected.first().cloned(), "{} on {}", text, data);
        }
    }
}

#[test]
fn comparisons_follow_the_standard_where_the_library_does_not() {
    let data = json!({"input": [
        {"a": [1, 2], "n": 9007199254740993_i64, "t": true, "f": false}, {"a": [1.0, 2.0]}, {"a": [2]},
    ]});
    for (test, expected) in [
        ("@.a[-1] == 2", 3),
        ("@.a == $.input[1].a", 2),
        ("@.n == 9007199254740992", 0),
        ("@.n > 9007199254740992", 1),
        ("@.t > @.f", 0),
        ("@.t >= @.t", 3),
        ("@.a > $.input[2].a", 0),
        ("@.a >= $.input[2].a", 1),
    ] {
        let path = Path::parse(&format!("$.input[?{test}]")).unwrap();
        let document = document_of(data.clone());
        let found = path.find(&document).unwrap().unwrap();
        assert_eq!(found.as_array().map(Vec::len), Some(expected), "{test}");
    }
}
