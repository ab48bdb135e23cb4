//! Why attempts fail, as metrics count it.

/// The kind of cause of a failed attempt, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureReason {
    /// The handler returned an error.
    Handler,
    /// The handler refused its input.
    InvalidInput,
    /// The handler trapped, panicked or exited.
    Trap,
    /// The handler needed more memory than it may have.
    MemoryLimit,
    /// The handler used all of its fuel.
    FuelLimit,
    /// A file of the handler could not grow.
    NoSpace,
    /// The output is too large, or no JSON.
    InvalidOutput,
    /// The host could not start the handler, or ended it in a host call.
    Host,
}

impl FailureReason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Handler,
        Self::InvalidInput,
        Self::Trap,
        Self::MemoryLimit,
        Self::FuelLimit,
        Self::NoSpace,
        Self::InvalidOutput,
        Self::Host,
    ];

    /// The reason as metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::InvalidInput => "invalid_input",
            Self::Trap => "trap",
            Self::MemoryLimit => "memory_limit",
            Self::FuelLimit => "fuel_limit",
            Self::NoSpace => "no_space",
            Self::InvalidOutput => "invalid_output",
            Self::Host => "host",
        }
    }
}
