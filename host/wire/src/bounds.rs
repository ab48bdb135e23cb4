//! The bounds of the HTTP APIs: each with its unit and the host's behaviour at the bound. The host
//! checks these constants; the bounds that no client sees are in its own crates. Bounds of one
//! setting of an endpoint stand beside the setting
//! ([`EndpointSettings`](crate::management::EndpointSettings)).

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
pub(crate) const SEVEN_DAYS_MS: u64 = 7 * 86_400_000;

/// Longest id, or part of an image's name, in bytes. Longer ones are refused with 400.
pub const NAME_BYTES_MAX: usize = 128;

/// Longest display name, in characters. Longer ones are refused with 400.
pub const NAME_CHARS_MAX: usize = 128;

/// Longest `webhook` of a submission, in bytes (2 KiB): 400. It stays in memory for as long as its
/// job and its deliveries exist.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2 * KIB;

/// Longest field of a submission's `s3Config`, in characters (4 Ki): 400.
pub const S3_FIELD_CHARS_MAX: usize = 4 * KIB;

/// Most pairs in the `tags` of a submission: 400.
pub const TAGS_MAX: usize = 16;

/// Longest key of a tag, in bytes: 400. Keys are ASCII.
pub const TAG_KEY_BYTES_MAX: usize = 64;

/// Longest value of a tag, in bytes: 400.
pub const TAG_VALUE_BYTES_MAX: usize = 256;

/// Longest `policy.key`, in bytes: 400.
pub const JOB_KEY_BYTES_MAX: usize = 64;

/// What a `policy.key` must be.
pub const JOB_KEY_RULE: &str = "must have 1 to 64 bytes, and no control character";

/// Whether the text can be the `policy.key` of a job.
pub fn is_job_key(text: &str) -> bool {
    (1..=JOB_KEY_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Most keys with a weight in an endpoint's `keys.weights`: 400.
pub const KEY_WEIGHTS_MAX: usize = 1_000;

/// A weight in `keys.weights`.
pub const KEY_WEIGHT: Bounds = Bounds { min: 1, default: 1, max: 1_000 };

/// The tag whose value is the `policy.key` of its job.
pub const JOB_KEY_TAG: &str = "policy/key";

/// The tag whose value is the `policy.priority` of its job.
pub const PRIORITY_TAG: &str = "policy/priority";

/// The tag of a job with `policy.debounceMs`. Its value is the time of the first submission that
/// was replaced, in milliseconds since 1970.
pub const DEBOUNCE_TAG: &str = "policy/debounce";

/// `policy.priority`.
pub const PRIORITY: Bounds = Bounds { min: 0, default: 0, max: 9 };

/// `policy.debounceMs` and `policy.debounceMaxMs`, in milliseconds.
pub const DEBOUNCE_MS: Bounds = Bounds { min: 1, default: 1_000, max: SEVEN_DAYS_MS };

/// Most bytes of all keys and values of a submission's `tags` (2 KiB): 400.
pub const TAGS_BYTES_MAX: usize = 2 * KIB;

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

/// Most further host names of an endpoint: 400.
pub const HTTP_HOSTS_MAX: usize = 16;

/// Most bytes of a domain: 400.
pub const DOMAIN_BYTES_MAX: usize = 200;

/// Most origins or headers in a list of an endpoint's `http.cors`: 400.
pub const CORS_LIST_MAX: usize = 64;

/// Most bytes of such an origin: 400.
pub const CORS_ORIGIN_BYTES_MAX: usize = 270;

/// Most bytes of the name of such a header: 400.
pub const HEADER_NAME_BYTES_MAX: usize = 64;

/// Most endpoints that the handlers of an endpoint may call: 400.
pub const CALL_ENDPOINTS_MAX: usize = 256;

/// Most network volumes of an endpoint: 400.
pub const NETWORK_VOLUMES_MAX: usize = 1;

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

/// `limit` of `/requests`, of a list of jobs and of one of HTTP requests; a number outside is
/// refused with 400.
pub const LIST_JOBS: Bounds = Bounds { min: 1, default: 100, max: 1_000 };

/// Most endpoints that one list of jobs searches: 400.
pub const FILTER_ENDPOINTS_MAX: usize = 1_000;

/// Most endpoints that one action on many jobs names: 400. An action that names none is for all
/// endpoints that its key sees, [`FILTER_ENDPOINTS_MAX`] at most.
pub const ACTION_ENDPOINTS_MAX: usize = 100;

/// Longest text that a list of jobs searches in errors, in characters: 400.
pub const FILTER_ERROR_CHARS_MAX: usize = 256;

/// Longest text of a time in a request: 400.
pub const TIME_CHARS_MAX: usize = 64;

/// `tail` of an endpoint's log lines; a number outside is refused with 400.
pub const LIST_LOGS: Bounds = Bounds { min: 0, default: 100, max: 10_000 };

/// `limit` of the lists of the management API; a number outside is refused with 400. The default is
/// the maximum, because some clients do not expect pages.
pub const PAGE: Bounds = Bounds { min: 1, default: 1_000, max: 1_000 };

/// Largest `output` of a job, in bytes (20 MiB). A handler that returns more fails its job.
pub const OUTPUT_BYTES_MAX: usize = 20 * MIB;

/// Largest stream chunk, in bytes (1 MiB). A larger one is split.
pub const CHUNK_BYTES_MAX: usize = MIB;

/// Largest uploaded component, in bytes (64 MiB): 413.
pub const COMPONENT_BYTES_MAX: usize = 64 * MIB;

/// Longest user name, and longest password, of credentials for a registry, in bytes: 400. Some
/// registries use tokens of some KiB as passwords.
pub const REGISTRY_SECRET_BYTES_MAX: usize = 16 * KIB;

/// Largest body of a management call other than an upload, in bytes (1 MiB): 413.
pub const MANAGEMENT_BODY_BYTES_MAX: usize = MIB;

/// `executionTimeout` of a submission, in milliseconds.
pub const EXECUTION_TIMEOUT_MS: Bounds =
    Bounds { min: 5_000, default: 600_000, max: SEVEN_DAYS_MS };

/// `ttl` of a submission, in milliseconds.
pub const TTL_MS: Bounds = Bounds { min: 10_000, default: 86_400_000, max: SEVEN_DAYS_MS };

/// `delay` of a submission, in milliseconds, and how far away its `runAt` may be.
pub const DELAY_MS: Bounds = Bounds { min: 0, default: 0, max: SEVEN_DAYS_MS };

/// `everyMs` of a schedule.
pub const EVERY_MS: Bounds = Bounds { min: 1_000, default: 3_600_000, max: 366 * 86_400_000 };

/// Longest `cron` of a schedule, in bytes.
pub const CRON_BYTES_MAX: usize = 256;

/// Longest name of a time zone, in bytes.
pub const TIME_ZONE_BYTES_MAX: usize = 64;

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

/// Lifetime of a key with an expiry, in seconds (at most 10 years).
pub const KEY_LIFETIME_S: Bounds = Bounds { min: 1, default: 0, max: 315_360_000 };

/// Longest `Idempotency-Key`, in characters: 400.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;

/// Whether a text can be an `Idempotency-Key`: 1 to [`IDEMPOTENCY_KEY_CHARS_MAX`] printable ASCII
/// characters.
pub fn is_idempotency_key(text: &[u8]) -> bool {
    let is_printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    is_printable && (1..=IDEMPOTENCY_KEY_CHARS_MAX).contains(&text.len())
}

/// Longest `volumeMountPath` of a template, in bytes: 400.
pub const MOUNT_PATH_BYTES_MAX: usize = 256;

/// Size of a network volume, in gigabytes of 2^30 bytes.
pub const VOLUME_GB: Bounds = Bounds { min: 1, default: 1, max: 4_000 };

/// Longest path of a file on a volume, in bytes: 400.
pub const VOLUME_PATH_BYTES_MAX: usize = 4 * KIB;

/// Longest name of a file on a volume, in bytes: 400.
pub const VOLUME_FILE_NAME_BYTES_MAX: usize = 255;

/// Most levels of a path on a volume: 400.
pub const VOLUME_LEVELS_MAX: usize = 64;

/// Most files of a volume that calls read or write at one time: 429.
pub const VOLUME_TRANSFERS_MAX: usize = 16;

/// The operations whose rate limits an endpoint can choose.
pub const RATE_LIMITED_OPERATIONS: [&str; 10] = [
    "run",
    "runsync",
    "openai",
    "status",
    "stream",
    "cancel",
    "retry",
    "purge-queue",
    "requests",
    "http",
];

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

/// The error for a text that is not a whole number inside its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a whole number from {min} to {max}, without a unit")]
pub struct OutOfBounds {
    min: u64,
    max: u64,
}

impl Bounds {
    /// From 1 to `max`, for a number that can be absent.
    pub const fn upto(max: u64) -> Self {
        Self { min: 1, default: 1, max }
    }

    /// The nearest value inside the bounds.
    pub fn clamp(self, value: u64) -> u64 {
        value.clamp(self.min, self.max)
    }

    /// Reads a number in decimal digits, without a unit.
    ///
    /// # Errors
    /// When the text is no number, or the number is outside the bounds or does not fit into `T`.
    pub fn parse<T: TryFrom<u64>>(self, text: &str) -> Result<T, OutOfBounds> {
        let number = text.parse().ok().filter(|number| self.contains(*number));
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        number.ok_or(OutOfBounds { min: self.min, max: self.max })
    }

    /// Whether the value lies inside the bounds.
    pub fn contains(self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_short_and_printable() {
        let longest = "~".repeat(IDEMPOTENCY_KEY_CHARS_MAX);
        for key in ["a", " ", &longest] {
            assert!(is_idempotency_key(key.as_bytes()), "{key}");
        }
        for no_key in ["", "a\tb", "a\u{7f}", "ä", &format!("{longest}~")] {
            assert!(!is_idempotency_key(no_key.as_bytes()), "{no_key}");
        }
    }
}
