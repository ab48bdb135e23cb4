//! Every fixed bound of the platform, in one place, with its unit, the code that enforces it, and
//! the behaviour at the bound. Bounds that an operator can change are settings, not constants.

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Longest id, or part of an image's name, in bytes. Longer ones are refused with 400.
pub const NAME_BYTES_MAX: usize = 128;

/// Longest display name, in characters. Longer ones are refused with 400.
pub const NAME_CHARS_MAX: usize = 128;

/// Longest `webhook` of a submission, in bytes (2 KiB): 400. It stays in memory for as long as its
/// job and its deliveries exist.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2 * KIB;

/// Longest field of a submission's `s3Config`, in characters (4 Ki): 400.
pub const S3_FIELD_CHARS_MAX: usize = 4 * KIB;

/// Longest `imageName` of a template, in characters (1 Ki): 400.
pub const IMAGE_NAME_CHARS_MAX: usize = KIB;

/// Most arguments in each of a template's two lists: 400.
pub const ARGUMENTS_MAX: usize = 256;

/// Longest argument of a template, in characters (16 Ki): 400.
pub const ARGUMENT_CHARS_MAX: usize = 16 * KIB;

/// Most variables of an environment: 400.
pub const ENV_VARIABLES_MAX: usize = 256;

/// Longest name of an environment's variable, in characters: 400.
pub const ENV_NAME_CHARS_MAX: usize = 256;

/// Longest value of an environment's variable, in characters (32 Ki): 400.
pub const ENV_VALUE_CHARS_MAX: usize = 32 * KIB;

/// Longest `readme` of a template, in characters (64 Ki): 400.
pub const README_CHARS_MAX: usize = 64 * KIB;

/// Most ports of a template: 400.
pub const PORTS_MAX: usize = 256;

/// Most hosts that an endpoint may allow: 400.
pub const ALLOWED_HOSTS_MAX: usize = 256;

/// Longest entry of a list of allowed hosts, and longest host of a registry, in bytes: a DNS name
/// has 253 at most. Longer ones are refused with 400.
pub const HOST_PATTERN_BYTES_MAX: usize = 300;

/// Most endpoints that one API key names: 400.
pub const KEY_ENDPOINTS_MAX: usize = 1_000;

/// Largest body of `/run`, in bytes (10 MiB). Enforced on Content-Length before a byte is read,
/// and again while reading: 413.
pub const RUN_BODY_BYTES_MAX: usize = 10 * MIB;

/// Largest body of `/runsync`, in bytes (20 MiB). Enforced like [`RUN_BODY_BYTES_MAX`].
pub const RUN_SYNC_BODY_BYTES_MAX: usize = 20 * MIB;

/// Deepest nesting of objects and lists in an input. Deeper ones are refused with 400: common JSON
/// parsers, including that of the Rust SDK, fail there or run out of stack later.
pub const JSON_NESTING_MAX: usize = 128;

/// `limit` of `/requests`; a number outside is refused with 400.
pub const LIST_JOBS: Bounds = Bounds { min: 1, default: 100, max: 1_000 };

/// `tail` of an endpoint's log lines; a number outside is refused with 400.
pub const LIST_LOGS: Bounds = Bounds { min: 0, default: 100, max: 10_000 };

/// `limit` of the lists of the management API; a number outside is refused with 400. The default is
/// the maximum, because some clients do not expect pages.
pub const PAGE: Bounds = Bounds { min: 1, default: 1_000, max: 1_000 };

/// Bytes of documents after which a page of such a list ends. A page has one document at least: an
/// endpoint may have more than a MiB of `env`.
pub const PAGE_BYTES_MAX: usize = MIB;

/// Largest `output` of a job, in bytes (20 MiB). A handler that returns more fails its job.
pub const OUTPUT_BYTES_MAX: usize = 20 * MIB;

/// Largest `error` text of a job, in bytes. Longer texts are cut at a character boundary.
pub const ERROR_BYTES_MAX: usize = 16 * KIB;

/// Most bytes of a job's `error` that stay in memory while the job exists. The whole text of a longer
/// error is on disk.
pub const ERROR_IN_MEMORY_BYTES_MAX: usize = 64;

/// Results of at most so many bytes are kept even when an endpoint's results have no room: then a job
/// can end with the sentence that says so.
pub const SMALL_RESULT_BYTES: usize = 512;

/// Largest stream chunk, in bytes (1 MiB). A larger one is split.
pub const CHUNK_BYTES_MAX: usize = MIB;

/// Largest `metrics` object of a chunk, in bytes. A larger one is refused to the handler.
pub const CHUNK_METRICS_BYTES_MAX: usize = 64 * KIB;

/// Most bytes of chunks in one `/stream` answer (8 MiB, and one chunk beyond it). The next call
/// returns the rest, and the answer with the last chunk has the job's final status.
pub const STREAM_PAGE_BYTES_MAX: usize = 8 * MIB;

/// Most chunks in one `/stream` answer.
pub const STREAM_PAGE_CHUNKS_MAX: usize = 10_000;

/// Most bytes that one attempt may emit in total (4 GiB). Beyond it `emit` returns
/// `quota-exceeded`.
pub const EMIT_TOTAL_BYTES_MAX: u64 = 4 << 30;

/// Bytes that each emit counts in addition to its output, about the overhead of a chunk on disk:
/// otherwise a handler could emit billions of empty chunks.
pub const EMIT_OVERHEAD_BYTES: u64 = 64;

/// Largest partial output of a failed attempt, in bytes. A larger one is left out. It is far below
/// the size of payloads that stay in the journal, since the next attempt replaces it.
pub const PARTIAL_OUTPUT_BYTES_MAX: usize = 8 * KIB;

/// Largest progress value, in bytes. A larger one is dropped with a log line.
pub const PROGRESS_BYTES_MAX: usize = 64 * KIB;

/// Most bytes of log kept per attempt (256 KiB). Further lines are counted and dropped.
pub const LOG_BYTES_MAX: usize = 256 * KIB;

/// Longest log line, in bytes. A longer one is cut.
pub const LOG_LINE_BYTES_MAX: usize = 4 * KIB;

/// Largest uploaded component, in bytes (64 MiB): 413.
pub const COMPONENT_BYTES_MAX: usize = 64 * MIB;

/// Most uploads of one owner that wait to be compiled: 429.
pub const UPLOADS_WAITING_MAX: u32 = 16;

/// Most bytes on disk of all uploads in progress (1 GiB). Beyond it an upload is refused with 503.
pub const STAGED_BYTES_MAX: u64 = 1 << 30;

/// Largest manifest of an image, in bytes: 413, or the image is not fetched.
pub const IMAGE_MANIFEST_BYTES_MAX: usize = 64 * KIB;

/// Largest config of an image, in bytes. A manifest that names a larger one is refused.
pub const IMAGE_CONFIG_BYTES_MAX: usize = 64 * KIB;

/// Longest user name, and longest password, of credentials for a registry, in bytes: 400. Some
/// registries use tokens of some KiB as passwords.
pub const REGISTRY_SECRET_BYTES_MAX: usize = 16 * KIB;

/// Largest body of a management call other than an upload, in bytes (1 MiB): 413.
pub const MANAGEMENT_BODY_BYTES_MAX: usize = MIB;

/// `executionTimeout` of a submission, in milliseconds.
pub const EXECUTION_TIMEOUT_MS: Bounds = Bounds { min: 5_000, default: 600_000, max: SEVEN_DAYS };

/// `ttl` of a submission, in milliseconds.
pub const TTL_MS: Bounds = Bounds { min: 10_000, default: 86_400_000, max: SEVEN_DAYS };

/// `wait` of `/runsync`, in milliseconds; values outside are clamped.
pub const WAIT_MS: Bounds = Bounds { min: 1_000, default: 90_000, max: 300_000 };

/// `wait` of `/stream`, in milliseconds; values outside are clamped. The default stays below the 10
/// s after which some clients give up a call, and lose the chunks of its answer.
pub const STREAM_WAIT_MS: Bounds = Bounds { min: 0, default: 4_000, max: 300_000 };

/// How long a result of `/run` is kept after its completion, in milliseconds (30 minutes).
pub const RETENTION_ASYNC_MS: u64 = 1_800_000;

/// Least time for which a result of `/runsync` is kept, in milliseconds (1 minute); it is kept for
/// the call's `wait` when that is longer.
pub const RETENTION_SYNC_MS_MIN: u64 = 60_000;

/// A retention that an endpoint or a submission chooses, in milliseconds (1 minute to 30 days).
pub const RETENTION_MS: Bounds =
    Bounds { min: 60_000, default: RETENTION_ASYNC_MS, max: 2_592_000_000 };

/// A job whose host died this often while it ran is FAILED instead of queued again.
pub const CRASHES_MAX: u8 = 3;

/// Earlier attempts of a job that was queued again: its timeline has the newest of them.
pub const PAST_ATTEMPTS_MAX: usize = 8;

/// Lifetime of a key with an expiry, in seconds (at most 10 years).
pub const KEY_LIFETIME_S: Bounds = Bounds { min: 1, default: 0, max: 315_360_000 };

/// How long an attempt may continue after a cancel, in milliseconds, so that a handler can see
/// `cancelled` and end in order. The job itself is CANCELLED at once.
pub const CANCEL_GRACE_MS: u64 = 50;

/// Most jobs waiting on one endpoint; an operator may choose fewer. Beyond it a submission gets
/// 429.
pub const QUEUE_JOBS_MAX: usize = 2_000_000;

const SEVEN_DAYS: u64 = 7 * 86_400_000;

/// The range and the default of a number that a client may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Least value.
    pub min: u64,
    /// Value when none is given.
    pub default: u64,
    /// Greatest value.
    pub max: u64,
}

impl Bounds {
    /// The nearest value inside the bounds.
    pub fn clamp(self, value: u64) -> u64 {
        value.clamp(self.min, self.max)
    }

    /// Whether the value lies inside the bounds.
    pub fn contains(self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}
