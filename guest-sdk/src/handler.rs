//! Turns a plain function into a component's export.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Context, Error};

/// A function that can be a handler. Implemented for
///
/// - `fn(&Context, I) -> Result<O, Error>`, with `I: Deserialize` and `O: Serialize`: the SDK reads
///   the input and writes the output. `()` as output is JSON `null`.
/// - `fn(&Context, RawJson) -> Result<RawJson, Error>`: JSON text in, JSON text out, without
///   parsing.
///
/// `Shape` distinguishes the two and is always inferred. There is nothing to implement by hand.
///
/// ```
/// use gristmill_sdk::{Context, Error, Handler, testing::TestContext};
///
/// fn length(_ctx: &Context, input: String) -> Result<usize, Error> {
///     Ok(input.len())
/// }
///
/// assert_eq!(length.handle(&TestContext::new(), r#""four""#.to_owned()).unwrap(), "4");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler",
    note = "a handler is `fn(&Context, I) -> Result<O, Error>` with `I: Deserialize`, `O: Serialize`",
    note = "or `fn(&Context, RawJson) -> Result<RawJson, Error>`"
)]
pub trait Handler<Shape> {
    /// Handles one job: JSON text in, JSON text out.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when `input` is not an `I`, with the path to the offending value;
    /// [`Error::Failed`] when the output has no JSON form; otherwise the function's own error.
    fn handle(&self, ctx: &Context, input: String) -> Result<String, Error>;
}

impl<F, I, O> Handler<(I, O)> for F
where
    F: Fn(&Context, I) -> Result<O, Error>,
    I: DeserializeOwned,
    O: Serialize,
{
    fn handle(&self, ctx: &Context, input: String) -> Result<String, Error> {
        let output = self(ctx, decode(&input)?)?;
        serde_json::to_string(&output)
            .map_err(|error| Error::failed(format_args!("output has no JSON form: {error}")))
    }
}

impl<F> Handler<RawJson> for F
where
    F: Fn(&Context, RawJson) -> Result<RawJson, Error>,
{
    fn handle(&self, ctx: &Context, input: String) -> Result<String, Error> {
        self(ctx, RawJson(input)).map(|output| output.0)
    }
}

/// Deserialises a value; only if that fails, it is parsed again to find the path of the fault.
fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        let reader = &mut serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize::<_, T>(reader) {
            Err(error_with_path) => Error::invalid_input(error_with_path),
            Ok(_) => Error::invalid_input(error),
        }
    })
}

/// A whole input or output as JSON text, for a handler that does not read the text, or that has its
/// own parser. The SDK neither copies nor checks the input, since the host passes only JSON. If the
/// output is not JSON, the host fails the job.
///
/// It does not implement `Deserialize` or `Serialize`: for a field use `Box<RawValue>`.
///
/// ```
/// use gristmill_sdk::{Context, Error, RawJson};
///
/// fn echo(_ctx: &Context, input: RawJson) -> Result<RawJson, Error> {
///     Ok(input)
/// }
/// gristmill_sdk::handler!(echo);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawJson(String);

impl RawJson {
    /// Wraps text, which must be one JSON value; this is not checked.
    ///
    /// ```
    /// # use gristmill_sdk::RawJson;
    /// assert_eq!(RawJson::new("[1,2]").as_str(), "[1,2]");
    /// ```
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    ///
    /// ```
    /// # use gristmill_sdk::RawJson;
    /// assert_eq!(RawJson::new("null").as_str(), "null");
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, without a copy.
    ///
    /// ```
    /// # use gristmill_sdk::RawJson;
    /// assert_eq!(RawJson::new("true").into_string(), "true");
    /// ```
    pub fn into_string(self) -> String {
        self.0
    }
}

/// Makes a function the handler of this component. Use it once, in a crate of type `cdylib`.
///
/// The function has one of the forms that [`Handler`] lists. In a native build the macro only
/// checks that, so the crate's tests run anywhere.
///
/// ```
/// use gristmill_sdk::{Context, Error, handler};
///
/// #[derive(serde::Deserialize)]
/// struct Input {
///     text: String,
/// }
///
/// #[derive(serde::Serialize)]
/// struct Output {
///     words: usize,
/// }
///
/// fn count(_ctx: &Context, input: Input) -> Result<Output, Error> {
///     Ok(Output { words: input.text.split_whitespace().count() })
/// }
///
/// handler!(count);
/// ```
///
/// A handler with a costly start does that work in `init`, a `fn() -> Result<(), Error>`. It is
/// called once in each instance, before the first job, or already when the component is built
/// (`gristmill build --preinit`). On an endpoint with `reuse`, the following jobs of the instance
/// find its results.
///
/// ```
/// use std::sync::OnceLock;
/// use gristmill_sdk::{Context, Error, handler};
///
/// static SQUARES: OnceLock<Vec<u64>> = OnceLock::new();
///
/// fn build_squares() -> Result<(), Error> {
///     SQUARES.get_or_init(|| (0..1_000).map(|n| n * n).collect());
///     Ok(())
/// }
///
/// fn square(_ctx: &Context, n: usize) -> Result<Option<u64>, Error> {
///     Ok(SQUARES.get().and_then(|squares| squares.get(n)).copied())
/// }
///
/// handler!(square, init = build_squares);
/// ```
///
/// Anything else does not compile:
///
/// ```compile_fail
/// fn count(text: &str) -> usize {
///     text.len()
/// }
/// gristmill_sdk::handler!(count);
/// ```
#[macro_export]
macro_rules! handler {
    ($function:path, init = $init:path $(,)?) => {
        $crate::handler!($function);

        const _: fn() -> ::core::result::Result<(), $crate::Error> = $init;

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            impl $crate::__macro::InitGuest for Component {
                fn init() -> ::core::result::Result<(), ::std::string::String> {
                    $crate::__macro::init($init)
                }
            }

            $crate::bindings::with_init::export_init!(
                Component with_types_in $crate::bindings::with_init
            );
        };
    };
    ($function:path $(,)?) => {
        const _: fn(
            &$crate::Context,
            ::std::string::String,
        ) -> ::core::result::Result<::std::string::String, $crate::Error> =
            |ctx, input| $crate::Handler::handle(&$function, ctx, input);

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Component;

            impl $crate::__macro::Guest for Component {
                fn handle(
                    job: $crate::__macro::Job,
                ) -> ::core::result::Result<::std::string::String, $crate::__macro::Error> {
                    $crate::__macro::handle(&$function, job)
                }
            }

            $crate::bindings::handler::export_component!(
                Component with_types_in $crate::bindings::handler
            );
        };
    };
}

#[cfg(test)]
#[path = "handler_tests.rs"]
mod tests;
