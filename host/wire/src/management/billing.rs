//! Records of usage.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[cfg(feature = "openapi")]
use crate::schema;

/// The usage of one group in one period (bucket). It has one of the three ids: that of the
/// `grouping`. Grouped by `podId` or `gpuTypeId` it has none, and is the whole usage of the period.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BillingRecord {
    /// Start of the period.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub time: String,
    /// For usage by endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub endpoint_id: Option<String>,
    /// For usage by template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub template_id: Option<String>,
    /// For usage by owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub owner_id: Option<String>,
    /// Credits, by the current prices; at most six digits after the decimal point.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub amount: Amount,
    /// The sum of `executionTime`.
    pub time_billed_ms: u64,
    /// Number of ended attempts; each attempt of a job counts.
    pub jobs: u64,
    /// Milliseconds of processor time that handlers used.
    pub cpu_ms: u64,
    /// Fuel used.
    pub fuel: u64,
    /// The largest memory of one attempt.
    pub memory_bytes_peak: u64,
    /// Memory of the attempts, each in whole MiB, times their time in milliseconds.
    pub memory_mib_ms: u64,
    /// Bytes of inputs.
    pub bytes_in: u64,
    /// Bytes of outputs and chunks.
    pub bytes_out: u64,
    /// Number of emitted chunks.
    pub chunks: u64,
}

impl BillingRecord {
    /// The id of the group: the one of the three ids that is present.
    pub fn group(&self) -> &str {
        let ids = [&self.endpoint_id, &self.template_id, &self.owner_id];
        ids.into_iter().flatten().next().map_or("", String::as_str)
    }
}

/// Credits as an exact JSON number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(Box<RawValue>);

/// Digits are compared, not values.
impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Amount {
    /// An amount with these digits; `None` if the text is not a JSON number.
    pub fn new(digits: String) -> Option<Self> {
        serde_json::from_str::<serde_json::Number>(&digits).ok()?;
        RawValue::from_string(digits).ok().map(Self)
    }

    /// All digits.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}
