//! The call of a job's handler: text in, and text or an error out.

use std::time::Instant;

use gristmill_core::job::payload::Json;
use gristmill_core::limits::OUTPUT_BYTES_MAX;
use gristmill_core::runtime::{AttemptEnd, FailureReason};
use wasmtime::Result;

use crate::attempt::instance::Instance;
use crate::attempt::outcome::{failed, reported, sentence};
use crate::attempt::work::Work;
use crate::bindings::exports::gristmill::handler::run::{Error, Job};
use crate::sandbox::state::State;

impl Work for Json {
    type Returned = std::result::Result<String, Error>;
    type Output = Self;

    async fn call(
        self,
        instance: &mut Instance,
        ready: &mut Option<Instant>,
    ) -> Result<Self::Returned> {
        let input_bytes = self.len() as u64;
        instance.charge_start(input_bytes).await?;
        let id = instance.state().attempt.key.job.to_string();
        // The handler gets a text of its own; the host's value ends here.
        let job = Job { id, input: self.as_str().to_owned() };
        drop(self);
        let started = match instance.start().await? {
            Ok(started) => started,
            Err(failure) => return Ok(Err(Error::Failed(failure))),
        };
        let (store, component) = instance.parts();
        let handler = component.job()?.load(&mut *store, &started)?;
        *ready = Some(Instant::now());
        let handled = handler.gristmill_handler_run().call_handle(store, &job).await?;
        instance.returned(started, input_bytes);
        Ok(handled)
    }

    fn end(returned: Self::Returned, state: &State) -> AttemptEnd {
        match returned {
            // Even after a stop: the work is done, and the caller that stopped it decides.
            Ok(output) => output_of(output),
            // An error after a stop is most likely its effect, and irrelevant for the job.
            Err(_) if state.watch.is_stopping() => AttemptEnd::Stopped,
            Err(Error::InvalidInput(failure)) => {
                let error = format!("invalid input: {}", sentence(failure));
                failed((FailureReason::InvalidInput, error))
            }
            Err(Error::Failed(failure)) => failed(reported(failure, state)),
            Err(Error::Cancelled) => {
                let error = "the handler reported a cancellation, but the job was not cancelled";
                failed((FailureReason::Handler, error.to_owned()))
            }
        }
    }
}

fn output_of(output: String) -> AttemptEnd {
    let bytes = output.len();
    let reason = FailureReason::InvalidOutput;
    if bytes > OUTPUT_BYTES_MAX {
        let error = format!("output is {bytes} bytes, limit: {OUTPUT_BYTES_MAX} bytes");
        return failed((reason, error));
    }
    match Json::parse(output) {
        Ok(output) => AttemptEnd::Returned(output),
        Err(error) => failed((reason, format!("handler returned invalid JSON: {error}"))),
    }
}
