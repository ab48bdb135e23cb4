//! The code of an error with which a body broke off. Wasmtime keeps such an error in the form that
//! its embedder has, and its own function looks for another one, so that no handler could
//! distinguish a timeout from a closed connection.

use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, IoError};
use wasmtime_wasi_http::{Error, WasiHttpView as _};

use crate::sandbox::state::State;

/// Gives the errors of bodies their codes.
///
/// # Errors
/// When the linker refuses the function.
pub(crate) fn name_errors(types: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    types.func_wrap(
        "http-error-code",
        |mut store: StoreContextMut<'_, State>,
         (error,): (Resource<IoError>,)|
         -> wasmtime::Result<(Option<ErrorCode>,)> {
            let error = store.data_mut().http().table.get(&error)?;
            Ok((error.downcast_ref::<Error>().and_then(code),))
        },
    )
}

/// The codes of the errors that bodies of this host have.
fn code(error: &Error) -> Option<ErrorCode> {
    Some(match error {
        Error::ConnectionTerminated => ErrorCode::ConnectionTerminated,
        Error::ConnectionReadTimeout => ErrorCode::ConnectionReadTimeout,
        Error::HttpRequestBodySize(limit) => ErrorCode::HttpRequestBodySize(*limit),
        Error::HttpResponseBodySize(limit) => ErrorCode::HttpResponseBodySize(*limit),
        Error::HttpResponseTimeout => ErrorCode::HttpResponseTimeout,
        Error::InternalError(text) => ErrorCode::InternalError(text.clone()),
        _ => return None,
    })
}
