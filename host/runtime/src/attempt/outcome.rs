//! The end of an attempt in one sentence for its caller.

use gristmill_core::limits::{ERROR_BYTES_MAX, OUTPUT_BYTES_MAX};
use gristmill_core::runtime::{AttemptEnd, AttemptReport, FailureReason};
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::attempt::work::Work;
use crate::bindings::gristmill::handler::types::Failure;
use crate::compile::component::causes;
use crate::disk::Files;
use crate::engine::STACK_BYTES_MAX;
use crate::sandbox::deadline::Halt;
use crate::sandbox::growths::NoMemory;
use crate::sandbox::state::{HANDLES_MAX, HOST_CALL_BYTES_MAX, State};

/// How the call of a handler ended.
#[derive(Debug)]
pub(crate) enum CallEnd<R> {
    /// It returned.
    Returned(R),
    /// It trapped, reached a limit, or exited.
    Trapped(wasmtime::Error),
    /// It was stopped between two turns, or while it waited.
    Halted(Halt),
}

/// Constructors of reports for attempts without usage.
pub(crate) trait ReportExt {
    /// Failed for a reason of the host, with this sentence.
    fn failed(error: String) -> Self;
    /// Ended from outside.
    fn halted(halt: Halt) -> Self;
}

impl<T> ReportExt for AttemptReport<T> {
    fn failed(error: String) -> Self {
        AttemptEnd::Failed { reason: FailureReason::Host, error }.into()
    }

    fn halted(halt: Halt) -> Self {
        halted(halt).into()
    }
}

/// The end of an attempt, from the end of its call.
pub(crate) fn attempt_end<W: Work>(
    end: CallEnd<W::Returned>,
    state: &State,
) -> AttemptEnd<W::Output> {
    match end {
        CallEnd::Halted(halt) => halted(halt),
        CallEnd::Trapped(error)
            if error.is::<NoMemory>() || error.is::<PoolConcurrencyLimitError>() =>
        {
            AttemptEnd::NoMemory
        }
        CallEnd::Trapped(error) => match (error.downcast_ref::<Trap>(), state.watch.halt()) {
            (Some(Trap::Interrupt), Some(halt)) => halted(halt),
            _ if state.watch.is_stopping() => AttemptEnd::Stopped,
            _ => failed(trapped(&error, state)),
        },
        CallEnd::Returned(returned) => W::end(returned, state),
    }
}

/// A reason with its sentence.
pub(crate) type Cause = (FailureReason, String);

/// The cause of a failure that the handler has reported.
pub(crate) fn reported(failure: Failure, state: &State) -> Cause {
    // A handler that caught a failed allocation does not know the cause; nor does a handler whose
    // write failed, since its C library hides the reason.
    match memory_limit(state).or_else(|| space_limit(state)) {
        Some((reason, limit)) => (reason, format!("{} ({limit})", sentence(failure))),
        None => (FailureReason::Handler, sentence(failure)),
    }
}

/// The message that the memory limit was exceeded, if the handler's last allocation was refused.
fn memory_limit(state: &State) -> Option<Cause> {
    let limiter = &state.limiter;
    let size = Size(limiter.memory_bytes_max());
    let error = || format!("memory limit of {size} exceeded");
    limiter.hit_memory_limit().then(|| (FailureReason::MemoryLimit, error()))
}

/// The message that there was no space, if a write of the handler failed for that reason.
fn space_limit(state: &State) -> Option<Cause> {
    let was_full = state.files.as_ref().is_some_and(Files::was_full);
    let error = || "a file could not grow: no space left on device".to_owned();
    was_full.then(|| (FailureReason::NoSpace, error()))
}

fn halted<T>(halt: Halt) -> AttemptEnd<T> {
    match halt {
        Halt::Deadline => AttemptEnd::DeadlineReached,
        Halt::Stopped => AttemptEnd::Stopped,
    }
}

pub(crate) fn failed<T>((reason, mut error): Cause) -> AttemptEnd<T> {
    error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    AttemptEnd::Failed { reason, error }
}

pub(crate) fn sentence(failure: Failure) -> String {
    match failure.details {
        Some(details) => format!("{} (details: {details})", failure.message),
        None => failure.message,
    }
}

fn trapped(error: &wasmtime::Error, state: &State) -> Cause {
    let trap = |error| (FailureReason::Trap, error);
    if let Some(I32Exit(status)) = error.downcast_ref() {
        // Handlers can report only whether they succeeded: `exit` of WASI 0.2 has no number.
        let how = if *status == 0 { "with success" } else { "with a failure" };
        return memory_limit(state)
            .unwrap_or_else(|| trap(format!("handler exited {how} before returning a result")));
    }
    let location = location(error);
    match error.downcast_ref() {
        Some(Trap::OutOfFuel) => {
            let error = format!("fuel limit of {} exceeded", state.fuel_max());
            (FailureReason::FuelLimit, error)
        }
        Some(Trap::StackOverflow) => {
            let stack = Size(STACK_BYTES_MAX as u64);
            trap(format!("stack overflow: handler used more than {stack} of stack{location}"))
        }
        Some(Trap::UnreachableCodeReached) => memory_limit(state)
            .unwrap_or_else(|| trap(aborted(&state.log.stderr_tail(), &location))),
        Some(wasm) => memory_limit(state).unwrap_or_else(|| {
            let text = wasm.to_string();
            let text = text.strip_prefix("wasm trap: ").unwrap_or(&text);
            trap(format!("handler trapped: {text}{location}"))
        }),
        None => memory_limit(state).unwrap_or_else(|| (FailureReason::Host, host_refused(error))),
    }
}

/// A panic or an abort. The handler's last output on standard error usually has the reason.
fn aborted(stderr: &str, location: &str) -> String {
    match stderr.rfind("panicked at ") {
        Some(at) => {
            let panic = stderr.get(at..).unwrap_or(stderr);
            format!("handler {panic}")
        }
        None if stderr.is_empty() => format!("handler aborted (`unreachable` executed{location})"),
        None => format!("handler aborted: {stderr}"),
    }
}

/// A host function, or the passing of its arguments, ended the call.
fn host_refused(error: &wasmtime::Error) -> String {
    let text = causes(error);
    // Most of these errors' types are private to wasmtime; tests check the texts.
    if matches!(error.downcast_ref(), Some(ResourceTableError::Full))
        || text.contains("store handle limit exceeded")
    {
        return format!("handler holds more than {HANDLES_MAX} handles");
    }
    if text.contains("fuel allocated for hostcalls has been exhausted") {
        let max = Size(HOST_CALL_BYTES_MAX as u64);
        let output = Size(OUTPUT_BYTES_MAX as u64);
        return format!(
            "handler passed more than {max} to the host at once; an output may have {output}"
        );
    }
    format!("handler failed in a host call: {text}")
}

/// The location of a trap, if the component still has readable names.
fn location(error: &wasmtime::Error) -> String {
    const NAME_BYTES_MAX: usize = 80;
    let frame = error.downcast_ref::<WasmBacktrace>().and_then(|trace| trace.frames().first());
    frame
        .and_then(|frame| frame.func_name())
        // Mangled names are not helpful.
        .filter(|name| name.len() <= NAME_BYTES_MAX && !name.starts_with('_'))
        .map(|name| format!(", in `{name}`"))
        .unwrap_or_default()
}

/// A size in readable form.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MIB: u64 = 1 << 20;
        if self.0.is_multiple_of(MIB) {
            write!(f, "{} MiB", self.0 / MIB)
        } else {
            write!(f, "{} bytes", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_message() {
        let stderr = "starting thread 'main' (1) panicked at src/lib.rs:5:9: boom";
        assert_eq!(aborted(stderr, ""), "handler panicked at src/lib.rs:5:9: boom");
        assert_eq!(aborted("assertion failed", ", in `f`"), "handler aborted: assertion failed");
        assert_eq!(aborted("", ", in `f`"), "handler aborted (`unreachable` executed, in `f`)");
    }

    #[test]
    fn details_follow_the_message_and_long_errors_are_cut() {
        let details = Some("{\"a\":1}".to_owned());
        let failure = Failure { message: "no flour".to_owned(), details };
        assert_eq!(sentence(failure), "no flour (details: {\"a\":1})");
        let long = (FailureReason::Handler, "é".repeat(ERROR_BYTES_MAX));
        let AttemptEnd::Failed { error, .. } = failed::<()>(long) else { panic!() };
        assert_eq!(error.len(), ERROR_BYTES_MAX);
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(Size(256 << 20).to_string(), "256 MiB");
        assert_eq!(Size(65_537).to_string(), "65537 bytes");
    }
}
