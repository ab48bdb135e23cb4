//! Records of usage.

use gristmill_control::{Grouping, Record};
use gristmill_core::price::{Credits, Prices};
use gristmill_core::usage::UsageSum;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// The usage of one group in one period (bucket). It has one of the three ids: that of the
/// `grouping`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BillingRecord {
    /// Start of the period.
    #[schema(value_type = schema::Time)]
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Id)]
    endpoint_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Id)]
    template_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Id)]
    owner_id: Option<String>,
    /// Credits, by the current prices; at most six digits after the decimal point.
    #[schema(value_type = f64)]
    amount: Amount,
    /// The sum of `executionTime`.
    time_billed_ms: u64,
    /// Number of ended attempts; each attempt of a job counts.
    jobs: u64,
    /// Milliseconds of processor time that handlers used.
    cpu_ms: u64,
    /// Fuel used.
    fuel: u64,
    /// The largest memory of one attempt.
    memory_bytes_peak: u64,
    /// Memory of the attempts, each in whole MiB, times their time in milliseconds.
    memory_mib_ms: u64,
    /// Bytes of inputs.
    bytes_in: u64,
    /// Bytes of outputs and chunks.
    bytes_out: u64,
    /// Number of emitted chunks.
    chunks: u64,
}

/// Credits as an exact JSON number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount(pub(crate) Credits);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let number = serde_json::value::RawValue::from_string(self.0.to_string());
        number.map_err(serde::ser::Error::custom)?.serialize(to)
    }
}

impl BillingRecord {
    pub(crate) fn new(record: Record, grouping: Grouping, prices: &Prices) -> Self {
        let Record { bucket, id, sum } = record;
        let UsageSum { jobs, wall_ms, cpu_us, fuel, memory_bytes_peak, memory_mib_ms, .. } = sum;
        let id_of = |its: Grouping| (its == grouping).then(|| id.clone());
        Self {
            time: rfc3339(bucket.start()),
            endpoint_id: id_of(Grouping::Endpoint),
            template_id: id_of(Grouping::Template),
            owner_id: id_of(Grouping::Owner),
            amount: Amount(prices.amount(&sum)),
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
}
