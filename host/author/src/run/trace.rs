//! `run --trace`: each call of the handler to the host as one line on standard error, when it
//! returns.
//!
//! The runtime reports its host calls as spans of `tracing`, and so do wasmtime's WASI functions,
//! which leave lists out. `wasi:io/poll` is not shown, since it only shows how a handler waits.

use std::fmt::{self, Write as _};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gristmill_runtime::HOST_CALLS;
use regex::Regex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use gristmill_commands::output;

/// Most shown bytes of a call's arguments, and of its result.
const SHOWN_BYTES_MAX: usize = 200;

/// The targets of WASI's host calls.
const WASI_TARGETS: [&str; 3] = [
    "wasmtime_wasi::p2::bindings",
    "wasmtime_wasi_http::p2::bindings",
    "wasmtime_wasi_io::bindings",
];

/// Shows all host calls of this process from now on.
///
/// # Errors
/// When there is another subscriber already.
pub(super) fn start() -> anyhow::Result<()> {
    let targets = WASI_TARGETS.into_iter().chain([HOST_CALLS]);
    let targets = Targets::new().with_targets(targets.map(|target| (target, LevelFilter::TRACE)));
    let started = tracing_subscriber::registry().with(Tracer.with_filter(targets)).try_init();
    started.context("cannot trace")
}

/// Follows the spans of host calls.
struct Tracer;

/// A host call in progress.
struct Call {
    began: Instant,
    name: String,
    arguments: Shown,
    result: Shown,
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Tracer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        let Some(interface) = interface(metadata.target()) else { return };
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let name = match fields.function {
            Some(function) => format!("{interface}.{}", readable(&function)),
            None => metadata.name().to_owned(),
        };
        let (arguments, result) = (fields.others, Shown::default());
        span.extensions_mut().insert(Call { began: Instant::now(), name, arguments, result });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(call) = span.extensions_mut().get_mut::<Call>() {
            values.record(&mut call.result);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else { return };
        if let Some(call) = span.extensions_mut().get_mut::<Call>() {
            let is_return = event.metadata().fields().field("result").is_some();
            event.record(if is_return { &mut call.result } else { &mut call.arguments });
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(call) = span.extensions_mut().remove::<Call>() {
            output::note_labelled("trace", "35", call.describe(call.began.elapsed()));
        }
    }
}

impl Call {
    fn describe(&self, took: Duration) -> String {
        let (name, arguments, result) = (&self.name, tidy(&self.arguments), tidy(&self.result));
        let took = output::millis(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        match result.as_str() {
            "" | "()" => format!("{name}({arguments}), {took}"),
            _ => format!("{name}({arguments}) = {result}, {took}"),
        }
    }
}

/// The values in WIT's notation: a handle as its number, an omitted list as `…`.
fn tidy(values: &Shown) -> String {
    static HANDLE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"Resource \{ rep: (\d+), state: "[^"]*" \}"#).ok());
    let text = values.to_string().replace("\"...\"", "…").replace("self_: ", "");
    match &*HANDLE {
        Some(handle) => handle.replace_all(&text, "#$1").into_owned(),
        None => text,
    }
}

/// The interface whose bindings have this module path, such as `wasi:cli/environment`; `None` for
/// those that are left out.
fn interface(target: &str) -> Option<String> {
    let mut parts = target.rsplit("::").map(|part| part.replace('_', "-"));
    let (interface, package, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    (interface != "poll").then(|| format!("{namespace}:{package}/{interface}"))
}

/// `[method]descriptor.open-at` as `descriptor.open-at`, `[drop]input-stream` as
/// `input-stream.drop`.
fn readable(function: &str) -> String {
    match function.split_once(']') {
        Some(("[drop", resource)) => format!("{resource}.drop"),
        Some((_, name)) => name.to_owned(),
        None => function.to_owned(),
    }
}

/// The fields of a new span.
#[derive(Default)]
struct Fields {
    function: Option<String>,
    others: Shown,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "function" => self.function = Some(value.to_owned()),
            "module" => {}
            _ => self.others.record_str(field, value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.others.record_debug(field, value);
    }
}

/// The values of fields, cut when they become too long.
#[derive(Default)]
struct Shown {
    text: String,
    is_cut: bool,
}

impl Visit for Shown {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // The name of an event, and not an argument of this name, which has quotes.
        let is_name = || matches!(format!("{value:?}").as_str(), "call" | "return");
        // Reaching the bound ends the writing with an error.
        let _ = match field.name() {
            "message" if is_name() => Ok(()),
            "result" => write!(self, "{value:?}"),
            name if self.text.is_empty() => write!(self, "{name}: {value:?}"),
            name => write!(self, ", {name}: {value:?}"),
        };
    }
}

impl fmt::Write for Shown {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = SHOWN_BYTES_MAX.saturating_sub(self.text.len());
        let fits = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        self.text.push_str(fits);
        self.is_cut |= fits.len() < text.len();
        if self.is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.is_cut { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_named_as_in_wit() {
        let cases = [
            ("gristmill_runtime::bindings::gristmill::handler::output", "gristmill:handler/output"),
            (
                "wasmtime_wasi::p2::bindings::async_io::wasi::clocks::monotonic_clock",
                "wasi:clocks/monotonic-clock",
            ),
        ];
        for (target, expected) in cases {
            assert_eq!(interface(target).as_deref(), Some(expected));
        }
        assert_eq!(interface("wasmtime_wasi::p2::bindings::wasi::io::poll"), None);
        assert_eq!(readable("[method]descriptor.open-at"), "descriptor.open-at");
        assert_eq!(readable("[drop]input-stream"), "input-stream.drop");
        assert_eq!(readable("emit"), "emit");
    }

    #[test]
    fn values_are_tidy() {
        let mut shown = Shown::default();
        shown
            .write_str(r#"self_: Resource { rep: 7, state: "own (not in table)" }, a: "...""#)
            .unwrap();
        assert_eq!(tidy(&shown), "#7, a: …");
    }

    #[test]
    fn long_values_are_shortened() {
        let mut shown = Shown::default();
        assert!(write!(shown, "{:?}", vec![7_u8; 1 << 20]).is_err());
        assert_eq!(shown.to_string().chars().count(), SHOWN_BYTES_MAX + 1);
        assert!(shown.to_string().ends_with('…'));
    }
}
