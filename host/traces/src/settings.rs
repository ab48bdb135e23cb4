//! The settings of the export, from the standard environment variables of OpenTelemetry.
//!
//! Source: <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

use std::fs;
use std::time::Duration;

use gristmill_core::trace::Sampler;
use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Url};

/// How to export traces.
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// Which traces are recorded.
    pub sampler: Sampler,
    pub(crate) url: Url,
    /// Marked as sensitive, so that no log shows their values.
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) authorities: Option<Vec<Certificate>>,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) queue_spans: usize,
    pub(crate) batch_spans: usize,
    pub(crate) delay: Duration,
    /// Whether batches are sent as gzip.
    pub(crate) is_gzip: bool,
}

/// A variable has a value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSetting(String);

impl TraceSettings {
    /// Reads the variables. `None` without an endpoint variable, or when the export is switched
    /// off.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the variable and what is allowed. It never shows a header.
    pub fn from_env(read: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, InvalidSetting> {
        Variables { read }.settings()
    }
}

struct Variables<R> {
    read: R,
}

impl<R: Fn(&str) -> Option<String>> Variables<R> {
    /// The standard treats an empty value as none.
    fn get(&self, name: &'static str) -> Option<(&'static str, String)> {
        let value = (self.read)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| (name, value.to_owned()))
    }

    fn either(&self, traces: &'static str, all: &'static str) -> Option<(&'static str, String)> {
        self.get(traces).or_else(|| self.get(all))
    }

    fn settings(&self) -> Result<Option<TraceSettings>, InvalidSetting> {
        if let Some((name, value)) = self.get("OTEL_SDK_DISABLED") {
            match value.to_ascii_lowercase().as_str() {
                "true" => return Ok(None),
                "false" => {}
                _ => return Err(wrong(name, &value, "allowed are true and false")),
            }
        }
        if let Some((name, value)) = self.get("OTEL_TRACES_EXPORTER") {
            match value.as_str() {
                "none" => return Ok(None),
                "otlp" => {}
                _ => return Err(wrong(name, &value, "allowed are otlp and none")),
            }
        }
        let Some(url) = self.url()? else { return Ok(None) };
        self.check_protocol()?;
        let queue_spans = self.number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048, 1, 1_000_000)?;
        let batch_spans = self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1, 10_000)?;
        let delay = self.number("OTEL_BSP_SCHEDULE_DELAY", 5_000, 1, 600_000)?;
        let timeout = match self.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") {
            Some((name, _)) => name,
            None => "OTEL_EXPORTER_OTLP_TIMEOUT",
        };
        Ok(Some(TraceSettings {
            sampler: self.sampler()?,
            url,
            headers: self.headers()?,
            timeout: Duration::from_millis(self.number(timeout, 10_000, 1, 600_000)?),
            authorities: self.authorities()?,
            resource: self.resource()?,
            queue_spans: usize::try_from(queue_spans).unwrap_or(usize::MAX),
            batch_spans: usize::try_from(batch_spans.min(queue_spans)).unwrap_or(usize::MAX),
            delay: Duration::from_millis(delay),
            is_gzip: self.is_gzip()?,
        }))
    }

    fn url(&self) -> Result<Option<Url>, InvalidSetting> {
        let traces = self.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let is_whole = traces.is_some();
        let Some((name, value)) = traces.or_else(|| self.get("OTEL_EXPORTER_OTLP_ENDPOINT")) else {
            return Ok(None);
        };
        if value.contains('@') {
            let reason = "has a user name or password, which this host does not send: use OTEL_EXPORTER_OTLP_HEADERS";
            return Err(InvalidSetting(format!("{name} {reason}")));
        }
        let allowed = "allowed is a URL such as http://localhost:4318";
        let mut url = Url::parse(&value).map_err(|_| wrong(name, &value, allowed))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(wrong(name, &value, allowed));
        }
        if !is_whole {
            let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        Ok(Some(url))
    }

    fn check_protocol(&self) -> Result<(), InvalidSetting> {
        let protocol =
            self.either("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL");
        match protocol.filter(|(_, value)| value != "http/protobuf") {
            Some((name, value)) => Err(wrong(name, &value, "this host has only http/protobuf")),
            None => Ok(()),
        }
    }

    fn is_gzip(&self) -> Result<bool, InvalidSetting> {
        let compression =
            self.either("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION");
        let Some((name, value)) = compression else { return Ok(false) };
        match value.as_str() {
            "gzip" => Ok(true),
            "none" => Ok(false),
            _ => Err(wrong(name, &value, "allowed are gzip and none")),
        }
    }

    fn number(
        &self,
        name: &'static str,
        default: u64,
        min: u64,
        max: u64,
    ) -> Result<u64, InvalidSetting> {
        let Some((_, value)) = self.get(name) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| (min..=max).contains(number));
        let allowed = format!("allowed are whole numbers from {min} to {max}");
        number.ok_or_else(|| wrong(name, &value, &allowed))
    }

    fn sampler(&self) -> Result<Sampler, InvalidSetting> {
        let Some((name, value)) = self.get("OTEL_TRACES_SAMPLER") else {
            return Ok(Sampler { follows_parent: true, ratio: 1.0 });
        };
        let (follows_parent, kind) = match value.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, value.as_str()),
        };
        let ratio = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio()?,
            _ => {
                let allowed = "allowed are always_on, always_off and traceidratio, each also with parentbased_ before it";
                return Err(wrong(name, &value, allowed));
            }
        };
        Ok(Sampler { follows_parent, ratio })
    }

    fn ratio(&self) -> Result<f64, InvalidSetting> {
        let Some((name, value)) = self.get("OTEL_TRACES_SAMPLER_ARG") else { return Ok(1.0) };
        let ratio = value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.ok_or_else(|| wrong(name, &value, "allowed are numbers from 0 to 1"))
    }

    fn headers(&self) -> Result<HeaderMap, InvalidSetting> {
        let found = self.either("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let Some((name, text)) = found else { return Ok(HeaderMap::new()) };
        let headers = pairs(&text).and_then(|pairs| {
            let header = |(key, value): (String, String)| {
                let mut value = HeaderValue::from_str(&value).ok()?;
                value.set_sensitive(true);
                Some((HeaderName::try_from(key).ok()?, value))
            };
            pairs.into_iter().map(header).collect()
        });
        let allowed = "has a value that is no list of headers: allowed is name=value,name=value with percent-encoded values";
        headers.ok_or_else(|| InvalidSetting(format!("{name} {allowed}")))
    }

    fn authorities(&self) -> Result<Option<Vec<Certificate>>, InvalidSetting> {
        let found =
            self.either("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE");
        let Some((name, path)) = found else { return Ok(None) };
        let pem = fs::read(&path)
            .map_err(|error| wrong(name, &path, &format!("the file cannot be read: {error}")))?;
        let found = Certificate::from_pem_bundle(&pem).ok().filter(|found| !found.is_empty());
        let allowed = "allowed is a file with certificates in PEM";
        found.map(Some).ok_or_else(|| wrong(name, &path, allowed))
    }

    fn resource(&self) -> Result<Vec<(String, String)>, InvalidSetting> {
        let mut resource = vec![
            ("service.name".to_owned(), "gristmill".to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id".to_owned(), uuid::Uuid::now_v7().to_string()),
        ];
        if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
            resource.push(("host.name".to_owned(), name.trim().to_owned()));
        }
        let mut set = |key: String, value: String| {
            resource.retain(|(other, _)| *other != key);
            resource.push((key, value));
        };
        if let Some((name, text)) = self.get("OTEL_RESOURCE_ATTRIBUTES") {
            let allowed = "allowed is name=value,name=value with percent-encoded values";
            for (key, value) in pairs(&text).ok_or_else(|| wrong(name, &text, allowed))? {
                set(key, value);
            }
        }
        if let Some((_, value)) = self.get("OTEL_SERVICE_NAME") {
            set("service.name".to_owned(), value);
        }
        Ok(resource)
    }
}

/// A list such as `a=1,b=two%20words`.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| {
        let (key, value) = entry.split_once('=')?;
        let decoded =
            |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
        Some((decoded(key).filter(|key| !key.is_empty())?, decoded(value)?))
    };
    entries.map(pair).collect()
}

fn wrong(name: &str, value: &str, allowed: &str) -> InvalidSetting {
    InvalidSetting(format!("{name} is {value:?}: {allowed}"))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
