//! `endpoints`: jobs for other endpoints. This module checks the input as the host checks a
//! client's, and bounds the calls of an attempt; the sink decides about the rest.

use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::{Json, check_input};
use gristmill_core::limits::{HANDLER_CALLS_MAX, RUN_BODY_BYTES_MAX};
use gristmill_core::runtime::HandlerHost;

use crate::bindings::gristmill::handler::endpoints::{CallError as WitCallError, FailedJob, Host};
use crate::sandbox::state::State;

impl Host for State {
    async fn submit(
        &mut self,
        endpoint: String,
        input: String,
        idempotency_key: Option<String>,
    ) -> Result<String, WitCallError> {
        let call = self.counted(endpoint, input, idempotency_key).map_err(lower)?;
        let id = self.endpoints().map_err(lower)?.submit(call).await.map_err(lower)?;
        Ok(id.to_string())
    }

    async fn call(
        &mut self,
        endpoint: String,
        input: String,
        idempotency_key: Option<String>,
    ) -> Result<String, WitCallError> {
        let call = self.counted(endpoint, input, idempotency_key).map_err(lower)?;
        let output = self.endpoints().map_err(lower)?.call(call).await.map_err(lower)?;
        Ok(output.as_str().to_owned())
    }
}

impl State {
    fn endpoints(&self) -> Result<&dyn HandlerHost, CallError> {
        const NO_HOST: &str = "this handler runs without a host, so that there are no other endpoints to call; \
                               deploy it, or answer the call in a native test with `TestContext`";
        self.sink.host().ok_or_else(|| CallError::Denied(NO_HOST.to_owned()))
    }

    /// The call, if its input may be submitted and the attempt may make another call.
    fn counted(
        &mut self,
        endpoint: String,
        input: String,
        idempotency_key: Option<String>,
    ) -> Result<HandlerCall, CallError> {
        if self.calls >= HANDLER_CALLS_MAX {
            return Err(CallError::LimitReached(format!(
                "this attempt has submitted {HANDLER_CALLS_MAX} jobs, the most allowed"
            )));
        }
        self.calls += 1;
        Ok(HandlerCall { endpoint, input: checked(input)?, idempotency_key, job: None })
    }
}

fn checked(input: String) -> Result<Json, CallError> {
    let refused = |why: String| Err(CallError::InvalidRequest(why));
    let bytes = input.len();
    if bytes > RUN_BODY_BYTES_MAX {
        return refused(format!("the input has {bytes} bytes, limit: {RUN_BODY_BYTES_MAX} bytes"));
    }
    let input = match Json::parse(input) {
        Ok(input) => input,
        Err(error) => return refused(format!("the input is not JSON: {error}")),
    };
    match check_input(input.as_str()) {
        Ok(()) => Ok(input),
        Err(error) => refused(format!("the input {error}")),
    }
}

fn lower(error: CallError) -> WitCallError {
    match error {
        CallError::Denied(why) => WitCallError::Denied(why),
        CallError::InvalidRequest(why) => WitCallError::InvalidRequest(why),
        CallError::LimitReached(why) => WitCallError::LimitReached(why),
        CallError::Failed { id, status, error } => WitCallError::Failed(FailedJob {
            id: id.to_string(),
            status: status.as_str().to_owned(),
            error,
        }),
        CallError::Timeout(why) => WitCallError::Timeout(why),
        CallError::Other(why) => WitCallError::Other(why),
    }
}
