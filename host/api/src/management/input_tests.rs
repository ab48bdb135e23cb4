//! Fields of management inputs that are unknown, of a wrong type, without effect, or for a GPU.

use gristmill_wire::management::{EndpointInput, NetworkVolumeInput, NewKey, TemplateInput};
use serde_json::json;

use super::*;

fn complaint<T: Body + std::fmt::Debug>(body: &serde_json::Value) -> String {
    format!("{:?}", read::<T>(body, false).unwrap_err())
}

fn read<T: Body>(body: &serde_json::Value, ignores_gpu: bool) -> Result<Parsed<T>, ApiError> {
    let compatibility = Compatibility { brand: "Mill".into(), ignores_gpu };
    parse(body.to_string().as_bytes(), &compatibility)
}

#[test]
fn a_field_that_does_not_exist_is_refused_with_the_fields_that_do() {
    let misspelled = json!({ "name": "k", "scopes": ["read"], "expiresAt": 1 });
    let said = complaint::<NewKey>(&misspelled);
    assert!(said.contains("unknown field `expiresAt`"), "{said}");
    assert!(said.contains("`owner`, `endpoints`, `expiresInSeconds`"), "{said}");
    let said = complaint::<EndpointInput>(&json!({ "workersMaximum": 1 }));
    assert!(said.contains("`workersMaximum`") && said.contains("`workersMax`"), "{said}");
    let said = complaint::<TemplateInput>(&json!({ "isPlatfrom": true }));
    assert!(said.contains("`isPlatfrom`") && said.contains("`isPlatform`"), "{said}");
    let said = complaint::<NetworkVolumeInput>(&json!({ "sizeGb": 2 }));
    assert!(said.contains("`sizeGb`, expected `name` or `size`"), "{said}");
    let said = complaint::<EndpointInput>(&json!({ "vcpuCount": 1, "workersMax": -1.5 }));
    assert!(said.contains("`workersMax` is invalid"), "{said}");
    for list in [json!([]), json!(["k", ["read"]]), json!("k"), json!(null)] {
        assert!(complaint::<NewKey>(&list).contains("a JSON object"), "{list}");
    }
}

#[test]
fn a_value_of_a_wrong_type_is_refused_with_its_field_and_what_is_allowed() {
    let scaler = json!({ "scalerType": 5 });
    let in_list = json!({ "name": "k", "scopes": ["read", 5] });
    let within = json!({ "retention": { "failed": "1 day" } });
    let unknown = json!({ "reuse": { "maxIdel": 5 } });
    let list = json!({ "retention": [1] });
    for (said, parts) in [
        (
            complaint::<EndpointInput>(&scaler),
            ["`scalerType`", "integer `5`", "`QUEUE_DELAY`, `REQUEST_COUNT`"],
        ),
        (complaint::<NewKey>(&in_list), ["`scopes[1]`", "integer `5`", "`admin`, `manage`"]),
        (
            complaint::<EndpointInput>(&within),
            ["`retention.failed`", "\\\"1 day\\\"", "a whole number"],
        ),
        (complaint::<EndpointInput>(&unknown), ["`reuse.maxIdel`", "unknown", "`maxIdle`"]),
        (complaint::<EndpointInput>(&list), ["`retention`", "sequence", "an object"]),
    ] {
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
    }
}

#[test]
fn fields_for_hardware_and_fields_that_only_the_host_sets_have_no_effect() {
    let hosted =
        json!({ "workersMax": 3, "computeType": "CPU", "gpuTypeIds": [], "flashboot": {} });
    let input: EndpointInput = read(&hosted, false).unwrap().body;
    assert_eq!(input, EndpointInput { workers_max: Some(3), ..EndpointInput::default() });
    let answered = json!({
        "workersMax": 3, "createdAt": "2026-01-01T00:00:00.000Z", "userId": "default", "version": 2,
        "templateIsDeleted": true, "inputSchema": { "type": "object" },
        "ignoredFields": ["gpuCount"],
    });
    let sent_back: EndpointInput = read(&answered, false).unwrap().body;
    assert_eq!(sent_back, input);
    let own = json!({ "isMill": true, "earned": 0.5, "runtimeInMin": 2, "readme": "r" });
    let input: TemplateInput = read(&own, false).unwrap().body;
    assert_eq!(input, TemplateInput { readme: Some("r".into()), ..TemplateInput::default() });
    let said = complaint::<TemplateInput>(&json!({ "isOther": true }));
    assert!(said.contains("`isOther`"), "{said}");
}

#[test]
fn a_request_of_a_gpu_is_refused_or_named_as_ignored() {
    let requests = [
        ("gpuCount", json!(8)),
        ("gpuTypeIds", json!(["NVIDIA H100"])),
        ("computeType", json!("GPU")),
        ("minCudaVersion", json!("12.4")),
        ("allowedCudaVersions", json!(["12.4"])),
    ];
    for (name, value) in requests {
        let body = json!({ "workersMax": 3, name: value });
        let said = complaint::<EndpointInput>(&body);
        assert!(said.contains(&format!("`{name}` requests a GPU")), "{said}");
        assert!(said.contains("--ignore-gpu-fields"), "{said}");
        let Parsed { body, ignored } = read::<EndpointInput>(&body, true).unwrap();
        assert_eq!(body, EndpointInput { workers_max: Some(3), ..EndpointInput::default() });
        assert_eq!(ignored, [name]);
    }
    let wrong = [
        ("gpuCount", json!("8"), "a whole number"),
        ("gpuCount", json!(false), "a whole number"),
        ("gpuCount", json!(1.5), "a whole number"),
        ("gpuCount", json!(-1), "a whole number"),
        ("gpuTypeIds", json!("NVIDIA H100"), "a list of strings"),
        ("gpuTypeIds", json!([0]), "a list of strings"),
        ("computeType", json!("cpu"), "`CPU` or `GPU`"),
        ("computeType", json!(0), "`CPU` or `GPU`"),
        ("minCudaVersion", json!(12.4), "a string"),
        ("allowedCudaVersions", json!({}), "a list of strings"),
    ];
    for (name, value, allowed) in wrong {
        for ignores_gpu in [false, true] {
            let refused = read::<EndpointInput>(&json!({ name: value }), ignores_gpu);
            let said = format!("{:?}", refused.unwrap_err());
            assert!(said.contains(&format!("`{name}` must be {allowed}")), "{said}");
        }
    }
    let none = json!({
        "gpuCount": 0, "gpuTypeIds": [], "computeType": "CPU", "minCudaVersion": "",
        "allowedCudaVersions": null,
    });
    for ignores_gpu in [false, true] {
        let parsed = read::<EndpointInput>(&none, ignores_gpu).unwrap();
        assert_eq!((parsed.body, parsed.ignored), (EndpointInput::default(), vec![]));
    }
}
