//! Settings of endpoints: inputs, changes, refusals, records of older hosts, and schemas.

use serde_json::json;
#[cfg(feature = "openapi")]
use utoipa::PartialSchema as _;

use super::*;

#[test]
fn the_higher_of_base_and_workers_is_the_limit() {
    let limit = RateLimit { calls_per_10s: 1_000, concurrent: Some(200), calls_per_worker: 200 };
    assert_eq!([0, 5, 6].map(|workers| limit.effective(workers)), [1_000, 1_000, 1_200]);
    assert_eq!(limit.effective(u64::MAX), u32::MAX);
}

#[test]
fn an_input_has_only_the_given_fields() {
    let input = EndpointInput {
        template_id: Some(TemplateId::new("echo").unwrap()),
        workers_max: Some(4),
        metering: Some(Metering::Epoch),
        ..EndpointInput::default()
    };
    let text = serde_json::to_string(&input).unwrap();
    assert_eq!(text, r#"{"templateId":"echo","workersMax":4,"metering":"epoch"}"#);
    assert_eq!(serde_json::from_str::<EndpointInput>(&text).unwrap(), input);
}

fn changed(with: serde_json::Value) -> Result<EndpointSettings, String> {
    let given: EndpointInput = serde_json::from_value(with).unwrap();
    let mut settings = EndpointSettings::default();
    settings.change(given).map_err(|error| error.to_string())?;
    Ok(settings)
}

#[test]
fn a_change_takes_the_given_fields_and_0_removes_an_optional_number() {
    let mut settings = changed(json!({
        "workersMax": 3.0, "workersMin": 2, "maxFuel": 7, "paused": null,
        "retention": { "maxJobs": 9 }, "reuse": { "maxJobs": 4 }, "env": { "A": "b" },
    }))
    .unwrap();
    let expected = EndpointSettings {
        workers_min: 2,
        workers_max: 3,
        max_fuel: Some(7),
        retention: EndpointRetention { max_jobs: Some(9), ..EndpointRetention::default() },
        reuse: Reuse { max_jobs: 4, max_idle: 60 },
        env: [("A".to_owned(), "b".to_owned())].into(),
        ..EndpointSettings::default()
    };
    assert_eq!(settings, expected);
    let less = json!({ "workersMax": 1, "maxFuel": 0, "retention": { "maxJobs": 0 } });
    settings.change(serde_json::from_value(less).unwrap()).unwrap();
    let of_all = (settings.workers_min, settings.max_fuel, settings.retention.max_jobs);
    assert_eq!(of_all, (1, None, None), "no more workers are kept than there may be");
    assert_eq!((settings.reuse.max_jobs, settings.env.len()), (4, 1), "they were not given");
}

#[test]
fn a_refusal_names_the_field_and_its_bounds() {
    let cases = [
        (json!({ "idleTimeout": 0 }), "`idleTimeout` must be 1 to 3600, not 0"),
        (
            json!({ "memoryMib": 5_000_000_000_u64 }),
            "`memoryMib` must be 1 to 4096, not 5000000000",
        ),
        (
            json!({ "workersMin": 5, "workersMax": 4 }),
            "`workersMin` must be 0 to 4, which is `workersMax`, not 5",
        ),
        (
            json!({ "maxWaitingJobs": 10_000_001 }),
            "`maxWaitingJobs` must be 1 to 10000000, not 10000001",
        ),
        (
            json!({ "retention": { "failed": 1 } }),
            "`retention.failed` must be 60000 to 2592000000, not 1",
        ),
        (json!({ "reuse": { "maxIdle": 0 } }), "`reuse.maxIdle` must be 1 to 3600, not 0"),
        (
            json!({ "rateLimits": { "run": { "callsPer10s": 0 } } }),
            "`rateLimits.run.callsPer10s` must be 1 to 4294967295, not 0",
        ),
        (
            json!({ "callEndpoints": vec!["e"; 257] }),
            "`callEndpoints` has 257 entries; at most 256 are allowed",
        ),
        (
            json!({ "env": { "A": "x".repeat(32_769) } }),
            "`env.A` has more than 32768 characters, the most allowed",
        ),
        (
            json!({ "env": { "A=B": "" } }),
            "`env` has a variable `A=B`; a name has 1 to 256 characters, and neither `=` nor NUL",
        ),
        (
            json!({ "env": { "A\0B": "" } }),
            "`env` has a variable `A\\0B`; a name has 1 to 256 characters, and neither `=` nor NUL",
        ),
        (
            json!({ "env": { "": "" } }),
            "`env` has a variable ``; a name has 1 to 256 characters, and neither `=` nor NUL",
        ),
        (json!({ "env": { "A": "b\0c" } }), "`env.A` has a NUL, which no value can have"),
        (
            json!({ "http": { "cors": { "origins": ["*"], "credentials": true } } }),
            "`http.cors.credentials` needs named origins in `http.cors.origins`, not `*`",
        ),
        (
            json!({ "http": { "cors": { "origins": ["https://a.example/"] } } }),
            "`http.cors.origins` has `https://a.example/`; an origin is `https://` or `http://` and a host in \
             lower case, with a port if it is not the usual one, and without a path; `*` stands for all",
        ),
        (
            json!({ "http": { "hosts": ["a.example", "A.example"] } }),
            "`http.hosts` has `A.example`; a host name is letters in lower case, digits, dashes and dots, without a \
             port",
        ),
        (
            json!({ "http": { "cors": { "exposeHeaders": ["a b"] } } }),
            "`http.cors.exposeHeaders` has `a b`, which is no name of a header",
        ),
    ];
    for (given, expected) in cases {
        assert_eq!(changed(given).unwrap_err(), expected);
    }
}

#[test]
fn a_record_of_an_older_host_gets_the_defaults() {
    let read: EndpointSettings =
        serde_json::from_str(r#"{"workersMax":3,"reuse":{"maxJobs":2}}"#).unwrap();
    let reuse = Reuse { max_jobs: 2, ..Reuse::default() };
    let expected = EndpointSettings { workers_max: 3, reuse, ..EndpointSettings::default() };
    assert_eq!(read, expected);
}

#[cfg(feature = "openapi")]
#[test]
fn the_schemas_show_bounds_and_defaults() {
    let schema = |of| serde_json::to_value(of).unwrap();
    let input = schema(EndpointInput::schema());
    let idle = &input["properties"]["idleTimeout"]["oneOf"][0];
    assert_eq!((&idle["minimum"], &idle["maximum"]), (&json!(1), &json!(3600)), "{idle}");
    let jobs = &input["properties"]["maxWaitingJobs"]["oneOf"][0];
    assert_eq!((&jobs["minimum"], &jobs["maximum"]), (&json!(0), &json!(10_000_000)), "{jobs}");
    let settings = schema(EndpointSettings::schema());
    let properties = settings["properties"].as_object().unwrap();
    assert_eq!(properties["idleTimeout"]["default"], 5, "{settings}");
    let required = settings["required"].as_array().unwrap();
    assert_eq!(required.len(), properties.len() - 2, "all but two optional numbers: {settings}");
}
