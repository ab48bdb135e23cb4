//! The sink of a local run's chunks, progress and log: the terminal, at once; with `--json` the
//! chunks are kept for the document.

use std::sync::OnceLock;

use async_trait::async_trait;
use gristmill_commands::output;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{AttemptSink, HandlerHost, LogLevel, SinkClosed, StackCall};
use parking_lot::Mutex;

use super::stack::describe_stack;

/// Prints the side output of a handler.
#[derive(Debug, Default)]
pub(crate) struct TerminalSink {
    /// The first failure to write a chunk; after it no chunk is accepted.
    failure: OnceLock<anyhow::Error>,
    /// The chunks, if they are not printed.
    kept: Option<Mutex<Vec<Chunk>>>,
    /// The handler's stack, if it trapped.
    stack: OnceLock<Vec<StackCall>>,
}

impl TerminalSink {
    /// A sink that keeps the chunks instead of printing them.
    pub(crate) fn keeping() -> Self {
        Self { kept: Some(Mutex::default()), ..Self::default() }
    }

    /// The chunks that were kept.
    pub(crate) fn kept(&self) -> Vec<Chunk> {
        self.kept.as_ref().map(|kept| std::mem::take(&mut *kept.lock())).unwrap_or_default()
    }

    /// The handler's stack, if it trapped.
    pub(crate) fn stack(&self) -> &[StackCall] {
        self.stack.get().map_or(&[], Vec::as_slice)
    }

    /// Whether every chunk was written.
    ///
    /// # Errors
    /// The failure to write one.
    pub(crate) fn written(&self) -> anyhow::Result<()> {
        match self.failure.get() {
            Some(error) if output::is_broken_pipe(error) => {
                Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into())
            }
            Some(error) => anyhow::bail!("cannot write a chunk: {error:#}"),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl AttemptSink for TerminalSink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        if let Some(kept) = &self.kept {
            kept.lock().extend(chunks);
            return Ok(());
        }
        for chunk in chunks {
            if let Err(error) = output::result(output::one_line(chunk.output.as_str())) {
                // An earlier failure is reported instead.
                let _ = self.failure.set(error);
                return Err(SinkClosed);
            }
        }
        Ok(())
    }

    fn progress(&self, value: Json) {
        output::note_labelled("progress", "36", output::one_line(value.as_str()));
    }

    fn log(&self, level: LogLevel, line: &str) {
        let (label, colour) = match level {
            LogLevel::Trace => ("log trace", "2"),
            LogLevel::Debug => ("log debug", "2"),
            LogLevel::Info => ("log info", "32"),
            LogLevel::Warn => ("log warn", "33"),
            LogLevel::Error => ("log error", "31"),
        };
        output::note_labelled(label, colour, line);
    }

    async fn requested(&self, _: RequestEnd, _: u64) {}

    fn trapped(&self, stack: Vec<StackCall>) {
        if self.kept.is_none() {
            describe_stack(&stack).into_iter().for_each(output::note);
        }
        // There is one trap at most.
        let _ = self.stack.set(stack);
    }

    fn host(&self) -> Option<&dyn HandlerHost> {
        None
    }
}
