//! A candidate that looks at an active host: silence, frozen hosts, stepped clocks, and outages.

use super::*;

const LOOK: Duration = Duration::from_millis(250);

/// A candidate that looks four times a second.
struct Candidate {
    observation: Option<Observation>,
    now: Instant,
    newest: Newest,
    holder: Option<i32>,
    refuses: bool,
}

impl Candidate {
    fn new() -> Self {
        let address = Some(([127, 0, 0, 1], 1).into());
        let newest = Newest { session: 7, is_alive: true, address, beat: Some(1_000_000) };
        let (now, holder) = (Instant::now(), Some(42));
        Self { observation: None, now, newest, holder, refuses: false }
    }

    fn look(&mut self) -> Seen {
        let newest = Some(&self.newest);
        let seen = Observation::look(self.observation, newest, self.holder, self.now);
        self.observation = Some(seen);
        self.now += LOOK;
        seen.judge(newest, |_| self.refuses)
    }

    /// Looks for this time while the active host shows signs of life, on a clock that advances
    /// by `step_us` between two looks. Returns whether it was ever judged as ended.
    fn ends_within(&mut self, time: Duration, step_us: i64) -> bool {
        let until = self.now + time;
        let mut ended = false;
        while self.now < until {
            self.newest.beat = self.newest.beat.map(|at| at + step_us);
            ended |= matches!(self.look(), Seen::Free(_));
        }
        ended
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_host_is_replaced_by_the_rules_and_not_earlier() {
    for (holder, refuses, is_alive, silence) in [
        (Some(42), true, true, FROZEN_MIN),
        (None, false, true, SILENCE_MIN),
        (None, true, true, Duration::ZERO),
        (Some(42), false, false, Duration::ZERO),
    ] {
        let mut candidate = Candidate::new();
        assert!(!candidate.ends_within(MINUTE, 250_000), "it shows signs of life");
        let begun = candidate.now;
        (candidate.holder, candidate.refuses) = (holder, refuses);
        candidate.newest.is_alive = is_alive;
        let mut found = None;
        while candidate.now < begun + MINUTE && found.is_none() {
            let at = candidate.now;
            if let Seen::Free(vacancy) = candidate.look() {
                assert_eq!(vacancy.frozen, holder.filter(|_| is_alive));
                found = Some(at - begun);
            }
        }
        let found = found.unwrap();
        assert!(found <= silence && found + 2 * LOOK >= silence, "{found:?} and {silence:?}");
    }
}

#[test]
fn steps_of_the_databases_clock_replace_no_host_that_works_and_keep_none_that_has_ended() {
    for step_us in [3_600_000_000, -3_600_000_000] {
        let mut candidate = Candidate::new();
        assert!(!candidate.ends_within(MINUTE, 250_000));
        candidate.newest.beat = candidate.newest.beat.map(|at| at + step_us);
        assert!(!candidate.ends_within(MINUTE, 250_000), "{step_us}");
        candidate.holder = None;
        assert!(candidate.ends_within(2 * SILENCE_MIN, 0), "{step_us}");
    }
}

#[test]
fn the_first_looks_after_an_outage_replace_no_host() {
    let mut candidate = Candidate::new();
    candidate.holder = None;
    for _ in 0..5 {
        assert!(!candidate.ends_within(SILENCE_MIN - LOOK, 0));
        candidate.now += LOOK_GAP_MAX;
    }
    assert!(candidate.ends_within(2 * SILENCE_MIN, 0));
}

#[test]
fn a_new_session_is_not_as_silent_as_the_one_before() {
    let mut candidate = Candidate::new();
    assert!(!candidate.ends_within(FROZEN_MIN - LOOK, 0));
    candidate.newest.session += 1;
    assert!(!candidate.ends_within(FROZEN_MIN - LOOK, 0));
    assert!(candidate.ends_within(FROZEN_MIN, 0));
}

#[test]
fn a_session_without_signs_of_life_counts_from_the_first_look() {
    let mut candidate = Candidate::new();
    (candidate.newest.beat, candidate.holder) = (None, None);
    assert!(!candidate.ends_within(SILENCE_MIN - LOOK, 0));
    assert!(candidate.ends_within(SILENCE_MIN, 0));
}
