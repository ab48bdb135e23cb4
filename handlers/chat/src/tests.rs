use gristmill_sdk::Error;
use gristmill_sdk::testing::TestContext;
use serde_json::{Value, json};

use super::{MODEL, chat};
use crate::tokens::tokenize;

fn call_with(ctx: &TestContext, route: &str, body: &Value) -> Value {
    let input = json!({ "openai_route": route, "openai_input": body }).to_string();
    serde_json::from_str(&ctx.run_json(chat, &input).unwrap()).unwrap()
}

fn call(route: &str, body: &Value) -> Value {
    call_with(&TestContext::new(), route, body)
}

/// A chat request about bread, with more fields.
fn about_bread(more: Value) -> Value {
    let mut body = json!({
        "model": MODEL, "seed": 7, "max_tokens": 20,
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [
                { "type": "text", "text": "What is" }, { "type": "text", "text": "bread?" },
            ] },
        ],
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn a_chat_answer_begins_with_what_was_asked_about_and_counts_its_tokens() {
    let answer = call("/v1/chat/completions", &about_bread(json!({})));
    assert!(content(&answer).starts_with("Bread"), "{answer}");
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["id"], "chatcmpl-test-job");
    assert_eq!(answer["model"], MODEL);
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    let tokens = tokenize(content(&answer)).count();
    assert_eq!(
        answer["usage"],
        json!({ "prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens })
    );
}

#[test]
fn a_seed_and_temperature_0_make_the_text_repeatable() {
    let text = |more| content(&call("/v1/chat/completions", &about_bread(more))).to_owned();
    assert_eq!(text(json!({ "seed": 1 })), text(json!({ "seed": 1 })));
    let texts: std::collections::HashSet<_> =
        (0..10).map(|seed| text(json!({ "seed": seed }))).collect();
    assert!(texts.len() > 5, "{texts:?}");
    let greedy = |seed: Value| text(json!({ "seed": seed, "temperature": 0 }));
    assert_eq!(greedy(json!(1)), greedy(json!(null)));
}

#[test]
fn max_tokens_is_the_length_and_both_names_of_it_work() {
    for name in ["max_tokens", "max_completion_tokens"] {
        let body = about_bread(json!({ "max_tokens": null, "temperature": 0, name: 5 }));
        let answer = call("/v1/chat/completions", &body);
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        assert_eq!(answer["usage"]["completion_tokens"], 5);
        assert_eq!(tokenize(content(&answer)).count(), 5);
    }
}

#[test]
fn a_stop_sequence_ends_the_text_before_it() {
    let long = about_bread(json!({ "max_tokens": 200, "temperature": 0 }));
    let full = call("/v1/chat/completions", &long);
    let fourth: Vec<_> = content(&full).split(' ').take(4).collect();
    for stop in [json!(fourth[3]), json!(["never said", fourth[3]])] {
        let body = about_bread(json!({ "max_tokens": 200, "temperature": 0, "stop": stop }));
        let answer = call("/v1/chat/completions", &body);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert!(content(&full).starts_with(content(&answer)));
        assert!(!content(&answer).contains(fourth[3]), "{answer}");
    }
}

#[test]
fn a_stream_has_a_chunk_for_each_token_then_the_reason_then_the_usage() {
    let whole = call("/v1/chat/completions", &about_bread(json!({})));
    let ctx = TestContext::new();
    let body = about_bread(json!({ "stream": true, "stream_options": { "include_usage": true } }));
    assert_eq!(call_with(&ctx, "/v1/chat/completions", &body), Value::Null);
    let mut chunks = ctx.outputs();
    let usage = chunks.pop().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
    let last = chunks.pop().unwrap();
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
    assert_eq!(chunks.len() as u64, whole["usage"]["completion_tokens"].as_u64().unwrap());
    let mut text = String::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let choice = &chunk["choices"][0];
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["usage"], &choice["finish_reason"]), (&Value::Null, &Value::Null));
        assert_eq!(choice["delta"].get("role").is_some(), index == 0, "{chunk}");
        text.push_str(choice["delta"]["content"].as_str().unwrap());
    }
    assert_eq!(text, content(&whole));
}

#[test]
fn usage_in_a_stream_is_only_for_those_who_ask() {
    let ctx = TestContext::new();
    call_with(&ctx, "/v1/chat/completions", &about_bread(json!({ "stream": true })));
    assert!(ctx.outputs().iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn a_completion_goes_on_after_its_prompt() {
    let body =
        json!({ "model": MODEL, "prompt": ["The upper"], "temperature": 0, "max_tokens": 1 });
    let answer = call("/v1/completions", &body);
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["text"], " stone");
    assert_eq!(answer["usage"]["prompt_tokens"], 2);

    let ctx = TestContext::new();
    let body = json!({ "model": MODEL, "prompt": "xyzzy", "seed": 1, "stream": true });
    call_with(&ctx, "/v1/completions", &body);
    let first = ctx.outputs().remove(0);
    let text = first["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(char::is_uppercase), "{first}");
}

#[test]
fn there_is_one_model() {
    let list = call("/v1/models", &json!({}));
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], MODEL);
    assert_eq!(call(&format!("/v1/models/{MODEL}"), &json!({})), list["data"][0]);
    for (route, code) in [("/v1/models/gpt", "model_not_found"), ("/v1/images", "unknown_url")] {
        let error = &call(route, &json!({}))["error"];
        assert_eq!((&error["type"], &error["code"]), (&json!("not_found_error"), &json!(code)));
    }
    let body = about_bread(json!({ "model": "gpt" }));
    assert_eq!(call("/v1/chat/completions", &body)["error"]["code"], "model_not_found");
}

#[test]
fn what_is_wrong_or_not_supported_is_named() {
    let cases = [
        (json!({ "model": null }), "model"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": [{ "role": "miller", "content": "" }] }), "messages[0].role"),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }),
            "messages[0].content",
        ),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "max_tokens": 4097 }), "max_tokens"),
        (json!({ "max_completion_tokens": "5" }), "max_completion_tokens"),
        (json!({ "temperature": 2.1 }), "temperature"),
        (json!({ "seed": 1.5 }), "seed"),
        (json!({ "stop": ["a", "b", "c", "d", "e"] }), "stop"),
        (json!({ "stop": "" }), "stop"),
        (json!({ "stop": [1] }), "stop"),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "stream_options": { "include_usage": true } }), "stream_options"),
        (json!({ "n": 2 }), "n"),
        (json!({ "tools": [] }), "tools"),
        (json!({ "prompt": "x" }), "prompt"),
    ];
    for (more, param) in cases {
        let error = &call("/v1/chat/completions", &about_bread(more))["error"];
        assert_eq!(error["type"], "invalid_request_error", "{error}");
        assert_eq!(error["param"], param, "{error}");
        assert!(error["message"].as_str().unwrap().contains(param), "{error}");
    }
    let defaults = json!({ "n": 1, "top_p": 1, "presence_penalty": 0, "tools": null, "user": "u" });
    assert!(call("/v1/chat/completions", &about_bread(defaults)).get("error").is_none());
}

#[test]
fn a_cancelled_job_stops_between_tokens() {
    let ctx = TestContext::new().with_cancelled_after(1);
    let body = about_bread(json!({ "stream": true }));
    let input = json!({ "openai_route": "/v1/chat/completions", "openai_input": body });
    assert!(matches!(ctx.run_json(chat, &input.to_string()), Err(Error::Cancelled)));
    assert_eq!(ctx.outputs().len(), 1);
}
