//! The end of a body that a handler has written: each body that was finished ends with trailers,
//! empty ones if the handler has none. Without this mark nobody could distinguish the finished body
//! from that of a handler which was stopped.

use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::{FieldMap, WasiHttpView as _};

use crate::sandbox::state::State;

/// Gives each finished body its mark.
///
/// # Errors
/// When the linker refuses the function.
pub(crate) fn mark_ends(types: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    type Finished = Result<(), ErrorCode>;
    types.func_wrap(
        "[static]outgoing-body.finish",
        |mut store: StoreContextMut<'_, State>,
         (body, trailers): (Resource<HostOutgoingBody>, Option<Resource<FieldMap>>)|
         -> wasmtime::Result<(Finished,)> {
            let table = store.data_mut().http().table;
            let body = table.delete(body)?;
            let trailers = trailers.map(|trailers| table.delete(trailers)).transpose()?;
            Ok((body.finish(Some(trailers.unwrap_or_default())),))
        },
    )
}
