//! Prices as texts and in tables, and amounts: exact sums that are rounded once.

use proptest::prelude::*;

use super::*;

fn price(text: &str) -> Price {
    text.parse().unwrap()
}

#[test]
fn prices_are_read_to_the_digit() {
    for (text, nano) in [
        ("0", Some(0)),
        ("1", Some(NANO)),
        ("0.000000001", Some(1)),
        ("12.5", Some(12_500_000_000)),
        ("1000000", Some(PRICE_MAX * NANO)),
        ("1000000.000000001", None),
        ("0.0000000001", None),
        ("-1", None),
        ("1e3", None),
        ("", None),
        (".5", None),
        ("1.", None),
        ("99999999999999999999", None),
        ("NaN", None),
    ] {
        let read = text.parse::<Price>().ok().map(|price| price.nano);
        assert_eq!(read, nano, "{text}");
    }
    let table = r#"{"job":0.1,"wall-second":2,"cpu-second":"0.000000003","gb-in":1e-7}"#;
    let prices: Prices = serde_json::from_str(table).unwrap();
    assert_eq!((prices.job.nano, prices.wall_second.nano), (100_000_000, 2 * NANO));
    assert_eq!((prices.cpu_second.nano, prices.gb_in.nano), (3, 100));
    let unknown = serde_json::from_str::<Prices>(r#"{"gpu-second":1}"#).unwrap_err();
    assert!(unknown.to_string().contains("unknown field `gpu-second`"), "{unknown}");
    assert!(serde_json::from_str::<Prices>(r#"{"job":-1}"#).is_err());
    assert!(serde_json::from_str::<Prices>(r#"{"job":1e-10}"#).is_err());
}

#[test]
fn amounts_are_exact_and_rounded_once() {
    let prices = Prices {
        job: price("0.1"),
        wall_second: price("0.002"),
        gb_second: price("0.5"),
        cpu_second: price("3"),
        giga_fuel: price("0.000004"),
        gb_in: price("1"),
        gb_out: price("2"),
    };
    let used = UsageSum {
        jobs: 3,
        wall_ms: 1_500,
        cpu_us: 250_000,
        fuel: 2_000_000_000,
        memory_bytes_peak: 0,
        memory_mib_ms: 512 * 2_000,
        bytes_in: 1 << 29,
        bytes_out: 1 << 28,
        chunks: 9,
    };
    // 0.3 + 0.003 + 0.5 + 0.75 + 0.000008 + 0.5 + 0.5
    assert_eq!(prices.amount(&used).to_string(), "2.553008");
    assert_eq!(Prices::default().amount(&used).to_string(), "0");
    // Three times a third of the smallest amount, and half of it.
    let tiny =
        Prices { wall_second: price("0.000001"), gb_in: price("0.000001"), ..Prices::default() };
    let amount = |wall_ms, bytes_in| {
        let used = UsageSum { wall_ms, bytes_in, ..UsageSum::default() };
        tiny.amount(&used).to_string()
    };
    assert_eq!([amount(499, 0), amount(500, 0), amount(499, 1 << 20)], ["0", "0.000001", "0"]);
    assert_eq!(amount(499, 1 << 21), "0.000001", "parts of different items add up");
    let most = UsageSum { jobs: u64::MAX, wall_ms: u64::MAX, fuel: u64::MAX, ..used };
    let dear = Prices { job: price("1000000"), wall_second: price("1000000"), ..prices };
    assert!(dear.amount(&most) > dear.amount(&used), "the greatest numbers fit");
}

proptest! {
    /// The parts add up to the whole, except for the rounding of each.
    #[test]
    fn parts_make_the_whole(
        cuts in prop::collection::vec((0..1_u64 << 40, 0..1_u64 << 40), 1..40),
        nano in 0..10 * NANO,
    ) {
        let prices = Prices {
            gb_second: Price { nano },
            gb_out: Price { nano: nano / 7 },
            ..Prices::default()
        };
        let (mut whole, mut parts) = (UsageSum::default(), 0);
        for (memory_mib_ms, bytes_out) in &cuts {
            let (memory_mib_ms, bytes_out) = (*memory_mib_ms, *bytes_out);
            let used = UsageSum { memory_mib_ms, bytes_out, ..UsageSum::default() };
            whole.add(&used);
            parts += prices.amount(&used).micro;
        }
        prop_assert!(prices.amount(&whole).micro.abs_diff(parts) <= cuts.len() as u128);
    }
}
