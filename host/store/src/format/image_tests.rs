//! The bytes of a full batch, defaults of later fields, and batches with wrong bytes or payloads.

use super::*;
use crate::medium::SegmentId;

#[test]
fn payloads_beyond_those_of_the_frame_are_refused() {
    let job = JobImage {
        seq: 1,
        id: [0; 19],
        endpoint: 1,
        state: StateImage::Deleted { job: false, output: false, chunks: false },
        idempotency: None,
        output: Some(10),
        clears_result: false,
        pages: vec![(0, u32::MAX)],
        delivery: None,
        has_body: false,
    };
    let image = BatchImage { jobs: vec![job], ..BatchImage::default() };
    for len in [0, 9, 10, 11] {
        let payloads = PayloadLocation { segment: SegmentId(1), at: 100, len };
        assert!(image.checked_locations(payloads).is_err(), "{len}");
    }
}

/// A batch with a value in each field.
fn full_batch() -> BatchImage<'static> {
    let attempt = AttemptImage {
        started_at: Some(1),
        finished_at: Some(1_700_000_000_000),
        worker: Some("w"),
        error: Some("e"),
        chunk_count: 300,
        host: None,
    };
    let row = RowImage {
        state: 3,
        claim: 70_000,
        crashes: 1,
        retries: 2,
        queue_position: 3,
        ttl_at: 4,
        attempt: Some(attempt),
        queued_at: Some(5),
        result_bytes: 6,
        past: Some(&[54, 55]),
        losses: 0,
    };
    let fixed = FixedImage {
        owner: "o",
        low_priority: true,
        execution_timeout_ms: 7,
        ttl_ms: 8,
        retention_ms: 9,
        created_at: 10,
        webhook: Some("h"),
        retention_completed_ms: Some(51),
        retention_failed_ms: Some(52),
        retention_cancelled_ms: Some(53),
        tags: Some("k=v"),
        trace: Some([7; CONTEXT_BYTES]),
        trace_state: Some("s=1"),
    };
    let delivery = || DeliveryImage {
        id: 11,
        endpoint: 12,
        job: [13; 19],
        job_status: "FAILED",
        job_retries: 14,
        url: "u",
        body_bytes: 15,
        created_at: 16,
        state: 1,
        at: 17,
        attempts: 18,
        last_status: Some(500),
        last_error: Some("x"),
        made: vec![(56, None), (57, Some(500))],
        trace: Some([8; CONTEXT_BYTES]),
        trace_state: Some("s=2"),
    };
    let job = |seq, state| JobImage {
        seq,
        id: [20; 19],
        endpoint: 21,
        state,
        idempotency: Some(IdempotencyImage { key: [22; 16], content: [23; 16], at: 24 }),
        output: Some(25),
        clears_result: true,
        pages: vec![(26, 27)],
        delivery: Some(delivery()),
        has_body: true,
    };
    BatchImage {
        endpoints: vec![(28, "n")],
        counts: vec![(29, [30, 31, 32])],
        usage: vec![UsageImage {
            endpoint: "n",
            template: "t",
            owner: "o",
            hour: 33,
            run: 34,
            sum: [35, 36, 37, 38, 39, 40, 41, 42, 43],
        }],
        jobs: vec![
            job(44, StateImage::New { fixed, row, input: Some(45) }),
            job(46, StateImage::Changed(row)),
            job(47, StateImage::Deleted { job: true, output: false, chunks: true }),
        ],
        attempts: vec![delivery()],
        dropped_deliveries: vec![48],
        forgotten: vec![49],
        dropped_records_up_to: Some(50),
        schedules: vec![(51, Some("m")), (52, None)],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same bytes must be read by all later versions: a change here needs a version of its own.
#[test]
fn a_batch_has_the_bytes_that_are_on_disk() {
    let batch = full_batch();
    let bytes = batch.encode();
    assert_eq!(hex(&bytes), ON_DISK);
    let decoded = BatchImage::decode(&bytes).unwrap();
    assert_eq!(format!("{decoded:?}"), format!("{batch:?}"));
    assert_eq!(hex(&BatchImage::default().encode()), "80", "fields without a value are left out");
}

#[test]
fn fields_that_are_added_later_have_a_default() {
    #[derive(Encode)]
    struct LaterUsage<'a> {
        #[n(0)]
        endpoint: &'a str,
        #[n(1)]
        template: &'a str,
        #[n(2)]
        owner: &'a str,
        #[n(3)]
        hour: u32,
        #[n(4)]
        run: u32,
        #[n(5)]
        sum: [u64; 9],
        #[n(6)]
        tags: Vec<(&'a str, &'a str)>,
    }
    #[derive(Decode)]
    struct LaterBatch {
        #[n(7)]
        dropped_records_up_to: Option<u64>,
        #[n(9)]
        #[cbor(default)]
        added: Vec<u64>,
    }
    let (endpoint, template, owner, sum) = ("n", "t", "o", [1; 9]);
    let tags = vec![("k", "v")];
    let later = LaterUsage { endpoint, template, owner, hour: 1, run: 2, sum, tags };
    let bytes = minicbor::to_vec(later).unwrap();
    let known: UsageImage<'_> = minicbor::decode(&bytes).unwrap();
    assert_eq!((known.owner, known.sum), (owner, sum));
    let batch: LaterBatch = minicbor::decode(&full_batch().encode()).unwrap();
    assert_eq!((batch.dropped_records_up_to, batch.added), (Some(50), vec![]));
}

#[test]
fn a_batch_that_is_cut_or_continued_is_refused() {
    let bytes = full_batch().encode();
    for len in 0..bytes.len() {
        assert!(BatchImage::decode(&bytes[..len]).is_err(), "{len}");
    }
    assert!(BatchImage::decode(&[&bytes[..], &[0]].concat()).is_err());
}

const ON_DISK: &str = "\
    898182181c616e8182181d83181e181f18208186616e6174616f18211822891823182418251826182718\
    281829182a182b838a182c53141414141414141414141414141414141414141584008d616ff50708090a\
    6168183318341835636b3d7658190707070707070707070707070707070707070707070707070763733d\
    318a031a000111700102030485011b0000018bcfe568006177616519012c0506423637182d8350161616\
    16161616161616161616161616501717171717171717171717171717171718181819f58182181a181b90\
    0b0c530d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d664641494c45440e61750f100111121901f46178\
    82821838f68218391901f458190808080808080808080808080808080808080808080808080863733d32\
    f58a182e53141414141414141414141414141414141414141582018a031a000111700102030485011b00\
    00018bcfe568006177616519012c05064236378350161616161616161616161616161616165017171717\
    17171717171717171717171718181819f58182181a181b900b0c530d0d0d0d0d0d0d0d0d0d0d0d0d0d0d\
    0d0d0d0d664641494c45440e61750f100111121901f4617882821838f68218391901f458190808080808\
    080808080808080808080808080808080808080863733d32f58a182f5314141414141414141414141414\
    141414141414158402f5f4f5835016161616161616161616161616161616501717171717171717171717\
    171717171718181819f58182181a181b900b0c530d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d664641\
    494c45440e61750f100111121901f4617882821838f68218391901f45819080808080808080808080808\
    0808080808080808080808080863733d32f581900b0c530d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d\
    664641494c45440e61750f100111121901f4617882821838f68218391901f45819080808080808080808\
    0808080808080808080808080808080863733d32811830811831183282821833616d821834f6";
