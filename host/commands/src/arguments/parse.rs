//! Parses values on the command line.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gristmill_client::wire::bounds::{
    Bounds, IDEMPOTENCY_KEY_CHARS_MAX, NAME_BYTES_MAX, OutOfBounds, is_idempotency_key,
};
use gristmill_client::wire::management::{EndpointSettings, Overlap, ScalerType};
use gristmill_client::wire::{
    InvalidRegistryHost, JobStatus, Metering, RegistryHost, Scope, UnknownStatus,
};
use url::Url;

/// One environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvVar {
    name: String,
    value: String,
}

/// Parses `K=V`; the value may be empty and may contain `=`.
pub fn env_var(text: &str) -> Result<EnvVar, String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("write NAME=VALUE")?;
    Ok(EnvVar { name: name.to_owned(), value: value.to_owned() })
}

/// The variables by name; the last one of a name counts.
pub fn environment(vars: Vec<EnvVar>) -> BTreeMap<String, String> {
    vars.into_iter().map(|var| (var.name, var.value)).collect()
}

/// An address with a port.
///
/// # Errors
/// A sentence with examples.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "write an address and a port, such as 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080";
    text.parse().map_err(|_| wrong.to_owned())
}

/// The description of an option, with the default of its setting.
pub(super) fn help(text: &str, bounds: Bounds) -> String {
    format!("{text} [default: {}]", bounds.default)
}

/// `None` for an option that was not given.
pub fn given<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

/// A number inside the platform's bounds.
pub fn bounded<T: TryFrom<u64>>(
    bounds: Bounds,
) -> impl Fn(&str) -> Result<T, OutOfBounds> + Clone + Send + Sync + 'static {
    move |text| bounds.parse(text)
}

/// `queue-delay:4` or `request-count:1`.
pub fn scaler(text: &str) -> Result<(ScalerType, u64), String> {
    let Bounds { min, max, .. } = EndpointSettings::SCALER_VALUE;
    let wrong = || format!("write queue-delay:SECONDS or request-count:JOBS, {min} to {max}");
    let (kind, value) = text.split_once(':').ok_or_else(wrong)?;
    let value: u64 = value.parse::<u32>().map(u64::from).map_err(|_| wrong())?;
    if !EndpointSettings::SCALER_VALUE.contains(value) {
        return Err(wrong());
    }
    match kind {
        "queue-delay" => Ok((ScalerType::QueueDelay, value)),
        "request-count" => Ok((ScalerType::RequestCount, value)),
        _ => Err(wrong()),
    }
}

/// `fuel` or `epoch`.
pub fn metering() -> impl TypedValueParser<Value = Metering> {
    word(Metering::ALL, Metering::as_str)
}

/// `skip`, `queue` or `cancel`.
pub fn overlap() -> impl TypedValueParser<Value = Overlap> {
    word(Overlap::ALL, Overlap::as_str)
}

/// The name of a scope.
pub fn scope() -> impl TypedValueParser<Value = Scope> {
    word(Scope::ALL, Scope::as_str)
}

/// One of these values, by its word.
fn word<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    as_str: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(as_str)).try_map(move |text| {
        all.into_iter().find(|value| as_str(*value) == text).ok_or("it is none of these words")
    })
}

/// The host of a registry.
pub fn registry_host(text: &str) -> Result<String, InvalidRegistryHost> {
    text.parse().map(RegistryHost::into)
}

/// A job's status, in capital or small letters.
pub fn status(text: &str) -> Result<JobStatus, UnknownStatus> {
    text.to_ascii_uppercase().parse()
}

/// A tag, as `KEY=VALUE`.
pub fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a tag is KEY=VALUE, such as env=prod")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A key of submissions, as the host accepts it: without blanks at its ends, which HTTP removes.
pub fn idempotency_key(text: &str) -> Result<String, String> {
    match is_idempotency_key(text.as_bytes()) && text.trim() == text {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters, and no blank at its ends"
        )),
    }
}

/// A job's id. Only its characters are checked, since only the host can interpret it.
pub fn job_id(text: &str) -> Result<String, String> {
    let is_id = (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if is_id { Ok(text.to_owned()) } else { Err("this is no job id".to_owned()) }
}

/// The URL of a host. The base URLs of the queue API, which end in `/v2`, name their host too.
pub fn host_url(text: &str) -> Result<Url, String> {
    let wrong = "write a URL with its scheme, such as http://127.0.0.1:8080";
    let mut url = Url::parse(text).map_err(|_| wrong)?;
    let path = url.path().trim_end_matches('/');
    // The base URLs of the APIs and of the console count as the host's own.
    let below = ["/sdk/v2", "/v2", "/v1", "/console"];
    if let Some(before) = below.iter().find_map(|below| path.strip_suffix(below)) {
        let before = before.to_owned();
        url.set_path(&before);
    }
    let is_plain = url.query().is_none() && url.fragment().is_none();
    let has_user = !url.username().is_empty() || url.password().is_some();
    match url.scheme() {
        "http" | "https" if is_plain && !has_user => Ok(url),
        "http" | "https" => Err("only scheme, host, port and path may stand here".to_owned()),
        _ => Err(wrong.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_have_a_name_and_a_value() {
        let var =
            |name: &str, value: &str| Ok(EnvVar { name: name.to_owned(), value: value.to_owned() });
        assert_eq!(env_var("A=b"), var("A", "b"));
        assert_eq!(env_var("A="), var("A", ""));
        assert_eq!(env_var("A=b=c d"), var("A", "b=c d"));
        assert!(env_var("A").is_err());
        assert!(env_var("=b").is_err());

        let vars = ["A=1", "B=2", "A=3"].map(|text| env_var(text).unwrap());
        let expected = [("A", "3"), ("B", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(environment(vars.to_vec()), BTreeMap::from(expected));
    }

    #[test]
    fn an_address_has_a_port() {
        assert!(address("127.0.0.1:0").is_ok() && address("[::1]:80").is_ok());
        for wrong in ["8080", ":8080", "localhost:8080", "127.0.0.1"] {
            assert!(address(wrong).unwrap_err().contains("such as 127.0.0.1:8080"), "{wrong}");
        }
    }

    #[test]
    fn job_ids_cannot_leave_their_place_in_a_path() {
        assert!(job_id("sync-0198c0de-0001").is_ok());
        for wrong in ["", ".", "..", "a/b", "a?b", "a b", "é", &"x".repeat(129)] {
            assert!(job_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_host_is_named_by_a_plain_url() {
        assert!(host_url("http://127.0.0.1:8080").is_ok());
        assert!(host_url("https://example.com/mill/").is_ok());
        for (of_api, host) in [
            ("http://h:8080/v2", "http://h:8080/"),
            ("http://h:8080/sdk/v2/", "http://h:8080/"),
            ("https://example.com/mill/v2/", "https://example.com/mill"),
            ("http://h:8080/v1", "http://h:8080/"),
            ("http://h:8080/console/", "http://h:8080/"),
            ("https://example.com/v2x", "https://example.com/v2x"),
        ] {
            assert_eq!(host_url(of_api).unwrap().as_str(), host);
        }
        let wrong = [
            "",
            "127.0.0.1:8080",
            "localhost:8080",
            "ftp://h",
            "http://",
            "http://h?x=1",
            "http://u:p@h",
        ];
        for wrong in wrong {
            assert!(host_url(wrong).is_err(), "{wrong}");
        }
        for wrong in ["127.0.0.1:8080", "localhost:8080", "example.com"] {
            let said = host_url(wrong).unwrap_err();
            assert_eq!(said, "write a URL with its scheme, such as http://127.0.0.1:8080");
        }
    }

    #[test]
    fn a_wrong_number_shows_what_is_allowed() {
        let bounds = Bounds { min: 1, default: 2, max: 300 };
        assert_eq!(bounded::<u32>(bounds)("300"), Ok(300));
        for wrong in ["0", "301", "-1", "1s", "", "1.5"] {
            let said = bounded::<u32>(bounds)(wrong).unwrap_err().to_string();
            assert_eq!(said, "write a whole number from 1 to 300, without a unit", "{wrong}");
        }
        assert!(bounded::<u8>(bounds)("300").is_err(), "it does not fit");
    }
}
