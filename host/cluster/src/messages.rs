//! The messages between the active host and a runner, with the numbers of their fields.
//!
//! A number is never used again for another meaning. A host of an earlier version skips fields and
//! kinds of messages that it does not know, and reads absent fields as empty.

use bytes::Bytes;
use prost::{Message, Oneof};

/// The version of the protocol that this program speaks. Hosts with different versions do not run
/// each other's attempts; calls are forwarded between them nevertheless.
pub(crate) const PROTOCOL: u32 = 3;

/// The first message of the active host.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol: u32,
    /// The records of all components, so that the runner keeps the files that it has.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) components: Vec<Bytes>,
}

/// The answer of a runner: what it offers.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Offer {
    #[prost(uint32, tag = "1")]
    pub(crate) protocol: u32,
    /// The version of its program.
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// The address at which other hosts reach it, for its operator; empty without one.
    #[prost(string, tag = "3")]
    pub(crate) address: String,
    #[prost(uint64, tag = "4")]
    pub(crate) sandboxes: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) memory_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) cores: u64,
    /// Names its process: another one has another number.
    #[prost(fixed64, tag = "7")]
    pub(crate) instance: u64,
    /// Names its data directory: a process with another instance and the same directory follows one
    /// that has ended.
    #[prost(fixed64, tag = "9")]
    pub(crate) directory: u64,
    /// The attempts that it has kept since the last connection was lost.
    #[prost(message, repeated, tag = "8")]
    pub(crate) attempts: Vec<KeptAttempt>,
}

/// The memory of a runner's sandboxes, now and whenever it has changed.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Memory {
    /// Bytes that no attempt can get: those that sandboxes have, and those that are withheld.
    #[prost(uint64, tag = "1")]
    pub(crate) used_bytes: u64,
}

/// An attempt that goes on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeptAttempt {
    #[prost(message, optional, tag = "1")]
    pub(crate) attempt: Option<AttemptName>,
    /// Milliseconds until it is stopped.
    #[prost(uint64, tag = "2")]
    pub(crate) remaining_ms: u64,
}

/// Names an attempt.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttemptName {
    #[prost(string, tag = "1")]
    pub(crate) job: String,
    #[prost(uint32, tag = "2")]
    pub(crate) claim: u32,
    #[prost(string, tag = "3")]
    pub(crate) worker: String,
}

/// Ends attempts that the active host does not want any more.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Forget {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attempts: Vec<AttemptName>,
}

/// Makes a deployment ready on a runner.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Prepare {
    /// By which attempts name it.
    #[prost(uint64, tag = "1")]
    pub(crate) deployment: u64,
    /// The records, as JSON.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) endpoint: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) template: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) component: Bytes,
}

/// Ends the use of earlier deployments of an endpoint.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Retire {
    #[prost(string, tag = "1")]
    pub(crate) endpoint: String,
    /// The last deployment that is not used any more. Later ones, which may be ready already, stay.
    #[prost(uint64, tag = "2")]
    pub(crate) last: u64,
}

/// A message of the active host during an attempt.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToRunner {
    #[prost(oneof = "Order", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) order: Option<Order>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Order {
    /// The first message of a new attempt.
    #[prost(message, tag = "1")]
    Start(Start),
    #[prost(message, tag = "2")]
    Answer(Answer),
    /// The attempt should stop early.
    #[prost(message, tag = "3")]
    Stop(Stop),
    /// The first message of an attempt that the runner has kept.
    #[prost(message, tag = "4")]
    Resume(Resume),
    /// The number of a report: the runner need not keep it any more, nor those before it.
    #[prost(uint64, tag = "5")]
    Taken(u64),
    /// The active host is about to end: the attempt is for the next one. The last message.
    #[prost(message, tag = "6")]
    Leave(Stop),
}

/// Goes on with an attempt.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resume {
    #[prost(message, optional, tag = "1")]
    pub(crate) attempt: Option<AttemptName>,
    /// The number of the last report that has arrived: the runner sends those after it.
    #[prost(uint64, tag = "2")]
    pub(crate) received: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Start {
    #[prost(uint64, tag = "1")]
    pub(crate) deployment: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) attempt: Option<AttemptName>,
    #[prost(uint32, tag = "3")]
    pub(crate) number: u32,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) input: Bytes,
    /// Its settings of object storage, as JSON; empty without them.
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) s3_config: Bytes,
    /// Its position in a trace; empty without one.
    #[prost(bytes = "bytes", tag = "6")]
    pub(crate) trace: Bytes,
    #[prost(string, tag = "7")]
    pub(crate) trace_state: String,
    #[prost(uint64, tag = "8")]
    pub(crate) timeout_ms: u64,
    /// Milliseconds until it is stopped.
    #[prost(uint64, tag = "9")]
    pub(crate) remaining_ms: u64,
    /// Whether the active host has several owners, so that each may hold only a share of the
    /// runner.
    #[prost(bool, tag = "10")]
    pub(crate) several_owners: bool,
    /// Whether the owner of the deployment has several endpoints, so that each may hold only a
    /// share of what the owner may.
    #[prost(bool, tag = "11")]
    pub(crate) several_endpoints: bool,
    /// Whether handlers may call endpoints, so that sandboxes are kept for called jobs.
    #[prost(bool, tag = "12")]
    pub(crate) calls: bool,
    /// The level of the job in a chain of calls.
    #[prost(uint32, tag = "13")]
    pub(crate) level: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Stop {}

/// The answer to a call of another endpoint.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Answer {
    #[prost(uint64, tag = "1")]
    pub(crate) call: u64,
    #[prost(oneof = "Answered", tags = "2, 3, 4")]
    pub(crate) answered: Option<Answered>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Answered {
    /// The id of the submitted job.
    #[prost(string, tag = "2")]
    Job(String),
    #[prost(bytes = "bytes", tag = "3")]
    Output(Bytes),
    #[prost(message, tag = "4")]
    Error(Refusal),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Refusal {
    #[prost(enumeration = "RefusalKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
    /// Of a job that ended without an output.
    #[prost(string, tag = "3")]
    pub(crate) job: String,
    #[prost(string, tag = "4")]
    pub(crate) status: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum RefusalKind {
    Other = 0,
    Denied = 1,
    InvalidRequest = 2,
    LimitReached = 3,
    Failed = 4,
    Timeout = 5,
}

/// A message of a runner during an attempt.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FromRunner {
    #[prost(oneof = "Report", tags = "1, 2, 3, 4, 5, 6, 7, 9")]
    pub(crate) report: Option<Report>,
    /// The number of a report that the runner keeps until it is taken; the first is 1. 0 for other
    /// reports.
    #[prost(uint64, tag = "8")]
    pub(crate) number: u64,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Report {
    #[prost(message, tag = "1")]
    Chunks(Chunks),
    #[prost(bytes = "bytes", tag = "2")]
    Progress(Bytes),
    #[prost(message, tag = "3")]
    Log(LogLine),
    #[prost(message, tag = "4")]
    Call(Call),
    /// The last message.
    #[prost(message, tag = "5")]
    End(End),
    /// The last message of an attempt that does not begin, or does not go on: the runner does not
    /// know its deployment, or has not kept it.
    #[prost(message, tag = "6")]
    NotBegun(Stop),
    #[prost(message, tag = "7")]
    Requested(Requested),
    /// The number of a call whose answer has arrived: the active host need not keep it any more.
    #[prost(uint64, tag = "9")]
    AnswerTaken(u64),
}

/// A request that the handler made, for metrics.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Requested {
    /// As metrics name it.
    #[prost(string, tag = "1")]
    pub(crate) end: String,
    #[prost(uint64, tag = "2")]
    pub(crate) took_us: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Chunks {
    #[prost(message, repeated, tag = "1")]
    pub(crate) chunks: Vec<ChunkMessage>,
    /// Chunks of the attempt before these.
    #[prost(uint64, tag = "2")]
    pub(crate) first: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChunkMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) output: Bytes,
    /// Empty without metrics.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) metrics: Bytes,
    /// The position among the parts of a split emit; `parts` is 0 for a whole one and for a piece
    /// of a string.
    #[prost(uint32, tag = "3")]
    pub(crate) part: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) parts: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogLine {
    #[prost(string, tag = "1")]
    pub(crate) level: String,
    #[prost(string, tag = "2")]
    pub(crate) line: String,
}

/// A call of another endpoint.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Call {
    /// By which the answer names it.
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(string, tag = "2")]
    pub(crate) endpoint: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) input: Bytes,
    #[prost(string, optional, tag = "4")]
    pub(crate) idempotency_key: Option<String>,
    /// Whether the handler waits for the output.
    #[prost(bool, tag = "5")]
    pub(crate) waits: bool,
    /// The id of the job: when the call is sent again, it is the same job. Empty when the handler
    /// may call none.
    #[prost(string, tag = "6")]
    pub(crate) job: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct End {
    #[prost(oneof = "How", tags = "1, 2, 3, 4, 5")]
    pub(crate) how: Option<How>,
    #[prost(message, optional, tag = "6")]
    pub(crate) usage: Option<UsageMessage>,
    /// What the handler wishes for its job if the attempt has failed; empty without a wish.
    #[prost(oneof = "Wish", tags = "7, 8")]
    pub(crate) wish: Option<Wish>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Wish {
    /// The job does not run again.
    #[prost(message, tag = "7")]
    Never(Stop),
    /// It runs again after so many milliseconds.
    #[prost(uint64, tag = "8")]
    AfterMs(u64),
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum How {
    #[prost(bytes = "bytes", tag = "1")]
    Returned(Bytes),
    #[prost(message, tag = "2")]
    Failed(Failure),
    #[prost(message, tag = "3")]
    DeadlineReached(Stop),
    #[prost(message, tag = "4")]
    Stopped(Stop),
    #[prost(message, tag = "5")]
    NoMemory(Stop),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Failure {
    /// As metrics name it.
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct UsageMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) instantiate_us: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) run_us: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) cpu_us: u64,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) fuel: Option<u64>,
    #[prost(uint64, tag = "5")]
    pub(crate) memory_bytes_peak: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) sent_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub(crate) received_bytes: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) chunks: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) log_lines_dropped: u64,
}
