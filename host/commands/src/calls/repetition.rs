//! Calls that are repeated while the host refuses them for a reason that passes.

use std::time::Duration;

use gristmill_client::ClientError;
use gristmill_client::wire::ErrorCode;

/// Longest wait before a call is repeated. The limits of the host are for ten seconds.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The wait if the host names none.
const PAUSE: Duration = Duration::from_secs(1);

/// Most repetitions of one submission for reasons other than the limits of the host.
const FAILURES_MAX: u32 = 10;

/// Most repetitions of one submission while the queue is full: some five minutes. The endpoint may
/// be paused.
const QUEUE_FULL_MAX: u32 = 300;

/// Repeats a call while it is beyond the limits of the host: a directory may have thousands of
/// files.
///
/// # Errors
/// Every other failure of the call.
pub(crate) async fn within_limits<T>(
    mut call: impl AsyncFnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    loop {
        match call().await {
            Err(error) if is_over_limit(&error) => pause(&error).await,
            done => return done,
        }
    }
}

/// Repeats a submission as [`within_limits`] does, and some times after a failure that may pass,
/// such as 503. The submission must have an `Idempotency-Key`, since an earlier one may have made
/// the job.
///
/// # Errors
/// The last failure of too many, a failure that does not pass, and at once that there is no
/// connection: the host is not started, or the URL is wrong.
pub async fn until_accepted<T>(
    mut submit: impl AsyncFnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let (mut failed, mut was_full) = (0, 0);
    loop {
        match within_limits(&mut submit).await {
            Err(error) if was_full < QUEUE_FULL_MAX && is_queue_full(&error) => {
                was_full += 1;
                pause(&error).await;
            }
            Err(error) if failed < FAILURES_MAX && may_pass(&error) => {
                failed += 1;
                pause(&error).await;
            }
            done => return done,
        }
    }
}

fn is_queue_full(error: &ClientError) -> bool {
    error.code() == Some(ErrorCode::QueueFull)
}

fn may_pass(error: &ClientError) -> bool {
    if is_queue_full(error) {
        return false;
    }
    let is_connected = !matches!(error, ClientError::Unreachable { .. });
    is_connected && (error.is_retry_safe() || error.is_passing())
}

/// Whether the call is beyond a limit for the calls of one time.
pub(crate) fn is_over_limit(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::RateLimited | ErrorCode::ConcurrencyLimited))
}

/// Waits until the host will accept a call again, as far as it knows.
pub(crate) async fn pause(error: &ClientError) {
    tokio::time::sleep(error.retry_after().unwrap_or(PAUSE).min(PAUSE_MAX)).await;
}

#[cfg(test)]
mod tests {
    use gristmill_client::Refusal;

    use super::*;

    fn refused(status: u16, code: ErrorCode) -> ClientError {
        ClientError::Refused(Box::new(Refusal {
            host: "http://h".parse().unwrap(),
            status,
            code: Some(code),
            message: None,
            retry_after: None,
            had_key: true,
        }))
    }

    /// Number of submissions when the first `failures` of them fail in this way.
    async fn submissions(failures: u32, error: ClientError) -> (u32, bool) {
        let mut made = 0;
        let submit = async || {
            made += 1;
            if made <= failures { Err(error.clone()) } else { Ok(()) }
        };
        let is_accepted = until_accepted(submit).await.is_ok();
        (made, is_accepted)
    }

    #[tokio::test(start_paused = true)]
    async fn a_submission_is_repeated_for_reasons_that_pass() {
        for (status, code) in [
            (429, ErrorCode::RateLimited),
            (429, ErrorCode::ConcurrencyLimited),
            (429, ErrorCode::QueueFull),
        ] {
            assert_eq!(submissions(99, refused(status, code)).await, (100, true), "{code:?}");
        }
        assert_eq!(submissions(999, refused(429, ErrorCode::QueueFull)).await, (301, false));
        for error in [
            refused(503, ErrorCode::Unavailable),
            refused(503, ErrorCode::DiskFull),
            refused(408, ErrorCode::RequestTimeout),
            ClientError::Interrupted("it broke".to_owned()),
        ] {
            assert_eq!(submissions(3, error.clone()).await, (4, true), "{error:?}");
            assert_eq!(submissions(99, error.clone()).await, (11, false), "{error:?}");
        }
        let sentence = "no Gristmill host answers".to_owned();
        for error in [
            refused(404, ErrorCode::NotFound),
            refused(500, ErrorCode::Internal),
            ClientError::Unreachable { sentence, is_refused: true, is_untrusted: false },
        ] {
            assert_eq!(submissions(9, error.clone()).await, (1, false), "{error:?}");
        }
    }
}
