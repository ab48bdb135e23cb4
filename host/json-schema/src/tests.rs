//! Tables, hostile schemas, and a comparison with the library `jsonschema`.

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::schema::{SCHEMA_BYTES_MAX, SCHEMA_LEVELS_MAX};

fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn schema(value: &Value) -> InputSchema {
    InputSchema::parse(&value.to_string()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn check(schema: &InputSchema, input: &Value) -> Result<(), NotChecked> {
    schema.check(&input.to_string(), Budget::FULL)
}

fn fault(of: &Value, input: &Value) -> String {
    match check(&schema(of), input) {
        Err(NotChecked::Invalid(sentence)) => sentence,
        other => panic!("{of} {input}: {other:?}"),
    }
}

#[test]
fn a_fault_names_the_position_the_rule_and_the_allowed_values() {
    let item =
        json!({"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}});
    let of = |field: Value| json!({"type": "object", "properties": {"a": field}});
    for (schema, input, expected) in [
        (
            json!({"properties": {"items": {"items": item}}}),
            json!({"items": [{"count": 2}, {"count": 0}]}),
            "`input.items[1].count` must be at least 1 (`minimum`), not 0",
        ),
        (
            json!({"required": ["text"]}),
            json!({}),
            "`input` must have the field `text` (`required`)",
        ),
        (
            of(json!({"type": "integer"})),
            json!({"a": "5"}),
            "`input.a` must be an integer (`type`), not \"5\"",
        ),
        (
            of(json!({"type": ["string", "null"]})),
            json!({"a": [1]}),
            "`input.a` must be null or a string (`type`), not a list",
        ),
        (
            json!({"properties": {"a": {}, "b": {}}, "additionalProperties": false}),
            json!({"c": 1}),
            "`input` must not have the field `c` (`additionalProperties`); allowed: `a`, `b`",
        ),
        (
            of(json!({"enum": ["x", 2]})),
            json!({"a": "y"}),
            "`input.a` must be one of \"x\", 2 (`enum`), not \"y\"",
        ),
        (of(json!({"const": "x"})), json!({"a": 1}), "`input.a` must be \"x\" (`const`), not 1"),
        (
            of(json!({"maxLength": 2})),
            json!({"a": "äöü"}),
            "`input.a` must have at most 2 characters (`maxLength`), not 3",
        ),
        (
            of(json!({"pattern": "^a+$"})),
            json!({"a": "b"}),
            "`input.a` must match `^a+$` (`pattern`), not \"b\"",
        ),
        (
            of(json!({"minItems": 2})),
            json!({"a": [1]}),
            "`input.a` must have at least 2 items (`minItems`), not 1",
        ),
        (
            of(json!({"anyOf": [{"type": "string"}, {"type": "null"}]})),
            json!({"a": 5}),
            "`input.a` must be null or a string (`type`), not 5",
        ),
        (
            of(json!({"anyOf": [{"type": "null"}, {"type": "integer", "maximum": 9}]})),
            json!({"a": 50}),
            "`input.a` must be at most 9 (`maximum`), not 50",
        ),
        (
            of(json!({"oneOf": [{"minimum": 1}, {"maximum": 9}]})),
            json!({"a": 5}),
            "`input.a` must fit exactly one of its alternatives, not 2 (`oneOf`)",
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"a": 1}),
            "`input` must have the field `b` beside `a` (`dependentRequired`)",
        ),
        (
            of(json!({"prefixItems": [{}], "items": false})),
            json!({"a": [1, 2]}),
            "`input.a` must have at most 1 items (`items`)",
        ),
        (
            json!({"propertyNames": {"pattern": "^x"}}),
            json!({"y": 1}),
            "`input` must not have a field with the name `y` (`propertyNames`)",
        ),
        (
            of(json!({"uniqueItems": true})),
            json!({"a": [1, 1.0]}),
            "`input.a` must have no item twice (`uniqueItems`)",
        ),
    ] {
        assert_eq!(fault(&schema, &input), expected);
    }
    let long = fault(&of(json!({"type": "null"})), &json!({"a": "x".repeat(10_000)}));
    assert!(long.chars().count() < 200, "{long}");
}

#[test]
fn numbers_are_compared_by_their_values() {
    let integer = schema(&json!({"properties": {"n": {"type": "integer"}}}));
    for (text, is_valid) in [
        (r#"{"n": 1.0}"#, true),
        (r#"{"n": 1e3}"#, true),
        (r#"{"n": 1.5}"#, false),
        (r#"{"n": 9007199254740993}"#, true),
        (r#"{"n": 36893488147419103232}"#, true),
    ] {
        let checked = integer.check(text, Budget::QUICK);
        assert_eq!(checked.is_ok(), is_valid, "{text}");
    }
    let whole = schema(&json!({"multipleOf": 1}));
    let tenths = schema(&json!({"multipleOf": 0.1}));
    for (number, is_whole, is_tenths) in [
        (0.0, true, true),
        (0.3, false, true),
        (1.1, false, true),
        (1e-10, false, false),
        (1.000_000_000_1, false, false),
        (1e15, true, true),
    ] {
        let fits = [&whole, &tenths].map(|of| check(of, &json!(number)).is_ok());
        assert_eq!(fits, [is_whole, is_tenths], "{number}");
    }
    for (number, of, is_multiple) in [
        ("1e308", "0.5", true),
        ("1e308", "0.123456789", false),
        ("1e308", "1e308", true),
        ("1e308", "3", false),
        ("1.5e308", "1e308", false),
        ("5", "1e308", false),
        ("0", "1e308", true),
        ("-0.0", "5e-324", true),
        ("1e308", "1e-308", true),
        ("-1e23", "1000", true),
        ("1e23", "7", false),
        ("18446744073709551615", "5", true),
        ("18446744073709551614", "5", false),
        ("19.99", "0.01", true),
        ("0.075", "0.0001", true),
        ("0.00751", "0.0001", false),
        ("-4.5", "1.5", true),
    ] {
        let schema = schema(&serde_json::from_str(&format!(r#"{{"multipleOf": {of}}}"#)).unwrap());
        let checked = schema.check(number, Budget::QUICK);
        assert_eq!(checked.is_ok(), is_multiple, "{number} by {of}");
    }
    let most = schema(&json!({"properties": {"n": {"maximum": 9_007_199_254_740_992_u64}}}));
    assert!(check(&most, &json!({"n": 9_007_199_254_740_993_u64})).is_err());
}

#[test]
fn a_schema_that_cannot_be_applied_is_refused_with_its_position() {
    let deep = (0..SCHEMA_LEVELS_MAX).fold(json!({}), |schema, _| json!({"not": schema}));
    let patterns: serde_json::Map<_, _> =
        (0..17).map(|n| (format!("p{n}"), json!({"pattern": "a"}))).collect();
    for (text, expected) in [
        ("{".to_owned(), "it is not JSON"),
        ("5".to_owned(), "the schema must be an object, true or false"),
        (json!({"properties": {"a": 5}}).to_string(), "`/properties/a` must be an object"),
        (json!({"properties": {"a": {"type": "grain"}}}).to_string(), "`/properties/a/type` must be one or a list of null"),
        (json!({"minimum": "1"}).to_string(), "`/minimum` must be a number, not \"1\""),
        (json!({"exclusiveMinimum": true}).to_string(), "`/exclusiveMinimum` must be a number"),
        (json!({"minLength": -1}).to_string(), "a whole number from 0 on"),
        (json!({"multipleOf": 0}).to_string(), "must be greater than 0"),
        (json!({"required": "a"}).to_string(), "`/required` must be a list"),
        (json!({"$ref": "http://127.0.0.1:9/x"}).to_string(), "only parts of the same schema are read"),
        (json!({"$ref": "#/$defs/a"}).to_string(), "must be a part of the schema that exists"),
        (json!({"$ref": "#"}).to_string(), "refers to itself"),
        (json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}).to_string(), "refers to itself"),
        (json!({"unevaluatedProperties": false}).to_string(), "`/unevaluatedProperties` is not supported"),
        (json!({"$dynamicRef": "#a"}).to_string(), "`/$dynamicRef` is not supported"),
        (json!({"$schema": "http://json-schema.org/draft-04/schema#"}).to_string(), "that of draft 2020-12"),
        (json!({"properties": {"a": {"$id": "x"}}}).to_string(), "only at the top"),
        (json!({"pattern": "(?=a)"}).to_string(), "look-around"),
        (json!({"pattern": r"(a)\1"}).to_string(), "references to groups"),
        (json!({"pattern": r"\w{1000}"}).to_string(), "within 65536 bytes"),
        (json!({"properties": patterns}).to_string(), "more than 16 patterns"),
        (deep.to_string(), "nested deeper than 64 levels"),
        (json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}).to_string(), "at most 65536 are allowed"),
    ] {
        let error = InputSchema::parse(&text).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A schema that checks a value 2^`levels` times by this one.
fn doubled(levels: usize, leaf: &Value) -> InputSchema {
    let defs: serde_json::Map<_, _> = (0..levels)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/l{}", n + 1)});
            (format!("l{n}"), json!({"allOf": [next, next]}))
        })
        .chain([(format!("l{levels}"), leaf.clone())])
        .collect();
    schema(&json!({"$defs": defs, "$ref": "#/$defs/l0"}))
}

/// Rules that such inputs would break must not be passed by.
#[test]
fn json_that_no_program_can_hold_does_not_fit() {
    let of =
        schema(&json!({"properties": {"count": {"maximum": 9}}, "additionalProperties": false}));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(127), "]".repeat(127));
    for text in [r#"{"count": 5000, "x": 1e400}"#, r#"{"count": 5000, "x": "\ud800"}"#, &deep] {
        for budget in [Budget::QUICK, Budget::FULL] {
            match of.check(text, budget) {
                Err(NotChecked::Invalid(sentence)) => {
                    assert!(sentence.starts_with("`input` cannot be checked: "), "{sentence}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}

#[test]
fn words_of_expressions_are_those_of_ecma_262() {
    for (pattern, text, matches) in [
        (r"\bfoo\b", "é foo", true),
        (r"\bfoo\b", "éfoo", true),
        (r"\bfoo\b", "xfoo", false),
        (r"caf\b", "café", true),
        (r"\Boo\B", "fooé", false),
        (r"\Bo\B", "é fooo", true),
        (r"^\\b$", r"\b", true),
        (r"^[]\\b[x]]+\bé$", r"]\bé", true),
        (r"^[^]]\bé", "aé", true),
    ] {
        let of = schema(&json!({"pattern": pattern}));
        let checked = check(&of, &json!(text));
        assert_eq!(checked.is_ok(), matches, "{pattern} {text}: {checked:?}");
        assert_ne!(checked, Err(NotChecked::Exhausted), "{pattern} {text}");
    }
}

#[test]
fn hostile_schemas_and_inputs_end_within_their_steps() {
    // Two ways to check each level: 2^n checks of one value.
    assert_eq!(check(&doubled(30, &json!({})), &json!({})), Err(NotChecked::Exhausted));
    // The same through the depth of the input.
    let inside = json!({"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]});
    let node = json!({"anyOf": [inside, inside]});
    let by_depth = schema(&json!({"$defs": {"n": node}, "$ref": "#/$defs/n"}));
    let input = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
    assert_eq!(check(&by_depth, &input), Err(NotChecked::Exhausted));
    // Copies of a long name, in each of 2^18 parts.
    let leaf = json!({"propertyNames": true});
    let names = doubled(18, &leaf);
    assert_eq!(check(&names, &json!({"x".repeat(1 << 20): 0})), Err(NotChecked::Exhausted));
    // Comparisons of long names.
    let name = "x".repeat(30_000);
    for leaf in [
        json!({"required": [name]}),
        json!({"dependentRequired": {&name: ["a"]}}),
        json!({"dependentRequired": {"a": [name]}}),
        json!({"dependentSchemas": {&name: {}}}),
    ] {
        let compared = doubled(16, &leaf);
        let input = json!({&name: 0, format!("{name}y"): 0, "a": 0});
        assert_eq!(
            check(&compared, &input),
            Err(NotChecked::Exhausted),
            "{:.40}",
            leaf.to_string()
        );
    }
    // Thousands of alternatives that fail on each level.
    let mut alternatives = vec![json!(false); 10_000];
    alternatives.push(json!({"properties": {"a": {"$ref": "#"}}}));
    let many = schema(&json!({"anyOf": alternatives}));
    assert_eq!(check(&many, &input), Err(NotChecked::Exhausted));
    // Many references between two levels of the input: no overflow of the stack.
    let chain: serde_json::Map<_, _> = (0..900)
        .map(|n| (format!("c{n}"), json!({"$ref": format!("#/$defs/c{}", n + 1)})))
        .chain([("c900".to_owned(), json!({"properties": {"a": {"$ref": "#/$defs/c0"}}}))])
        .collect();
    let deep = schema(&json!({"$defs": chain, "$ref": "#/$defs/c0"}));
    assert_eq!(check(&deep, &input), Err(NotChecked::Exhausted));
    // Megabytes of small values.
    let any = schema(&json!({}));
    let many = text_of(&vec![0; 600_000]);
    assert_eq!(any.check(&many, Budget::FULL), Err(NotChecked::Exhausted));
    assert_eq!(any.check(&text_of(&",".repeat(600_000)), Budget::FULL), Ok(()));
}

/// A text of `a` and `b` in an order that does not repeat.
fn random_text(seed: u32, chars: usize) -> String {
    let mut number = seed;
    let letters = (0..chars).map(|_| {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if number >> 31 == 0 { 'a' } else { 'b' }
    });
    letters.collect()
}

/// 16 patterns and as many texts of 5,000 characters. Almost each character needs a new state, and
/// each state a walk through 1,400 alternatives.
fn many_states() -> (InputSchema, Value) {
    let pattern = |n| format!("^(?:[ab](?:{}))*a(?:[ab]){{12}}c{n}", "|".repeat(1_400));
    let fields = (0..16).map(|n| (n.to_string(), json!({"not": {"pattern": pattern(n)}})));
    let texts = (0..16).map(|n| (n.to_string(), random_text(n, 5_000).into()));
    let fields = fields.collect::<serde_json::Map<_, _>>();
    (schema(&json!({"properties": fields})), texts.collect::<serde_json::Map<_, _>>().into())
}

/// A pattern with few states, and a text with each character of a block after each of the states:
/// almost each byte needs a new transition, and memory does not grow with them.
fn many_transitions() -> (InputSchema, Value) {
    let chars = || ('a'..='z').chain('A'..='Z').chain('0'..='9');
    let alternatives: String = chars().map(|c| format!("|{c}q")).collect();
    let of = schema(
        &json!({"not": {"pattern": format!("^(?:.(?:{}{alternatives}))*#$", "|".repeat(1_000))}}),
    );
    let pairs = chars().flat_map(|a| chars().map(move |b| (a, b)));
    let text: String = pairs.flat_map(|(a, b)| [a, b]).collect();
    (of, text.into())
}

#[test]
fn the_steps_of_a_check_count_what_its_expressions_make() {
    let (states, texts) = many_states();
    let (transitions, text) = many_transitions();
    for (of, input) in [(&states, &texts), (&transitions, &text)] {
        let input = text_of(input);
        assert_eq!(of.check(&input, Budget::QUICK), Err(NotChecked::Exhausted));
    }
    assert_eq!(check(&states, &texts), Err(NotChecked::Exhausted));
    // More states than any check may make.
    let slow = schema(&json!({"properties": {"a": {"pattern": "(a|b)*a(a|b){300}c"}}}));
    let long = json!({"a": random_text(1, 1 << 20)});
    assert_eq!(check(&slow, &long), Err(NotChecked::Exhausted));
    // The checks before it change nothing.
    for _ in 0..2 {
        let short = check(&slow, &json!({"a": "abac"}));
        assert!(matches!(short, Err(NotChecked::Invalid(_))), "{short:?}");
        assert_eq!(check(&slow, &long), Err(NotChecked::Exhausted));
    }
}

/// Expressions that authors write are checked at once, also by the first check.
#[test]
fn usual_expressions_are_quick() {
    let uuid = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";
    let date = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$";
    for (pattern, text) in [
        (uuid, "0192f3a0-7c1e-7000-8000-1234567890ab"),
        (date, "2026-11-27T12:34:56.789Z"),
        (r"^\w+$", "Größenordnung_12"),
        ("^[A-Za-z0-9_-]{1,64}$", "a-name-of-usual-length_17"),
        (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "someone.with.a.name@example.com"),
        (r"^https?://[^\s/$.?#].[^\s]*$", "https://example.com/a/path?with=parameters"),
        (r"^(\d{1,3}\.){3}\d{1,3}$", "192.168.100.200"),
        (r"^\p{Lu}[\w' -]*$", "Žofie Šťastná-Nováková"),
        (r"^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$", "v1.20.3-beta.4"),
    ] {
        let of = schema(&json!({"pattern": pattern}));
        assert_eq!(of.check(&text_of(&text), Budget::QUICK), Ok(()), "{pattern}");
    }
    let names = schema(&json!({"patternProperties": {"^[a-z_]+[0-9]*$": {"type": "integer"}}}));
    let fields: serde_json::Map<_, _> =
        (0..1_000).map(|n| (format!("field_{n}"), n.into())).collect();
    assert_eq!(names.check(&text_of(&fields), Budget::QUICK), Ok(()));
    let prose = schema(&json!({"pattern": r"^[\w\s.,]+$"}));
    let text = "Some words, and a full stop. ".repeat(2_000);
    assert_eq!(prose.check(&text_of(&text), Budget::QUICK), Ok(()));
}

/// The library would search anew from each character on.
#[test]
fn a_match_within_a_character_costs_no_further_search() {
    let of = schema(&json!({"pattern": r"\B"}));
    let words = "a ".repeat(100_000);
    let begun = std::time::Instant::now();
    for (text, matches) in [(format!("{words}aéb"), false), (format!("{words}aéb bc"), true)] {
        assert_eq!(check(&of, &json!(text)).is_ok(), matches);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn recursive_schemas_of_usual_inputs_are_checked() {
    let tree = schema(&json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "children": {"items": {"$ref": "#/$defs/node"}}},
            "required": ["value"],
            "additionalProperties": false,
        }},
        "$ref": "#/$defs/node",
    }));
    let input =
        (0..50).fold(json!({"value": 0}), |inner, n| json!({"value": n, "children": [inner]}));
    assert_eq!(tree.check(&text_of(&input), Budget::QUICK), Ok(()));
    let older = schema(&json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"type": "number"}},
        "properties": {"pair": {"items": [{"$ref": "#/definitions/n"}, {}], "additionalItems": false}},
        "dependencies": {"a": ["b"]},
    }));
    assert!(check(&older, &json!({"pair": [1.5, "x"]})).is_ok());
    for wrong in [json!({"pair": ["x"]}), json!({"pair": [1, 2, 3]}), json!({"a": 1})] {
        assert!(check(&older, &wrong).is_err(), "{wrong}");
    }
}

#[test]
fn references_lead_into_the_component_of_a_document() {
    let schema = json!({
        "$id": "x", "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"a": {"$ref": "#"}},
        "properties": {"$ref": {"$ref": "#/$defs/a"}, "list": {"items": {"$ref": "#/$defs/a"}}},
        "default": {"$ref": "#/kept"},
    });
    let moved = as_openapi_component(schema, "#/c/I");
    let expected = json!({
        "$defs": {"a": {"$ref": "#/c/I"}},
        "properties": {"$ref": {"$ref": "#/c/I/$defs/a"}, "list": {"items": {"$ref": "#/c/I/$defs/a"}}},
        "default": {"$ref": "#/kept"},
    });
    assert_eq!(moved, expected);
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        prop_oneof![Just(1.0), Just(0.5), Just(-2.5), Just(1e20)].prop_map(Value::from),
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// Parts of expressions. Each is whole by itself.
const EXPRESSIONS: &[&str] = &[
    "a",
    "b",
    "é",
    ".",
    "[^a]",
    "[a€]",
    r"(?:\w|€)",
    "^",
    "$",
    r"\b",
    r"\B",
    "a*",
    "(?:é|)",
    "(?:a|ab)?",
    "(?:b{0,2}|€+)",
    r"(?:\B|a)",
    r"(?-u:\w)*",
    "|",
];

const KINDS: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];

fn schemas() -> impl Strategy<Value = Value> {
    let number = || prop_oneof![(-2_i64..3).prop_map(Value::from), Just(json!(0.5))];
    let kind = || prop::sample::select(KINDS);
    let leaf = prop_oneof![
        Just(json!({})),
        any::<bool>().prop_map(Value::from),
        kind().prop_map(|kind| json!({"type": kind})),
        prop::collection::btree_set(kind(), 1..3).prop_map(|kinds| json!({"type": kinds})),
        prop::collection::vec(values(), 1..3).prop_map(|values| json!({"enum": values})),
        values().prop_map(|value| json!({"const": value})),
        (
            prop::sample::select(
                &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"][..]
            ),
            number()
        )
            .prop_map(|(name, number)| json!({name: number})),
        prop_oneof![Just(json!({"multipleOf": 2})), Just(json!({"multipleOf": 0.5}))],
        (
            prop::sample::select(
                &[
                    "minLength",
                    "maxLength",
                    "minItems",
                    "maxItems",
                    "minProperties",
                    "maxProperties"
                ][..]
            ),
            0..3
        )
            .prop_map(|(name, count)| json!({name: count})),
        prop::sample::select(&["^a", "b$", "a|bb", "^[ab]{2}$", ""][..])
            .prop_map(|p| json!({"pattern": p})),
        Just(json!({"uniqueItems": true})),
        prop::collection::btree_set("[abc]", 0..3).prop_map(|names| json!({"required": names})),
        Just(json!({"dependentRequired": {"a": ["b"]}})),
        Just(json!({"$ref": "#/$defs/d"})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (prop::sample::select(&["allOf", "anyOf", "oneOf", "prefixItems"][..]), list.clone())
                .prop_map(|(name, parts)| json!({name: parts})),
            (prop::sample::select(&["not", "items", "contains", "additionalProperties", "propertyNames"][..]), inner.clone())
                .prop_map(|(name, part)| json!({name: part})),
            (list, inner.clone()).prop_map(|(first, rest)| json!({"prefixItems": first, "items": rest})),
            (inner.clone(), 0..3, 1..3)
                .prop_map(|(part, least, most)| json!({"contains": part, "minContains": least, "maxContains": most})),
            (prop::collection::btree_map("[abc]", inner.clone(), 1..3), inner.clone(), inner.clone())
                .prop_map(|(named, of_a, rest)| json!({"properties": named, "patternProperties": {"^a": of_a}, "additionalProperties": rest})),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
            (inner.clone(), inner).prop_map(|(a, b)| json!({"dependentSchemas": {"a": a}, "type": "object", "properties": {"b": b}})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Of the automaton's own search, with its own rule of matches within characters.
    #[test]
    fn searches_are_those_of_the_library(
        parts in prop::collection::vec(prop::sample::select(EXPRESSIONS), 1..5),
        texts in prop::collection::vec("[abé€ 0\n]{0,8}", 1..8),
    ) {
        let text = parts.concat();
        let pattern = pattern::Pattern::compile(&text).unwrap();
        let mut states = pattern.states(false);
        for searched in &texts {
            let found = pattern.matches(&mut states, searched, &mut u64::MAX.clone());
            prop_assert_eq!(found, Some(pattern.library_matches(searched)), "{} {:?}", text, searched);
        }
    }

    #[test]
    fn results_are_those_of_the_library(part in schemas(), defined in values(), input in values()) {
        let whole = json!({"$defs": {"d": {"const": defined}}, "allOf": [part]});
        let library = jsonschema::draft202012::new(&whole).unwrap();
        let checked = check(&schema(&whole), &input);
        prop_assert_eq!(checked.is_ok(), library.is_valid(&input), "{} {}: {:?}", whole, input, checked);
    }
}
