//! Records of usage.

use gristmill_control::{Grouping, Record};
use gristmill_core::billing::price::Prices;
use gristmill_core::billing::usage::UsageSum;
use gristmill_wire::management::BillingRecord;

use crate::answer::amount::amount;
use crate::answer::wire_time::rfc3339_shortest;

/// The answer's form of a record.
pub(crate) fn billing_record(record: Record, grouping: Grouping, prices: &Prices) -> BillingRecord {
    let Record { bucket, id, sum } = record;
    let UsageSum { jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, memory_mib_ms, .. } = sum;
    let id_of = |its: Grouping| (its == grouping).then(|| id.clone());
    BillingRecord {
        time: rfc3339_shortest(bucket.start()),
        endpoint_id: id_of(Grouping::Endpoint),
        template_id: id_of(Grouping::Template),
        owner_id: id_of(Grouping::Owner),
        amount: amount(prices.amount(&sum)),
        time_billed_ms: wall_ms,
        jobs,
        cpu_ms: cpu_us / 1_000,
        fuel,
        memory_bytes_peak,
        memory_mib_ms,
        bytes_in: sum.bytes_in,
        bytes_out: sum.bytes_out,
        chunks: sum.chunks,
    }
}
