//! Variables of the environment, one by one: defaults, effects, secret headers, and wrong values.

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, InvalidSetting> {
    TraceSettings::from_env(|name| {
        let found = variables.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/x/");

fn with(name: &str, value: &str) -> TraceSettings {
    read(&[ENDPOINT, (name, value)]).unwrap().unwrap()
}

#[test]
fn nothing_is_exported_unless_asked() {
    assert!(read(&[]).unwrap().is_none());
    assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).unwrap().is_none());
    assert!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")]).unwrap().is_none());
    assert!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
}

#[test]
fn each_variable_counts() {
    let settings = read(&[ENDPOINT]).unwrap().unwrap();
    assert_eq!(settings.url.as_str(), "http://c:4318/x/v1/traces");
    assert_eq!((settings.queue_spans, settings.batch_spans), (2_048, 512));
    assert_eq!((settings.delay, settings.timeout).0, Duration::from_secs(5));
    assert_eq!(settings.timeout, Duration::from_secs(10));
    assert_eq!(settings.sampler, Sampler { follows_parent: true, ratio: 1.0 });
    assert_eq!(with("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/").url.as_str(), "https://t/");
    assert_eq!(with("OTEL_BSP_MAX_QUEUE_SIZE", "7").batch_spans, 7);
    assert_eq!(with("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9").batch_spans, 9);
    assert_eq!(with("OTEL_BSP_SCHEDULE_DELAY", "20").delay, Duration::from_millis(20));
    assert_eq!(with("OTEL_EXPORTER_OTLP_TIMEOUT", "30").timeout, Duration::from_millis(30));
    assert_eq!(with("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "3").timeout, Duration::from_millis(3));
    assert!(!settings.is_gzip);
    assert!(with("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip").is_gzip);
    assert!(with("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip").is_gzip);
    let both = [
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
    ];
    assert!(!read(&both).unwrap().unwrap().is_gzip, "the one for traces counts");
    let attributes = with("OTEL_RESOURCE_ATTRIBUTES", "a=b%20c,service.name=other").resource;
    assert!(attributes.contains(&("a".to_owned(), "b c".to_owned())));
    assert!(attributes.contains(&("service.name".to_owned(), "other".to_owned())));
    let named = with("OTEL_SERVICE_NAME", "mill").resource;
    assert!(named.contains(&("service.name".to_owned(), "mill".to_owned())));
    let samplers = [
        ("always_on", false, 1.0),
        ("always_off", false, 0.0),
        ("traceidratio", false, 0.25),
        ("parentbased_always_on", true, 1.0),
        ("parentbased_always_off", true, 0.0),
        ("parentbased_traceidratio", true, 0.25),
    ];
    for (name, follows_parent, ratio) in samplers {
        let variables =
            [ENDPOINT, ("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", "0.25")];
        let settings = read(&variables).unwrap().unwrap();
        assert_eq!(settings.sampler, Sampler { follows_parent, ratio }, "{name}");
    }
}

#[test]
fn headers_are_decoded_and_secret() {
    let settings = with("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret, x=1");
    assert_eq!(settings.headers["authorization"], "Bearer s3cret");
    assert_eq!(settings.headers["x"], "1");
    assert!(!format!("{settings:?}").contains("s3cret"));
    let error = read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")]).unwrap_err();
    assert!(error.to_string().contains("OTEL_EXPORTER_OTLP_HEADERS"));
    assert!(!error.to_string().contains("s3cret"));
    let error = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:s3cret@c")]).unwrap_err();
    assert!(!error.to_string().contains("s3cret"));
}

#[test]
fn wrong_values_are_named() {
    let wrong = [
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://c"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "x"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_RESOURCE_ATTRIBUTES", "novalue"),
    ];
    for (name, value) in wrong {
        let error = read(&[ENDPOINT, (name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name} is {value:?}: ")), "{error}");
    }
    let ratio =
        [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
    assert!(read(&ratio).unwrap_err().to_string().starts_with("OTEL_TRACES_SAMPLER_ARG"));
}
