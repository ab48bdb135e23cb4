//! Typed and raw inputs and outputs, and the path of a wrong field.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::testing::TestContext;

#[derive(Debug, Deserialize)]
struct Order {
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    count: u32,
    note: Option<Box<RawValue>>,
}

fn total(_ctx: &Context, order: Order) -> Result<u32, Error> {
    Ok(order.items.into_iter().map(|item| item.count).sum())
}

fn notes(_ctx: &Context, order: Order) -> Result<Vec<Box<RawValue>>, Error> {
    Ok(order.items.into_iter().filter_map(|item| item.note).collect())
}

fn nothing(_ctx: &Context, _input: Option<u8>) -> Result<(), Error> {
    Ok(())
}

fn untouched(_ctx: &Context, input: RawJson) -> Result<RawJson, Error> {
    Ok(input)
}

#[test]
fn typed_values_come_and_go_as_json() {
    let ctx = TestContext::new();
    assert_eq!(ctx.run_json(total, r#"{"items":[{"count":2},{"count":3}]}"#).unwrap(), "5");
    assert_eq!(ctx.run_json(nothing, "null").unwrap(), "null");
}

#[test]
fn wrong_input_is_reported_with_its_path() {
    let error =
        TestContext::new().run_json(total, r#"{"items":[{"count":2},{"count":"x"}]}"#).unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)));
    assert_eq!(
        error.message(),
        "items[1].count: invalid type: string \"x\", expected u32 at line 1 column 34"
    );
}

#[test]
fn a_missing_field_is_named() {
    let error = TestContext::new().run_json(total, "{}").unwrap_err();
    assert_eq!(error.message(), "missing field `items` at line 1 column 2");
}

#[test]
fn raw_fields_keep_large_integers_and_key_order() {
    let output = TestContext::new()
        .run_json(notes, r#"{"items":[{"count":1,"note":{"z":18446744073709551617,"a":1.50}}]}"#)
        .unwrap();
    assert_eq!(output, r#"[{"z":18446744073709551617,"a":1.50}]"#);
}

#[test]
fn raw_fields_do_not_hide_the_path_of_an_error() {
    let error = TestContext::new()
        .run_json(notes, r#"{"items":[{"note":{"a":1},"count":-1}]}"#)
        .unwrap_err();
    assert!(error.message().starts_with("items[0].count: invalid value: integer `-1`"));
}

#[test]
fn raw_json_is_not_touched() {
    let text = r#" {"z": 9007199254740993, "a": [ ]} "#;
    assert_eq!(TestContext::new().run_json(untouched, text).unwrap(), text);
}
