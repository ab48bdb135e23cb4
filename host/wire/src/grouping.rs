//! The choices of a report of usage: the periods, and the groups.

/// The length of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketSize {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A week, from Monday on.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl BucketSize {
    /// From the smallest to the largest.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The size as clients spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// The property by which usage is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// By endpoint.
    Endpoint,
    /// By template.
    Template,
    /// By owner.
    Owner,
    /// By Pod. Usage has none, so there is one group.
    Pod,
    /// By GPU. The same.
    Gpu,
}

impl Grouping {
    /// In the order of the documentation.
    pub const ALL: [Self; 5] = [Self::Endpoint, Self::Template, Self::Owner, Self::Pod, Self::Gpu];

    /// For the bill of Pods.
    pub const OF_PODS: [Self; 2] = [Self::Pod, Self::Gpu];

    /// The field of a record with its group; also the value by which clients request the grouping.
    pub fn field(self) -> &'static str {
        match self {
            Self::Endpoint => "endpointId",
            Self::Template => "templateId",
            Self::Owner => "ownerId",
            Self::Pod => "podId",
            Self::Gpu => "gpuTypeId",
        }
    }
}
