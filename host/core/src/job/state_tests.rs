//! The whole transition table: every (state, event) pair, and the same table in the docs.

use std::fmt::Write as _;

use super::*;

/// The loss of a host; its cause does not matter here.
fn lost(is_last: bool) -> JobEvent {
    JobEvent::HostLost { loss: HostLoss::Crash, is_last }
}

const CURRENT: Claim = Claim(7);
const STALE: Claim = Claim(6);

const STATES: [JobState; 7] = [
    JobState::InQueue,
    JobState::InProgress { claim: CURRENT },
    JobState::Completed,
    JobState::Failed,
    JobState::Cancelled,
    JobState::TimedOut,
    JobState::Removed,
];

/// A match over all variants, which the compiler demands, with the events of each arm: an arm
/// without an event is a syntax error. The arms are in the order of the documented table.
macro_rules! each_variant {
    ($($pattern:pat => [$($event:expr),+]),+ $(,)?) => {{
        let _: fn(JobEvent) = |event| match event { $($pattern => {}),+ };
        vec![$($($event),+),+]
    }};
}

fn events(by: Claim) -> Vec<JobEvent> {
    use JobEvent as On;
    let finished = |verdict| On::Finished { by, verdict };
    each_variant![
        On::Claimed { .. } => [On::Claimed { claim: CURRENT.next() }],
        On::Finished { .. } => [
            finished(Verdict::Completed),
            finished(Verdict::Failed),
            finished(Verdict::TimedOut)
        ],
        On::AttemptFailed { .. } => [On::AttemptFailed { by, run_at: Timestamp::from_millis(5) }],
        On::Released { .. } => [On::Released { by, cause: ReleaseCause::Stopped }],
        On::HostLost { .. } => [lost(false), lost(true)],
        On::CancelRequested => [On::CancelRequested],
        On::RetryRequested => [On::RetryRequested],
        On::Purged => [On::Purged],
        On::TtlElapsed => [On::TtlElapsed],
        On::RetentionElapsed => [On::RetentionElapsed],
    ]
}

/// The table of docs/internals/architecture.md: the pairs that apply, one per line.
fn table() -> String {
    let mut table = String::from("| From | Event | To | Effects |\n|---|---|---|---|\n");
    for state in STATES {
        for event in events(CURRENT) {
            let Ok((next, effects)) = state.apply(event) else { continue };
            let effects: Vec<_> = effects.iter().map(|e| format!("{e:?}")).collect();
            let effects = if effects.is_empty() { "none".into() } else { effects.join(", ") };
            writeln!(
                table,
                "| {} | {} | {} | {effects} |",
                state.name(),
                event.name(),
                next.name()
            )
            .unwrap();
        }
    }
    table
}

#[test]
fn the_documented_table_is_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/architecture.md");
    let docs = std::fs::read_to_string(path).expect("docs/internals/architecture.md can be read");
    let table = table();
    assert!(
        docs.contains(&table),
        "docs/internals/architecture.md must contain this table:\n{table}"
    );
}

#[test]
fn exactly_these_pairs_apply() {
    let applied: Vec<_> = STATES
        .into_iter()
        .flat_map(|state| events(CURRENT).into_iter().map(move |event| (state, event)))
        .filter_map(|(state, event)| {
            let (next, _) = state.apply(event).ok()?;
            Some((state.name(), event.name(), next.name()))
        })
        .collect();
    let finals = ["COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"];
    let mut expected = vec![
        ("IN_QUEUE", "claim", "IN_PROGRESS"),
        ("IN_QUEUE", "cancel", "CANCELLED"),
        ("IN_QUEUE", "purge", "REMOVED"),
        ("IN_QUEUE", "ttl elapsed", "REMOVED"),
        ("IN_PROGRESS", "finish: completed", "COMPLETED"),
        ("IN_PROGRESS", "finish: failed", "FAILED"),
        ("IN_PROGRESS", "finish: timed out", "TIMED_OUT"),
        ("IN_PROGRESS", "finish: failed, again", "IN_QUEUE"),
        ("IN_PROGRESS", "release", "IN_QUEUE"),
        ("IN_PROGRESS", "host lost", "IN_QUEUE"),
        ("IN_PROGRESS", "host lost, last time", "FAILED"),
        ("IN_PROGRESS", "cancel", "CANCELLED"),
        ("IN_PROGRESS", "ttl elapsed", "REMOVED"),
    ];
    for state in finals {
        expected.push((state, "cancel", state));
        if matches!(state, "FAILED" | "TIMED_OUT") {
            expected.push((state, "retry", "IN_QUEUE"));
        }
        expected.push((state, "ttl elapsed", "REMOVED"));
        expected.push((state, "retention elapsed", "REMOVED"));
    }
    assert_eq!(applied, expected);
}

#[test]
fn a_stale_claim_changes_nothing() {
    let running = JobState::InProgress { claim: CURRENT };
    for (event, current) in events(STALE).into_iter().zip(events(CURRENT)) {
        let names_the_claim = event != current;
        if names_the_claim {
            assert_eq!(
                running.apply(event),
                Err(IllegalTransition { state: "IN_PROGRESS", event: event.name() })
            );
        }
    }
}

#[test]
fn effects_agree_with_the_states_they_lead_to() {
    for state in STATES {
        for event in events(CURRENT) {
            let Ok((next, effects)) = state.apply(event) else { continue };
            let moved = next != state;
            let is_final = |s: JobState| s.status().is_some_and(JobStatus::is_final);
            let ended = moved && is_final(next);
            let is_claim = matches!(event, JobEvent::Claimed { .. });
            let is_word_of_attempt = matches!(
                event,
                JobEvent::Finished { .. }
                    | JobEvent::AttemptFailed { .. }
                    | JobEvent::Released { .. }
            );
            let is_loss = matches!(event, JobEvent::HostLost { .. });
            let runs = matches!(state, JobState::InProgress { .. });
            let expected = [
                (Effect::WakeWaiters, moved),
                (Effect::Delete, next == JobState::Removed),
                (Effect::Enqueue, next == JobState::InQueue),
                (Effect::Dequeue, state == JobState::InQueue && !is_claim),
                (Effect::StopAttempt, runs && !is_word_of_attempt && !is_loss),
                (Effect::StartRetention, ended),
                (Effect::SendWebhook, ended),
            ];
            for (effect, is_due) in expected {
                let (from, event) = (state.name(), event.name());
                let verb = if is_due { "needs" } else { "must not have" };
                assert_eq!(
                    effects.contains(&effect),
                    is_due,
                    "the row `{from}`, `{event}` {verb} the effect {effect:?}"
                );
            }
        }
    }
}
