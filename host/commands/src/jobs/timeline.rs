//! `gristmill timeline`: what happened to a job, and when.

use std::process::ExitCode;

use gristmill_client::wire::JobStatus;
use gristmill_client::wire::queue::{JobUsage, QueueCause, Timeline, TimelineEvent};

use super::job::JobArgs;
use crate::output;

pub(crate) async fn timeline(args: JobArgs) -> anyhow::Result<ExitCode> {
    let answer = args.call.connection.client()?.timeline(&args.endpoint, &args.job).await?;
    if args.call.json {
        output::result(answer.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Timeline { events, attempts_omitted, usage, .. } = answer.read()?;
    for line in table(&events) {
        output::result(line)?;
    }
    if attempts_omitted > 0 {
        output::note(format_args!("{attempts_omitted} earlier attempts are not known any more"));
    }
    if let Some(usage) = usage {
        output::note(usage_line(&usage));
    }
    Ok(ExitCode::SUCCESS)
}

/// The usage of the job, on one line.
fn usage_line(usage: &JobUsage) -> String {
    let JobUsage { attempts, time_billed_ms, cpu_ms, fuel, memory_bytes_peak, .. } = usage;
    let attempts =
        if *attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
    format!(
        "usage of {attempts}: ran {time_billed_ms} ms, cpu {cpu_ms:.3} ms, fuel {}, peak memory {}, \
         requests {}, cost {}",
        output::grouped(*fuel),
        output::size(*memory_bytes_peak),
        output::size(usage.egress_bytes),
        usage.amount.as_str(),
    )
}

fn table(events: &[TimelineEvent]) -> Vec<String> {
    let rows = events
        .iter()
        .map(|event| [event.at.clone(), event.event.as_str().to_owned(), details(event)]);
    output::table(["AT", "EVENT", "DETAILS"], rows)
}

/// Why a job was queued, in words.
fn cause(cause: QueueCause) -> &'static str {
    match cause {
        QueueCause::Submitted => "submitted",
        QueueCause::Retried => "queued again by a retry",
        QueueCause::Failed => "may run again from now on",
        QueueCause::Released => "queued again, since the host stopped the attempt",
        QueueCause::NoMemory => "queued again, since the host had no memory for the attempt",
        QueueCause::HostLost => "queued again, since the host ended during the attempt",
    }
}

/// The fields of an event besides its time and its kind.
fn details(event: &TimelineEvent) -> String {
    let parts = [
        event.attempt.map(|attempt| format!("attempt {attempt}")),
        event.worker_id.as_ref().map(|worker| format!("worker {worker}")),
        event.cause.map(cause).map(str::to_owned),
        event.status.map(JobStatus::as_str).map(str::to_owned),
        event.http_status.map(|status| format!("answered {status}")),
        event.error.clone(),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stand_in_columns() {
        let answer = r#"{"id":"a","status":"FAILED","attemptsOmitted":0,"events":[
            {"at":"2026-01-01T00:00:00Z","event":"queued","cause":"submitted"},
            {"at":"2026-01-01T00:00:01Z","event":"started","attempt":1,"workerId":"w"},
            {"at":"2026-01-01T00:00:01Z","event":"failed","attempt":1,"error":"not yet"},
            {"at":"2026-01-01T00:00:02Z","event":"queued","cause":"failed"},
            {"at":"2026-01-01T00:00:02Z","event":"ended","status":"FAILED","error":"no"},
            {"at":"2026-01-01T00:00:03Z","event":"webhookSent","attempt":1,"httpStatus":500},
            {"at":"2026-01-01T00:00:04Z","event":"queued","cause":"hostLost"}]}"#;
        let expected = [
            "AT                    EVENT        DETAILS",
            "2026-01-01T00:00:00Z  queued       submitted",
            "2026-01-01T00:00:01Z  started      attempt 1, worker w",
            "2026-01-01T00:00:01Z  failed       attempt 1, not yet",
            "2026-01-01T00:00:02Z  queued       may run again from now on",
            "2026-01-01T00:00:02Z  ended        FAILED, no",
            "2026-01-01T00:00:03Z  webhookSent  attempt 1, answered 500",
            "2026-01-01T00:00:04Z  queued       queued again, since the host ended during the attempt",
        ];
        let timeline: Timeline = serde_json::from_str(answer).unwrap();
        assert_eq!(table(&timeline.events), expected);
        assert_eq!(timeline.usage, None);
        let usage = r#"{"attempts":2,"timeBilledMs":31,"cpuMs":1.5,"fuel":12345,"memoryBytesPeak":1572864,
            "memoryMibMs":62,"bytesIn":2,"bytesOut":3,"chunks":0,"egressBytes":4,"amount":0.000250}"#;
        let expected = "usage of 2 attempts: ran 31 ms, cpu 1.500 ms, fuel 12 345, peak memory 1.5 MiB, \
                        requests 4 bytes, cost 0.000250";
        assert_eq!(usage_line(&serde_json::from_str(usage).unwrap()), expected);
    }
}
