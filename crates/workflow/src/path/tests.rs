//! Tests of paths, references and templates, as tables.

use super::*;
use crate::evaluation::EvaluationLimits;
use serde_json::json;

pub(super) struct Document(Value, EvaluationBudget);

impl Roots for Document {
    fn root_value(&self, root: Root) -> Result<Option<Cow<'_, Value>>, BudgetExhausted> {
        Ok(self.0.get(root.name()).map(Cow::Borrowed))
    }
    fn root_field(&self, root: Root, name: &str) -> Result<Option<Cow<'_, Value>>, BudgetExhausted> {
        Ok(self.0.get(root.name()).and_then(|value| value.get(name)).map(Cow::Borrowed))
    }
    fn budget(&self) -> &EvaluationBudget {
        &self.1
    }
}

pub(super) fn document_of(value: Value) -> Document {
    Document(value, EvaluationBudget::new(EvaluationLimits::default()))
}

fn document() -> Document {
    document_of(json!({
        "input": {"id": "dev-1", "limit": 2, "odd name": 1, "nothing": null},
        "state": {"list": [{"id": 1, "ok": true}, {"id": 2, "ok": false}, {"id": 3, "ok": true}], "deep": {"a": [10, 20]}},
        "item": 7,
    }))
}

fn check(path: &str, expected: Value) {
    let compiled = Path::parse(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(compiled.get(&document()).map(Cow::into_owned), Ok(expected), "{path}");
}

#[test]
fn singular_paths_give_the_value_itself() {
    check("$.input.id", json!("dev-1"));
    check("$['input'][\"id\"]", json!("dev-1"));
    check("$.input['odd name']", json!(1));
    check("$.input.nothing", json!(null));
    check("$.state.deep.a[-1]", json!(20));
    check("$.state.deep", json!({"a": [10, 20]}));
    check("$.item", json!(7));
}

#[test]
fn queries_give_an_array_even_of_nothing() {
    check("$.state.list[*].id", json!([1, 2, 3]));
    check("$.state.list[?@.ok == true].id", json!([1, 3]));
    check("$.state.list[1:].id", json!([2, 3]));
    check("$.state..a", json!([[10, 20]]));
    check("$.state.nowhere[*]", json!([]));
    check("$.input['id','limit']", json!(["dev-1", 2]));
}

#[test]
fn filters_may_compare_with_other_roots() {
    check("$.state.list[?@.id > $.input.limit].id", json!([3]));
    check("$.state.list[?@.id == $['input']['limit']].id", json!([2]));
}

#[test]
fn a_missing_path_is_an_error_that_names_it_unless_it_is_optional() {
    let error = Path::parse("$.state.deep.b").unwrap().get(&document()).unwrap_err();
    assert_eq!(error, MissingValue { path: "$.state.deep.b".to_owned() }.into());
    check("$.state.deep.b?", json!(null));
    check("$.event?", json!(null));
    check("$.input.id?", json!("dev-1"));
}

#[test]
fn invalid_paths_are_rejected_with_the_kind_of_error() {
    let error = |path: &str| Path::parse(path).unwrap_err();
    for path in
        ["$.", "$.input[", "$.input[01]", "$.state.list[?(@.x]", "$5.00", "$.input.a-b", "$.input.x(1)"]
    {
        assert!(matches!(error(path), PathError::Syntax { .. } | PathError::UnknownRoot { .. }), "{path}");
    }
    for path in ["$", "$.nobody.x", "$[0]", "$..x", "$[*]"] {
        assert!(matches!(error(path), PathError::UnknownRoot { .. }), "{path}");
    }
    assert!(matches!(error("$.system.now"), PathError::UnknownSystemField { .. }));
    assert!(matches!(error("$.state.list[*]?"), PathError::OptionalQuery { .. }));
}

#[test]
fn paths_that_could_cost_too_much_are_rejected() {
    for path in [
        "$.state..a..b".to_owned(),
        "$.state[*,*,*,*,*,*,*,*,*,*]".to_owned(),
        format!("$.state{}", "[?@".repeat(20)),
        format!("$.state[?{}@.a{}]", "(".repeat(17), ")".repeat(17)),
        format!("$.state[?{}@.a]", "!".repeat(40)),
        format!("$.state.{}", "a".repeat(1100)),
        "$.state.list[?count($.state.list[*]) > 1]".to_owned(),
        "$.state.list[?search(@.a, @.b)]".to_owned(),
        "$.state.list[?match (@.a, 'x')]".to_owned(),
    ] {
        assert!(matches!(Path::parse(&path), Err(PathError::TooCostly { .. })), "{path}");
    }
    check("$.input['a..b,c,d,e,f,g,h,i,j,k,l']?", json!(null));
}

#[test]
fn templates_mix_literals_and_paths() {
    let mut errors = Vec::new();
    let template = Template::compile(
        &json!({"id": "$.input.id", "price": "$$5", "list": [1, "$.item"], "secret": {"secretRef": "env://X"}}),
        &mut errors,
    );
    assert_eq!(
        template.render(&document(), 1_000),
        Ok(json!({"id": "dev-1", "price": "$5", "list": [1, 7], "secret": {"secretRef": "env://X"}}))
    );
    let template = Template::compile(&json!({"a": {"b/c": ["$.state.gone"]}}), &mut errors);
    assert_eq!(
        template.render(&document(), 1_000),
        Err(RenderError::Read(MissingValue { path: "$.state.gone".to_owned() }.into()))
    );
    assert_eq!(template.render_lenient(&document(), 1_000).0, json!({"a": {"b/c": [null]}}));
    assert_eq!(template.paths().first().unwrap().0, "/a/b~1c/0");
    assert!(errors.is_empty());
    let many = Template::compile(&Value::Array(vec![json!("$.state.list"); 1_000]), &mut errors);
    assert!(
        matches!(many.render(&document(), 1_000), Err(RenderError::TooLarge { .. })),
        "detected while rendering"
    );
    Template::compile(&json!({"a": ["x", "$oops"]}), &mut errors);
    assert_eq!(errors.first().map(|(at, _)| at.as_str()), Some("/a/1"));
}

#[test]
fn references_write_into_state_and_nowhere_else() {
    let write = |reference: &str, slot: Option<Value>| {
        Reference::parse(reference).unwrap().assign(slot.as_ref(), json!("new"))
    };
    assert_eq!(write("$.state.a", None), Ok(json!("new")));
    assert_eq!(write("$.state.a.b.c", None), Ok(json!({"b": {"c": "new"}})));
    assert_eq!(write("$.state.a.b", Some(json!({"x": 1}))), Ok(json!({"x": 1, "b": "new"})));
    assert_eq!(write("$.state.a[1]", Some(json!([1, 2]))), Ok(json!([1, "new"])));
    assert!(matches!(
        write("$.state.a[2]", Some(json!([1, 2]))),
        Err(AssignError::NoElement { index: 2, .. })
    ));
    assert!(matches!(write("$.state.a.b", Some(json!("text"))), Err(AssignError::NotAnObject { .. })));
    for reference in
        ["$.state", "$.input.a", "$.state[0]", "$.state.a[*]", "$.state.a?", "$.state..a", "$.state.a[-1]"]
    {
        assert!(matches!(Reference::parse(reference), Err(PathError::NotAReference { .. })), "{reference}");
    }
}
