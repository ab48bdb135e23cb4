#![doc = include_str!("../README.md")]

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
mod call;
mod context;
mod error;
mod handler;
// The platform for a component; in a native build, a fake that tests can set up and read.
#[cfg_attr(target_arch = "wasm32", path = "host/component.rs")]
#[cfg_attr(not(target_arch = "wasm32"), path = "host/fake.rs")]
mod host;
pub mod http;
#[cfg(all(target_arch = "wasm32", any(feature = "log", feature = "tracing")))]
mod logging;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use call::{CallError, FailedJob};
pub use context::{Context, Level, S3Config};
pub use error::{EmitError, Error, Failure};
pub use handler::{Handler, RawJson};
/// JSON text that stays unchanged: use `Box<RawValue>` for a field that the handler passes on
/// without reading it, so that integers above 2^53, decimals and the order of keys survive.
///
/// ```
/// use gristmill_sdk::{Context, Error, RawValue, testing::TestContext};
///
/// #[derive(serde::Deserialize, serde::Serialize)]
/// struct Envelope {
///     payload: Box<RawValue>,
/// }
///
/// fn forward(_ctx: &Context, input: Envelope) -> Result<Envelope, Error> {
///     Ok(input)
/// }
///
/// let text = r#"{"payload":{"z":9007199254740993,"a":1.10}}"#;
/// assert_eq!(TestContext::new().run_json(forward, text).unwrap(), text);
/// ```
pub use serde_json::value::RawValue;

/// The examples of the guide, which are tests of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guides/handlers-rust.md")]
mod guide {}

/// The expansion of [`handler!`]. Only the macro may use it, and it may change at any time.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod __macro {
    pub use crate::bindings::handler::exports::gristmill::handler::run::{Error, Guest, Job};
    pub use crate::bindings::with_init::exports::gristmill::handler::lifecycle::Guest as InitGuest;
    pub use crate::host::{handle, init};
}
