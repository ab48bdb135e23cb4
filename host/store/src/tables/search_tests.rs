//! Ranges of time, the plan of a search by tag, lists compared with sets, and bounded steps.

use super::*;
use crate::tables::schema;

fn tables() -> Connection {
    let mut db = Connection::open_in_memory().unwrap();
    schema::create(&mut db).unwrap();
    db
}

#[test]
fn a_range_of_time_is_found_without_reading_jobs() {
    let db = tables();
    let put = |block: u64, first: u64, last: u64| {
        let sql = "INSERT INTO archived_time (block, first_at, last_at) VALUES (?1, ?2, ?3)";
        db.execute(sql, [integer(block), integer(first), integer(last)]).unwrap();
    };
    put(1, 100, 199);
    put(2, 200, 299);
    // The clock went back.
    put(3, 150, 399);
    put(5, 400, 499);
    let find = |from, until, before| numbers_of_time(&db, (from, until), before).unwrap();
    assert_eq!(find(0, u64::MAX, u64::MAX), Some((6 * BLOCK, 0)));
    assert_eq!(find(400, 401, u64::MAX), Some((6 * BLOCK, 4 * BLOCK)));
    assert_eq!(find(160, 170, u64::MAX), Some((4 * BLOCK, 3 * BLOCK)));
    assert_eq!(find(160, 170, 3 * BLOCK + 7), Some((3 * BLOCK + 7, 3 * BLOCK)));
    assert_eq!(find(160, 170, 3 * BLOCK), Some((2 * BLOCK, 0)));
    assert_eq!(find(500, 600, u64::MAX), None);
    assert_eq!(find(0, 100, u64::MAX), None);
    assert_eq!(find(0, 600, 0), None);
}

#[test]
fn a_search_by_tag_uses_the_key() {
    let db = tables();
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {NUMBERS_OF_TAG}")).unwrap();
    let plan = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    let plan: Vec<_> = plan.map(Result::unwrap).collect();
    let expected = "SEARCH job_tag USING PRIMARY KEY (endpoint=? AND tag=? AND seq<?)";
    assert_eq!(plan, [expected]);
}

#[test]
fn intersections_and_unions_are_those_of_sets() {
    let db = tables();
    let mut insert =
        db.prepare("INSERT INTO job_tag (endpoint, tag, seq) VALUES (?1, ?2, ?3)").unwrap();
    let has = |endpoint: u64, tag: u64, seq: u64| (seq * 7 + endpoint).is_multiple_of(tag + 1);
    for (endpoint, tag, seq) in
        (1..4).flat_map(|e| (1..4).flat_map(move |t| (1..900).map(move |s| (e, t, s))))
    {
        if has(endpoint, tag, seq) {
            insert.execute([integer(endpoint), integer(tag), integer(seq)]).unwrap();
        }
    }
    for tags in [&[1][..], &[2], &[1, 2], &[1, 2, 3], &[3, 9]] {
        let mut expected: Vec<_> = (1..900)
            .filter(|seq| (1..3).any(|e| tags.iter().all(|tag| *tag < 4 && has(e, *tag, *seq))))
            .collect();
        expected.reverse();
        for count_max in [1, 7, 10_000] {
            let (mut found, mut before) = (Vec::new(), u64::MAX);
            while before > 0 {
                let of = |endpoint| {
                    let of = |tag: &u64| Of::Tag(EndpointKey(endpoint), integer(*tag));
                    Source::new(tags.iter().map(of))
                };
                let sources = vec![of(1), of(2)];
                let (more, down_to) = merge(&db, sources, (0, before), count_max).unwrap();
                assert!(more.len() <= count_max && down_to < before);
                found.extend(more);
                before = down_to;
            }
            assert_eq!(found, expected, "{tags:?}, {count_max}");
        }
    }
}

#[test]
fn lists_without_a_common_number_take_bounded_steps() {
    let db = tables();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
               INSERT INTO job_tag (endpoint, tag, seq) SELECT 1, i % 2, i FROM n";
    db.execute(sql, ()).unwrap();
    let both = || Source::new([0, 1].map(|tag| Of::Tag(EndpointKey(1), tag)));
    let mut before = u64::MAX;
    for calls in 1.. {
        let (found, down_to) = merge(&db, vec![both()], (0, before), 10).unwrap();
        assert!(found.is_empty() && down_to < before);
        before = down_to;
        if before == 0 {
            assert!((5..20).contains(&calls), "{calls}");
            return;
        }
    }
}
