//! `output`: chunks, progress and other output of a running handler.

use gristmill_core::job::payload::Json;
use gristmill_core::limits::{
    CHUNK_BYTES_MAX, CHUNK_METRICS_BYTES_MAX, EMIT_OVERHEAD_BYTES, EMIT_TOTAL_BYTES_MAX,
    PROGRESS_BYTES_MAX,
};
use gristmill_core::runtime::LogLevel;

use crate::bindings::gristmill::handler::output::{EmitError, Host};
use crate::host_fns::split::split;
use crate::sandbox::state::State;

impl Host for State {
    async fn emit(&mut self, output: String, metrics: Option<String>) -> Result<(), EmitError> {
        let output = Json::parse(output)
            .map_err(|error| EmitError::InvalidJson(format!("output is not JSON: {error}")))?;
        let metrics = metrics.map(parse_metrics).transpose()?;
        let bytes = (output.len() + metrics.as_ref().map_or(0, Json::len)) as u64;
        let total = self.emitted_bytes.saturating_add(bytes + EMIT_OVERHEAD_BYTES);
        if total > EMIT_TOTAL_BYTES_MAX {
            return Err(EmitError::QuotaExceeded(EMIT_TOTAL_BYTES_MAX));
        }
        self.emitted_bytes = total;
        // One by one, so that a large emit waits for room like many small ones.
        for chunk in split(output, metrics, CHUNK_BYTES_MAX) {
            self.sink.emit(vec![chunk]).await.map_err(|_| EmitError::Closed)?;
            self.chunks += 1;
        }
        Ok(())
    }

    fn progress(&mut self, value: String) {
        let bytes = value.len();
        if bytes > PROGRESS_BYTES_MAX {
            let complaint = format!(
                "progress dropped: it has {bytes} bytes, limit: {PROGRESS_BYTES_MAX} bytes"
            );
            return self.log.write(LogLevel::Warn, &complaint);
        }
        match Json::parse(value) {
            Ok(value) => self.sink.progress(value),
            Err(error) => {
                self.log.write(LogLevel::Warn, &format!("progress dropped: not JSON: {error}"));
            }
        }
    }
}

fn parse_metrics(text: String) -> Result<Json, EmitError> {
    let bytes = text.len();
    if bytes > CHUNK_METRICS_BYTES_MAX {
        return Err(EmitError::InvalidJson(format!(
            "metrics have {bytes} bytes, limit: {CHUNK_METRICS_BYTES_MAX} bytes"
        )));
    }
    let metrics = Json::parse(text)
        .map_err(|error| EmitError::InvalidJson(format!("metrics are not JSON: {error}")))?;
    if !metrics.as_str().starts_with('{') {
        return Err(EmitError::InvalidJson("metrics are not a JSON object".to_owned()));
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::egress::Egress;
    use crate::sandbox::deadline::Watch;
    use crate::sandbox::state::Surroundings;
    use crate::testing::{Run, TestRuntime, guest};

    /// A bound on bytes alone would allow billions of chunks.
    #[tokio::test]
    async fn an_emit_counts_more_than_its_bytes() {
        let run = Run::of(&TestRuntime::open().add(guest("unreachable")).await);
        let (_, attempt) = run.attempt().split();
        let watch = Arc::new(Watch::new(attempt.deadline, attempt.stop.clone()));
        let mut state = State::new(attempt, run.sink, watch, Surroundings::alone(Egress::plain()));
        state.emitted_bytes = EMIT_TOTAL_BYTES_MAX - 3 * (1 + EMIT_OVERHEAD_BYTES);
        for _ in 0..3 {
            assert!(state.emit("1".to_owned(), None).await.is_ok());
        }
        let refused = state.emit("1".to_owned(), None).await;
        assert!(
            matches!(refused, Err(EmitError::QuotaExceeded(EMIT_TOTAL_BYTES_MAX))),
            "{refused:?}"
        );
    }
}
