//! Every fixed bound of the platform, with its unit, the code that enforces it, and the behaviour
//! at the bound. Bounds that an operator can change are settings, not constants. Those that clients
//! see are constants of [`gristmill_wire::bounds`].

pub use gristmill_wire::bounds::{
    ACTION_ENDPOINTS_MAX, ARGUMENT_CHARS_MAX, ARGUMENTS_MAX, Bounds, CHUNK_BYTES_MAX,
    COMPONENT_BYTES_MAX, CRON_BYTES_MAX, DEBOUNCE_MS, DEBOUNCE_TAG, DELAY_MS, EVERY_MS,
    EXECUTION_TIMEOUT_MS, FILTER_ENDPOINTS_MAX, FILTER_ERROR_CHARS_MAX, HOST_PATTERN_BYTES_MAX,
    IDEMPOTENCY_KEY_CHARS_MAX, IMAGE_NAME_CHARS_MAX, JOB_KEY_TAG, JSON_NESTING_MAX,
    KEY_ENDPOINTS_MAX, KEY_LIFETIME_S, LIST_JOBS, LIST_LOGS, MANAGEMENT_BODY_BYTES_MAX,
    NAME_BYTES_MAX, NAME_CHARS_MAX, NETWORK_VOLUMES_MAX, OUTPUT_BYTES_MAX, OutOfBounds, PAGE,
    PORTS_MAX, PRIORITY, PRIORITY_TAG, README_CHARS_MAX, REGISTRY_SECRET_BYTES_MAX,
    RETENTION_ASYNC_MS, RETENTION_MS, RETENTION_SYNC_MS_MIN, RUN_BODY_BYTES_MAX,
    RUN_SYNC_BODY_BYTES_MAX, S3_FIELD_CHARS_MAX, STREAM_WAIT_MS, TAG_KEY_BYTES_MAX, TAGS_MAX,
    TIME_CHARS_MAX, TIME_ZONE_BYTES_MAX, TTL_MS, VOLUME_FILE_NAME_BYTES_MAX, VOLUME_LEVELS_MAX,
    VOLUME_PATH_BYTES_MAX, VOLUME_TRANSFERS_MAX, WAIT_MS, WEBHOOK_URL_BYTES_MAX,
    is_idempotency_key,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Bytes of documents after which a page of a list of the management API ends. A page has one
/// document at least: an endpoint may have more than a MiB of `env`.
pub const PAGE_BYTES_MAX: usize = MIB;

/// Largest `error` text of a job, in bytes. Longer texts are cut at a character boundary.
pub const ERROR_BYTES_MAX: usize = 16 * KIB;

/// Most bytes of a job's `error` that stay in memory while the job exists. The whole text of a
/// longer error is on disk.
pub const ERROR_IN_MEMORY_BYTES_MAX: usize = 64;

/// Results of at most so many bytes are kept even when an endpoint's results have no room: then a
/// job can end with the sentence that says so.
pub const SMALL_RESULT_BYTES: usize = 512;

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

/// Most jobs that the handler of one attempt may submit to other endpoints. Beyond it a call
/// returns `limit-reached`. Each call waits for the disk, and queues and owners have their own
/// bounds.
pub const HANDLER_CALLS_MAX: u32 = 1_000;

/// Milliseconds before the deadline of its attempt at which a handler's call stops to wait, so that
/// the handler can still return an error that names the job.
pub const HANDLER_CALL_MARGIN_MS: u64 = 250;

/// Largest partial output of a failed attempt, in bytes. A larger one is left out. It is far below
/// the size of payloads that stay in the journal, since the next attempt replaces it.
pub const PARTIAL_OUTPUT_BYTES_MAX: usize = 8 * KIB;

/// Largest progress value, in bytes. A larger one is dropped with a log line.
pub const PROGRESS_BYTES_MAX: usize = 64 * KIB;

/// Most bytes of log kept per attempt (256 KiB). Further lines are counted and dropped.
pub const LOG_BYTES_MAX: usize = 256 * KIB;

/// Longest log line, in bytes. A longer one is cut.
pub const LOG_LINE_BYTES_MAX: usize = 4 * KIB;

/// Most uploads of one owner that wait to be compiled: 429.
pub const UPLOADS_WAITING_MAX: u32 = 16;

/// Most bytes on disk of all uploads in progress (1 GiB). Beyond it an upload is refused with 503.
pub const STAGED_BYTES_MAX: u64 = 1 << 30;

/// Largest manifest of an image, in bytes: 413, or the image is not fetched.
pub const IMAGE_MANIFEST_BYTES_MAX: usize = 64 * KIB;

/// Largest config of an image, in bytes. A manifest that names a larger one is refused.
pub const IMAGE_CONFIG_BYTES_MAX: usize = 64 * KIB;

/// A job whose host died this often while it ran is FAILED instead of queued again, unless the
/// operator chooses another number.
pub const CRASHES_MAX: u8 = 3;

/// The same for a host that was lost for another reason.
pub const LOSSES_MAX: u8 = 10;

/// Earlier attempts of a job that was queued again: its timeline has the newest of them.
pub const PAST_ATTEMPTS_MAX: usize = 32;

/// Bytes that are kept of the error of an earlier attempt.
pub const PAST_ERROR_BYTES_MAX: usize = 64;

/// How long an attempt may continue after a cancel, in milliseconds, so that a handler can see
/// `cancelled` and end in order. The job itself is CANCELLED at once.
pub const CANCEL_GRACE_MS: u64 = 50;

/// Most jobs waiting on one endpoint; an operator may choose fewer. Beyond it a submission gets
/// 429.
pub const QUEUE_JOBS_MAX: usize = 2_000_000;
