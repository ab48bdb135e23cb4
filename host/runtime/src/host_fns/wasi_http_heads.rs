//! Functions of `wasi:http` with which a handler makes the host keep something: texts of any length
//! have a bound, and the sandbox is charged for requests and fields before there are more of them.
//!
//! **Cost.** A look at the handles of the instance, 1,024 at most, for each request and each list
//! of fields that it makes: 5 µs at most.

use std::any::Any;

use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, Resource, ResourceTable};
use wasmtime_wasi_http::p2::bindings::http::types::{
    HeaderError, Host as _, HostFields, HostOutgoingRequest, HostOutgoingResponse, Method,
    OutgoingRequest as WasiRequest, OutgoingResponse as WasiResponse,
};
use wasmtime_wasi_http::{FieldMap, WasiHttpView as _};

use crate::egress::{HTTP_HEAD_BYTES_MAX, WRITE_BYTES_MAX};
use crate::sandbox::state::State;

/// What a list of fields takes at most.
const FIELDS_BYTES: u64 = HTTP_HEAD_BYTES_MAX as u64;

/// What a request takes at most: its method, authority, path, fields and trailers, a piece of its
/// body in the queue, and one that is being written.
const REQUEST_BYTES: u64 = 5 * FIELDS_BYTES + 2 * WRITE_BYTES_MAX as u64;

/// What an answer takes at most: its fields and trailers, and two pieces of its body.
const ANSWER_BYTES: u64 = 2 * FIELDS_BYTES + 2 * WRITE_BYTES_MAX as u64;

/// Bounds the memory of requests that are not sent yet, and charges it. Wasmtime bounds their
/// fields; method and authority may have any length that one call can pass, and a handler may keep
/// a thousand requests.
///
/// # Errors
/// When the linker refuses one of the functions.
pub(crate) fn bound_heads(types: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    bound_texts(types)?;
    charge_handles(types)
}

fn bound_texts(types: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    type Answer = (Result<(), ()>,);
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
    Ok(())
}

fn charge_handles(types: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    types.func_wrap_async(
        "[constructor]outgoing-request",
        |mut store: StoreContextMut<'_, State>, (fields,): (Resource<FieldMap>,)| {
            Box::new(async move {
                charge(store.data_mut(), REQUEST_BYTES).await?;
                Ok((HostOutgoingRequest::new(&mut store.data_mut().http(), fields)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[constructor]outgoing-response",
        |mut store: StoreContextMut<'_, State>, (fields,): (Resource<FieldMap>,)| {
            Box::new(async move {
                charge(store.data_mut(), ANSWER_BYTES).await?;
                Ok((HostOutgoingResponse::new(&mut store.data_mut().http(), fields)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[constructor]fields",
        |mut store: StoreContextMut<'_, State>, (): ()| {
            Box::new(async move {
                charge(store.data_mut(), FIELDS_BYTES).await?;
                Ok((HostFields::new(&mut store.data_mut().http())?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[static]fields.from-list",
        |mut store: StoreContextMut<'_, State>, (list,): (Vec<(String, Vec<u8>)>,)| {
            Box::new(async move {
                charge(store.data_mut(), FIELDS_BYTES).await?;
                let mut http = store.data_mut().http();
                let made: Result<Resource<FieldMap>, HeaderError> = match http.from_list(list) {
                    Ok(fields) => Ok(fields),
                    Err(error) => Err(http.convert_header_error(error)?),
                };
                Ok((made,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]fields.clone",
        |mut store: StoreContextMut<'_, State>, (fields,): (Resource<FieldMap>,)| {
            Box::new(async move {
                charge(store.data_mut(), FIELDS_BYTES).await?;
                Ok((HostFields::clone(&mut store.data_mut().http(), fields)?,))
            })
        },
    )
}

/// Charges the instance for the requests and fields that it holds, and for `more`.
async fn charge(state: &mut State, more: u64) -> wasmtime::Result<()> {
    let now = held(&mut state.table) + more;
    let before = std::mem::replace(&mut state.http_bytes, now);
    match now.checked_sub(before) {
        Some(more) => state.charge_more(more).await,
        None => {
            state.charge.subtract(before - now);
            Ok(())
        }
    }
}

/// What the requests and fields among the handles take at most.
fn held(handles: &mut ResourceTable) -> u64 {
    let bytes = |handle: &mut (dyn Any + Send)| match () {
        () if handle.is::<FieldMap>() => FIELDS_BYTES,
        () if handle.is::<WasiRequest>() => REQUEST_BYTES,
        () if handle.is::<WasiResponse>() => ANSWER_BYTES,
        () => 0,
    };
    handles.iter_mut().map(bytes).sum()
}
