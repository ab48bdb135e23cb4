//! Functions of `wasi:http` that take a text of any length, with a bound on it.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView as _;
use wasmtime_wasi_http::p2::bindings::http::types::{
    HostOutgoingRequest as _, Method, OutgoingRequest as WasiRequest,
};

use crate::egress::HTTP_HEAD_BYTES_MAX;
use crate::sandbox::state::State;

/// The linker's name of the interface whose functions are bounded here.
const WASI_HTTP_TYPES: &str = "wasi:http/types@0.2.12";

/// Bounds the memory of requests that are not sent yet. Wasmtime bounds their headers and paths;
/// method and authority may have any length that one call can pass, and a handler may keep a
/// thousand requests.
///
/// # Errors
/// When the linker does not have the interface.
pub(crate) fn bound_heads(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type Answer = (Result<(), ()>,);
    linker.allow_shadowing(true);
    let mut types = linker.instance(WASI_HTTP_TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, State>,
         (request, method): (Resource<WasiRequest>, Method)|
         -> wasmtime::Result<Answer> {
            match &method {
                Method::Other(text) if text.len() > HTTP_HEAD_BYTES_MAX => Ok((Err(()),)),
                _ => Ok((store.data_mut().http().set_method(request, method)?,)),
            }
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, State>,
         (request, authority): (Resource<WasiRequest>, Option<String>)|
         -> wasmtime::Result<Answer> {
            match &authority {
                Some(text) if text.len() > HTTP_HEAD_BYTES_MAX => Ok((Err(()),)),
                _ => Ok((store.data_mut().http().set_authority(request, authority)?,)),
            }
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
