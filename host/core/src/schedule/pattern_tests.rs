use super::*;

/// The time, such as `2024-02-29T06:30`.
fn time(text: &str) -> DateTime {
    text.parse().unwrap()
}

#[test]
fn a_search_finds_the_first_time_of_a_pattern() {
    for (pattern, from, next) in [
        ("* * * * *", "2024-01-01T00:00", "2024-01-01T00:00"),
        ("* * * * *", "2024-01-01T00:00:00.000000001", "2024-01-01T00:01"),
        ("* * * * *", "2023-12-31T23:59:01", "2024-01-01T00:00"),
        ("*/15 * * * *", "2024-01-01T10:46", "2024-01-01T11:00"),
        ("10-50/20 * * * *", "2024-01-01T10:31", "2024-01-01T10:50"),
        ("0,59 0,23 * * *", "2024-02-28T23:59:59", "2024-02-29T00:00"),
        ("5 4 * * sun", "2024-01-01T00:00", "2024-01-07T04:05"),
        ("5 4 * * 0", "2024-01-01T00:00", "2024-01-07T04:05"),
        ("5 4 * * 7", "2024-01-01T00:00", "2024-01-07T04:05"),
        ("5 4 * * FRI-SUN", "2024-01-06T04:06", "2024-01-07T04:05"),
        ("5 4 * * 5-7", "2024-01-07T04:06", "2024-01-12T04:05"),
        ("5 4 * * 0-2", "2024-01-02T04:06", "2024-01-07T04:05"),
        ("0 0 1 jan,JUL *", "2024-01-01T00:01", "2024-07-01T00:00"),
        ("0 0 31 * *", "2024-01-31T01:00", "2024-03-31T00:00"),
        ("0 0 L * *", "2024-02-01T00:00", "2024-02-29T00:00"),
        ("0 0 l,15 2 *", "2023-02-15T00:01", "2023-02-28T00:00"),
        ("0 0 29 2 *", "2096-02-29T00:01", "2104-02-29T00:00"),
        // Either day when both are restricted.
        ("0 0 13 * FRI", "2024-09-01T00:00", "2024-09-06T00:00"),
        ("0 0 13 * FRI", "2024-10-12T00:00", "2024-10-13T00:00"),
        // Both days when one begins with a star.
        ("0 0 */2 * FRI", "2024-09-01T00:00", "2024-09-13T00:00"),
        ("0 0 13 * */5", "2024-09-01T00:00", "2024-09-13T00:00"),
        // The rarest dates: 29 February at a weekend, over the year 2100, which is no leap year.
        ("0 0 29 2 */6", "2088-03-01T00:00", "2116-02-29T00:00"),
        ("@yearly", "2024-01-01T00:01", "2025-01-01T00:00"),
        ("@monthly", "2024-01-01T00:01", "2024-02-01T00:00"),
        ("@WEEKLY", "2024-01-01T00:00", "2024-01-07T00:00"),
        ("@daily", "2024-01-01T00:01", "2024-01-02T00:00"),
        ("@hourly", "2024-01-01T00:01", "2024-01-01T01:00"),
        (" \t0  0 * * * ", "2024-01-01T00:01", "2024-01-02T00:00"),
    ] {
        let found = Pattern::parse(pattern).unwrap().next(time(from));
        assert_eq!(found, Some(time(next)), "{pattern} from {from}");
    }
}

#[test]
fn an_invalid_pattern_is_refused_with_the_value_and_a_remedy() {
    for (pattern, error) in [
        ("61 * * * *", "`61` in the field of minutes; a minute is 0 to 59, or"),
        ("* 24 * * *", "`24` in the field of hours; an hour is 0 to 23, or"),
        ("* * 0 * *", "`0` in the field of days of the month; a day is 1 to 31, `L` for"),
        ("* * ? * *", "`?` in the field of days of the month; a day is 1 to 31, `L` for"),
        ("* * L-2 * *", "`L` in the field of days of the month; a day is 1 to 31, `L` for"),
        ("* * * 13 *", "`13` in the field of months; a month is 1 to 12, JAN to DEC, or"),
        ("* * * MON *", "`MON` in the field of months; a month is 1 to 12, JAN to DEC, or"),
        ("* * * * 8", "`8` in the field of days of the week; a day is 0 to 7 with Sunday"),
        ("* * * * MONDAY", "`MONDAY` in the field of days of the week; a day is 0 to 7"),
        ("* * * * L", "`L` in the field of days of the week; a day is 0 to 7"),
        ("* * * * 5#2", "`5#2` in the field of days of the week; a day is 0 to 7"),
        ("1,,2 * * * *", "`` in the field of minutes; a minute is"),
        ("-1 * * * *", "`` in the field of minutes; a minute is"),
        ("+1 * * * *", "`+1` in the field of minutes; a minute is"),
        ("1-2-3 * * * *", "`2-3` in the field of minutes; a minute is"),
        ("** * * * *", "`**` in the field of minutes; a minute is"),
        ("\u{665} * * * *", "`\u{665}` in the field of minutes; a minute is"),
        ("9999999999 * * * *", "`9999999999` in the field of minutes; a minute is"),
        ("* 22-5 * * *", "`22-5` in the field of hours, which ends before it begins; write two"),
        ("* * * * WED-MON", "`WED-MON` in the field of days of the week, which ends before"),
        ("*/0 * * * *", "`*/0` in the field of minutes; a step is 1 to 59, after `*` or a range"),
        ("*/90 * * * *", "`*/90` in the field of minutes; a step is 1 to 59, after"),
        ("* 5/3 * * *", "`5/3` in the field of hours; a step is 1 to 23, after `*` or a range"),
        ("* * * * */7", "`*/7` in the field of days of the week; a step is 1 to 6, after"),
        ("* */ * * *", "`*/` in the field of hours; a step is 1 to 23, after"),
        ("* */2/2 * * *", "`*/2/2` in the field of hours; a step is 1 to 23, after"),
        ("", "0 field(s); write five: minute, hour, day of month, month, day of week"),
        ("0 0 * *", "4 field(s); write five"),
        ("0 0 0 * * * *", "7 field(s); write five"),
        ("0 0 0 * * *", "6 fields, and no field of seconds is possible; write five, or use"),
    ] {
        let refused = Pattern::parse(pattern).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("`cron` has {error}")), "{pattern}: {refused}");
    }
    let names = "the names of patterns are @hourly, @daily, @weekly, @monthly and @yearly";
    for name in ["@reboot", "@", "@daily 5"] {
        let refused = Pattern::parse(name).unwrap_err().to_string();
        assert_eq!(refused, format!("`cron` is `{name}`; {names}"));
    }
    let longest = format!("{}0 0 * * *", " ".repeat(CRON_BYTES_MAX - 9));
    assert!(Pattern::parse(&longest).is_ok());
    assert_eq!(Pattern::parse(&format!(" {longest}")), Err(InvalidPattern::TooLong));
}

#[test]
fn a_pattern_without_any_date_is_refused() {
    for pattern in ["0 0 30 2 *", "0 0 31 4,6,9,NOV *", "* * 30-31 FEB *", "0 0 30 2 */2"] {
        let refused = Pattern::parse(pattern).unwrap_err();
        assert_eq!(refused, InvalidPattern::NeverFires);
        assert!(refused.to_string().contains("change the day or month"), "{refused}");
    }
    for pattern in ["0 0 30 2 MON", "0 0 29 2 *", "0 0 30,L 2 *", "0 0 29 2 */6"] {
        assert!(Pattern::parse(pattern).is_ok(), "{pattern}");
    }
}

#[test]
fn every_hour_and_steps_of_minutes_in_several_hours_fire_by_instants() {
    for (pattern, is_by_instants) in [
        ("* * * * *", true),
        ("0 * * * *", true),
        ("0 0-23 * * *", true),
        ("*/5 */2 * * *", true),
        ("0-30/5 2-4/2 * * *", true),
        ("*/5 2 * * *", false),
        ("*/5 0-0/2 * * *", false),
        ("0 */2 * * *", false),
        ("0 0-22 * * *", false),
        ("0 2,3 * * *", false),
    ] {
        let found = Pattern::parse(pattern).unwrap().is_by_instants;
        assert_eq!(found, is_by_instants, "{pattern}");
    }
}

#[test]
fn a_search_ends_with_the_calendar() {
    let daily = Pattern::parse("@daily").unwrap();
    assert_eq!(daily.next(time("9999-12-31T00:00")), Some(time("9999-12-31T00:00")));
    assert_eq!(daily.next(time("9999-12-31T00:01")), None);
    assert_eq!(daily.next(DateTime::MAX), None);
    assert!(daily.next(DateTime::MIN).is_some());
}
