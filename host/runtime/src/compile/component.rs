//! The requirements for a component to run here, and the interfaces of this host. A component that
//! does not meet them is refused at the upload, with a sentence that names the fault.

use gristmill_core::catalog::Producers;
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_json_schema::SchemaText;
use serde::{Deserialize, Serialize};
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{
    Component, ComponentExportIndex, Instance, InstancePre, Linker, TypedFunc,
};
use wasmtime::error::Context as _;
use wasmtime::{Engine, Result, Store};
use wasmtime_wasi_http::p2::bindings::ProxyIndices;

use crate::bindings::HandlerIndices;
use crate::compile::input_schema::{SECTION, input_schema};
use crate::compile::items::{Items, count_items};
use crate::compile::producers::producers;
use crate::host_fns::linker::{is_provided, linker};
use crate::sandbox::limiter::{MEMORIES_MAX, TABLES_MAX};
use crate::sandbox::state::State;

/// The export of a handler with an initialisation, which runs once in each instance.
const LIFECYCLE_EXPORT: &str = "gristmill:handler/lifecycle@0.1.0";

/// Number of first bytes that show whether a file may be a component.
pub(crate) const PREAMBLE_BYTES: usize = 8;

/// Most imports, and most exports, of a component: its record keeps their names, and refusals list
/// them. This host provides about thirty in total.
const NAMES_MAX: u32 = 256;

/// Longest of these names, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Most items of a component and all modules in it: functions, globals, types, imports, exports,
/// segments and the like. The host keeps 20 to 70 bytes for each while a component is loaded, also
/// for modules that are never instantiated. Python has 27,000, JavaScript 20,000.
const ITEMS_MAX: u32 = 250_000;

/// Most elements of passive segments of all modules. Each instance of a module has a copy of 16
/// bytes of each: 640 KiB in 40 instances. Compilers write active segments.
const PASSIVE_ELEMENTS_MAX: u32 = 1_000;

/// The imports and exports of an accepted component, as `namespace:package/interface@version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComponentInfo {
    /// Its imports.
    pub(crate) imports: Vec<String>,
    /// Its exports.
    pub(crate) exports: Vec<String>,
    /// The tools that made it.
    pub(crate) producers: Producers,
    /// The schema of its input.
    pub(crate) input_schema: Option<SchemaText>,
}

/// Why bytes are not a component that can run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RejectedComponent {
    /// No bytes.
    #[error("the file is empty")]
    Empty,
    /// Not WebAssembly at all.
    #[error("the file is not WebAssembly: it does not begin with the bytes of a component")]
    NotWasm,
    /// A core module, as `wasm32-unknown-unknown` or `wasm32-wasip1` builds it.
    #[error(
        "the file is a core WebAssembly module, not a component: build it for `wasm32-wasip2`, or \
         wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// A component that is broken, or that uses a feature which is switched off.
    #[error("not a valid component: {0}")]
    Invalid(String),
    /// It imports something that this host does not have.
    #[error("component imports `{0}`, which this host does not provide{remedy}", remedy = remedy(.0))]
    UnknownImport(String),
    /// It imports an interface that this host has with another type, for example of a later
    /// version.
    #[error("component imports `{import}`, which this host provides differently: {difference}")]
    MismatchedImport {
        /// The import.
        import: String,
        /// The difference.
        difference: String,
    },
    /// It is not a handler.
    #[error(
        "component exports neither `gristmill:handler/run@0.1` nor `wasi:http/incoming-handler@0.2`, so it is not a \
         handler; its exports: {0}. `gristmill new` writes a project with a handler"
    )]
    NoHandler(String),
    /// Its handler has another type.
    #[error("component exports `{0}` with another type: {1}")]
    MismatchedHandler(String, String),
    /// Its initialisation has another type.
    #[error(
        "component exports `{LIFECYCLE_EXPORT}`, but its `init` is not `func() -> result<_, string>`"
    )]
    MismatchedInit,
    /// The schema of its input cannot be used.
    #[error("component has an input schema (custom section `{SECTION}`) that cannot be used: {0}")]
    InputSchema(String),
    /// It has more parts than one job may have.
    #[error("component needs {count} {what}, limit: {max}")]
    TooManyParts {
        /// Such as memories or imports.
        what: String,
        /// The number that it needs.
        count: u32,
        /// The bound.
        max: u32,
    },
    /// A sandbox has no room for it.
    #[error("component does not fit into a sandbox: {0}")]
    DoesNotFit(String),
    /// Compiling it exceeded a limit.
    #[error("component could not be compiled within its limits: {0}")]
    TooExpensive(String),
}

/// The remedy for an import of another WASI, as tools of other years write it; empty for others.
fn remedy(import: &str) -> &'static str {
    match import.split_once('@') {
        Some((name, version)) if name.starts_with("wasi:") && version.starts_with("0.3") => {
            ": build it for WASI 0.2"
        }
        Some((name, version)) if name.starts_with("wasi:") && version.contains("-rc-") => {
            ": it is of a draft of WASI 0.2, so build it with newer tools"
        }
        _ => "",
    }
}

/// Checks the first bytes, so that a file that is certainly not a component is refused at no cost.
///
/// # Errors
/// [`RejectedComponent::Empty`], [`RejectedComponent::NotWasm`] and
/// [`RejectedComponent::CoreModule`].
pub(crate) fn check_preamble(bytes: &[u8]) -> Result<(), RejectedComponent> {
    match bytes {
        [] => Err(RejectedComponent::Empty),
        // Magic, then version and layer as 16-bit numbers; layer 1 is a component.
        [0, b'a', b's', b'm', _, _, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', _, _, 0, 0, ..] => Err(RejectedComponent::CoreModule),
        _ => Err(RejectedComponent::NotWasm),
    }
}

/// Compiles a component and checks that it can run here. Takes up to minutes of processor time and
/// hundreds of MiB for an untrusted upload: see `compile`.
///
/// # Errors
/// [`RejectedComponent`] with the first fault.
pub(crate) fn inspect(
    engine: &Engine,
    bytes: &[u8],
) -> Result<(Component, ComponentInfo), RejectedComponent> {
    check_preamble(bytes)?;
    let items = count_items(bytes);
    if let Ok(Items { all, passive_elements }) = items {
        let what = "items (functions, globals, types, imports, exports, segments)";
        check_count(what, u32::try_from(all).unwrap_or(u32::MAX), ITEMS_MAX)?;
        let passive_elements = u32::try_from(passive_elements).unwrap_or(u32::MAX);
        check_count("elements of passive segments", passive_elements, PASSIVE_ELEMENTS_MAX)?;
    }
    let component = Component::from_binary(engine, bytes)
        .map_err(|error| RejectedComponent::Invalid(causes(&error)))?;
    // After the compile, since the compiler's reason is better: it has the name of the fault.
    items.map_err(|error| RejectedComponent::Invalid(error.to_string()))?;
    let input_schema =
        input_schema(bytes).map_err(|error| RejectedComponent::InputSchema(error.to_string()))?;
    let producers = producers(bytes);
    let info = ComponentInfo { producers, input_schema, ..names(engine, &component) };
    check_names(&info)?;
    if let Some(import) = info.imports.iter().find(|import| !is_provided(import)) {
        return Err(RejectedComponent::UnknownImport(import.clone()));
    }
    let Some(resources) = component.resources_required() else {
        // Only a component that imports core modules has none, and those are not provided.
        return Err(RejectedComponent::Invalid("it imports a core module".to_owned()));
    };
    let parts = [
        ("memories", resources.num_memories, MEMORIES_MAX),
        ("tables", resources.num_tables, TABLES_MAX),
    ];
    for (what, count, max) in parts {
        check_count(what, count, max)?;
    }
    let linker = linker(engine).map_err(|error| RejectedComponent::Invalid(causes(&error)))?;
    prepare(&linker, &component, &info)?;
    Ok((component, info))
}

fn check_names(info: &ComponentInfo) -> Result<(), RejectedComponent> {
    for (what, names) in [("imports", &info.imports), ("exports", &info.exports)] {
        check_count(what, u32::try_from(names.len()).unwrap_or(u32::MAX), NAMES_MAX)?;
        if let Some(long) = names.iter().map(String::len).find(|bytes| *bytes > NAME_BYTES_MAX) {
            let sentence =
                format!("a name of its {what} has {long} bytes, limit: {NAME_BYTES_MAX} bytes");
            return Err(RejectedComponent::Invalid(sentence));
        }
    }
    Ok(())
}

pub(crate) fn check_count(what: &str, count: u32, max: u32) -> Result<(), RejectedComponent> {
    if count > max {
        return Err(RejectedComponent::TooManyParts { what: what.to_owned(), count, max });
    }
    Ok(())
}

/// A component that is ready to be instantiated.
pub(crate) struct Prepared {
    pub(crate) pre: InstancePre<State>,
    /// The indices of its exports, of one at least.
    job: Option<HandlerIndices>,
    http: Option<ProxyIndices>,
    /// The index of its initialisation, if it has one.
    pub(crate) init: Option<ComponentExportIndex>,
}

impl Prepared {
    /// Refuses a component without a handler of this kind.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn check(&self, kind: HandlerKind) -> Result<()> {
        match kind {
            HandlerKind::Jobs => self.job().map(|_| ()),
            HandlerKind::Http => self.http().map(|_| ()),
        }
    }

    /// The indices of its handler of jobs.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn job(&self) -> Result<&HandlerIndices> {
        self.job.as_ref().context("the component handles no jobs, only HTTP requests")
    }

    /// The indices of its handler of HTTP.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn http(&self) -> Result<&ProxyIndices> {
        self.http.as_ref().context("the component handles no HTTP requests, only jobs")
    }

    /// A new, initialised instance; or the error of its initialisation.
    ///
    /// # Errors
    /// A trap, a limit or an exit.
    pub(crate) async fn start(
        &self,
        store: &mut Store<State>,
    ) -> Result<std::result::Result<Instance, String>> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let Some(init) = &self.init else { return Ok(Ok(instance)) };
        let init: TypedFunc<(), (std::result::Result<(), String>,)> =
            instance.get_typed_func(&mut *store, init)?;
        let (outcome,) = init.call_async(store, ()).await?;
        Ok(outcome.map(|()| instance))
    }
}

/// Links a component with its imports.
///
/// # Errors
/// [`RejectedComponent`] when the host does not match its imports, which [`inspect`] has ruled out
/// unless the host has changed since.
pub(crate) fn prepare(
    linker: &Linker<State>,
    component: &Component,
    info: &ComponentInfo,
) -> Result<Prepared, RejectedComponent> {
    let pre = linker.instantiate_pre(component).map_err(|error| mismatch(&error, info))?;
    let mismatch = |kind: HandlerKind| {
        move |error: wasmtime::Error| {
            let (interface, _) = kind.export();
            RejectedComponent::MismatchedHandler(interface.to_owned(), causes(&error))
        }
    };
    let is_exported = |kind: HandlerKind| kind.is_among(&info.exports);
    let job = is_exported(HandlerKind::Jobs).then(|| HandlerIndices::new(&pre)).transpose();
    let http = is_exported(HandlerKind::Http).then(|| ProxyIndices::new(&pre)).transpose();
    let job = job.map_err(mismatch(HandlerKind::Jobs))?;
    let http = http.map_err(mismatch(HandlerKind::Http))?;
    if job.is_none() && http.is_none() {
        let exports = match info.exports.as_slice() {
            [] => "none".to_owned(),
            exports => exports.join(", "),
        };
        return Err(RejectedComponent::NoHandler(exports));
    }
    Ok(Prepared { pre, job, http, init: init(component)? })
}

fn init(component: &Component) -> Result<Option<ComponentExportIndex>, RejectedComponent> {
    let Some(lifecycle) = component.get_export_index(None, LIFECYCLE_EXPORT) else {
        return Ok(None);
    };
    let is_init = |function: &types::ComponentFunc| {
        let mut results = function.results();
        let is_outcome = match (results.next(), results.next()) {
            (Some(types::Type::Result(outcome)), None) => {
                outcome.ok().is_none() && outcome.err() == Some(types::Type::String)
            }
            _ => false,
        };
        function.params().len() == 0 && is_outcome
    };
    match component.get_export(Some(&lifecycle), "init") {
        Some((ComponentItem::ComponentFunc(function), init)) if is_init(&function) => {
            Ok(Some(init))
        }
        _ => Err(RejectedComponent::MismatchedInit),
    }
}

/// The names of a component's imports and exports; a compiled component has neither producers nor a
/// schema.
pub(crate) fn names(engine: &Engine, component: &Component) -> ComponentInfo {
    let kind = component.component_type();
    let text = |(name, _): (&str, ComponentItem)| name.to_owned();
    ComponentInfo {
        imports: kind.imports(engine).map(|(name, item)| text((name, item.ty))).collect(),
        exports: kind.exports(engine).map(|(name, item)| text((name, item.ty))).collect(),
        producers: Producers::default(),
        input_schema: None,
    }
}

fn mismatch(error: &wasmtime::Error, info: &ComponentInfo) -> RejectedComponent {
    let text = error.to_string();
    let named = info.imports.iter().find(|import| text.contains(&format!("`{import}`")));
    match named {
        Some(import) => RejectedComponent::MismatchedImport {
            import: import.clone(),
            difference: join_causes(error.chain().skip(1)),
        },
        None => RejectedComponent::Invalid(causes(error)),
    }
}

/// An error and its causes on one line, without backtraces.
pub(crate) fn causes(error: &wasmtime::Error) -> String {
    join_causes(error.chain())
}

fn join_causes<'a>(causes: impl Iterator<Item = &'a (dyn std::error::Error + 'static)>) -> String {
    const TEXT_BYTES_MAX: usize = 500;
    const BACKTRACE: &str = "error while executing at wasm backtrace";
    let texts: Vec<_> = causes
        .map(|cause| cause.to_string().lines().collect::<Vec<_>>().join(" "))
        .filter(|text| !text.is_empty() && !text.starts_with(BACKTRACE))
        .collect();
    let mut text = texts.join(": ");
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use gristmill_core::deploy::endpoint::Metering;

    use super::*;
    use crate::engine::{Kind, compile_engine};

    /// A component that imports nothing but this name, as an instance without members.
    fn importer(name: &str) -> Vec<u8> {
        wat::parse_str(format!("(component (import \"{name}\" (instance)))")).unwrap()
    }

    #[test]
    fn versions_of_one_track_are_provided_and_no_other() {
        let kind = Kind { metering: Metering::Epoch, explains_traps: false };
        let engine = compile_engine(kind).unwrap();
        let refusal = |name: &str| inspect(&engine, &importer(name)).err().unwrap();
        for known in ["wasi:io/poll@0.2.0", "wasi:io/poll@0.2.99", "gristmill:handler/log@0.1.7"] {
            // The only reason for the refusal is that it exports nothing.
            assert!(matches!(refusal(known), RejectedComponent::NoHandler(_)), "{known}");
        }
        for unknown in [
            "wasi:io/poll@0.3.0",
            "wasi:io/poll@0.2.0-rc-1",
            "wasi:io/poll@0.20.0",
            "wasi:io/poll",
            "gristmill:handler/log@0.2.0",
            "gristmill:handler/run@0.1.0",
            "poll",
        ] {
            let expected = RejectedComponent::UnknownImport(unknown.to_owned());
            assert_eq!(refusal(unknown), expected);
        }
    }
}
