//! Rows of usage by hour and period: growth, writes under way, bounds of owners, and templates.

use super::*;

fn key() -> MeterKey {
    MeterKey {
        endpoint: EndpointId::new("e").unwrap(),
        template: TemplateId::new("t").unwrap(),
        owner: OwnerId::new("o").unwrap(),
    }
}

fn jobs(jobs: u64) -> UsageSum {
    UsageSum { jobs, ..UsageSum::default() }
}

fn batch(meters: &mut Meters, jobs: u64, hour: u32) -> (UsageWrite, bool) {
    let used = BTreeMap::from([(key(), self::jobs(jobs))]);
    let mut writes = meters.with(used, Hour(hour).start());
    let write = writes.pop().unwrap();
    let has_ended = meters.publish(vec![write.clone()]);
    (write, has_ended)
}

#[test]
fn a_row_grows_within_its_period_and_periods_never_repeat() {
    let mut meters = Meters::default();
    meters.begin_after(4);
    let seen = [(1, 10), (2, 10), (3, 11), (4, 10), (5, 10)].map(|(jobs, hour)| {
        let (write, has_ended) = batch(&mut meters, jobs, hour);
        (write.period.hour.0, write.period.run, write.sum.jobs, has_ended)
    });
    let expected = [
        (10, 5, 1, false),
        (10, 5, 3, false),
        (11, 5, 3, true),
        (10, 6, 4, false),
        (10, 6, 9, false),
    ];
    assert_eq!(seen, expected);
    let unstored = meters.unstored();
    assert_eq!(unstored.iter().map(|row| row.sum.jobs).sum::<u64>(), 15);
    batch(&mut meters, 1, 10);
    meters.stored(unstored);
    assert_eq!(meters.unstored().len(), 1, "what came meanwhile is not there yet");
    assert_eq!(meters.rows.len(), 1, "of the current period alone");
    assert!(!batch(&mut meters, 1, 10).1);
}

#[test]
fn usage_that_is_published_during_a_write_of_its_hour_is_written_later() {
    let mut meters = Meters::default();
    batch(&mut meters, 1, 10);
    let unstored = meters.unstored();
    batch(&mut meters, 1, 10);
    batch(&mut meters, 1, 11);
    meters.stored(unstored);
    let rows = meters.unstored().into_iter();
    let left: Vec<_> = rows.map(|row| (row.period.hour.0, row.sum.jobs)).collect();
    assert!(left.contains(&(10, 2)), "{left:?}");
    let unstored = meters.unstored();
    meters.stored(unstored);
    assert_eq!(meters.rows.len(), 1, "of the current period alone");
}

#[test]
fn an_owner_has_a_bounded_number_of_rows_and_nothing_is_lost() {
    let mut meters = Meters { owner_rows_max: 3, ..Meters::default() };
    let key = |endpoint: usize, template: usize, owner: &str| MeterKey {
        endpoint: EndpointId::new(&format!("e{endpoint}")).unwrap(),
        template: TemplateId::new(&format!("t{template}")).unwrap(),
        owner: OwnerId::new(owner).unwrap(),
    };
    let mut bill = |keys: Vec<MeterKey>, hour| {
        let used = keys.into_iter().map(|key| (key, jobs(1))).collect();
        let writes = meters.with(used, Hour(hour).start());
        meters.publish(writes);
        let rows = meters.rows.iter().filter(|((period, _), _)| period.hour.0 == hour);
        let rows = rows.filter(|((_, key), _)| key.owner.as_str() == "a");
        let rows = rows.map(|((_, key), row)| {
            (key.endpoint.to_string(), key.template.to_string(), row.sum.jobs)
        });
        rows.collect::<Vec<_>>()
    };
    let row =
        |endpoint: &str, template: &str, jobs| (endpoint.to_owned(), template.to_owned(), jobs);
    let rows = bill((0..5).map(|n| key(n, 0, "a")).chain([key(0, 0, "b")]).collect(), 7);
    let own = [row("e0", "t0", 1), row("e1", "t0", 1), row("e2", "t0", 1)];
    assert_eq!((&rows[0], &rows[1..]), (&row(OTHERS, "t0", 2), &own[..]));
    bill(vec![key(9, 0, "a"), key(9, 1, "a"), key(0, 0, "a")], 7);
    let rows = bill((2..9).map(|n| key(9, n, "a")).collect(), 7);
    let common = [row(OTHERS, OTHERS, 6), row(OTHERS, "t0", 3), row(OTHERS, "t1", 1)];
    assert_eq!(rows[..3], common);
    assert_eq!(rows[3], row(OTHERS, "t2", 1));
    assert_eq!(rows[4], row("e0", "t0", 2));
    assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), 15);
    // Each hour begins anew.
    assert_eq!(bill(vec![key(7, 7, "a")], 8), [row("e7", "t7", 1)]);
}

#[test]
fn two_attempts_of_one_job_are_billed_each_with_its_template() {
    let template = |name| TemplateId::new(name).unwrap();
    let mut bills = Bills::default();
    for name in ["a", "a", "b", "a"] {
        bills.add(template(name), &jobs(1));
    }
    let all: Vec<_> = bills.into_iter().map(|(name, sum)| (name.to_string(), sum.jobs)).collect();
    assert_eq!(all, [("a".to_owned(), 2), ("b".to_owned(), 1), ("a".to_owned(), 1)]);
}
