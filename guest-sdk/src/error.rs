//! The failures of jobs and of chunks.

use std::fmt;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// The failure of a job that its handler cannot complete. Every case makes the job `FAILED`, and
/// the host does not run it again: it runs a job again only if the host itself stopped during the
/// job.
///
/// Any [`std::error::Error`] converts to [`Error::Failed`], so `?` works. To make that possible
/// this type is not a `std::error::Error` itself; for a type that is only
/// [`Display`](fmt::Display), write `.map_err(Error::failed)`.
///
/// ```
/// use gristmill_sdk::{Context, Error};
///
/// fn double(_ctx: &Context, input: String) -> Result<i64, Error> {
///     let number: i64 = input.trim().parse()?;
///     number.checked_mul(2).ok_or_else(|| Error::invalid_input("the number is too large"))
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The handler does not accept the input.
    InvalidInput(Failure),
    /// The work could not be done.
    Failed(Failure),
    /// The handler stopped because [`Context::cancelled`](crate::Context::cancelled) was true.
    Cancelled,
}

/// A message about the failure and, optionally, data for programs.
///
/// ```
/// # use gristmill_sdk::Error;
/// let Error::Failed(failure) = Error::failed("the disk is full") else { unreachable!() };
/// assert_eq!(failure.message, "the disk is full");
/// assert!(failure.details.is_none());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failure {
    /// One sentence for the person who submitted the job. Becomes the job's `error`.
    pub message: String,
    /// Additional data for programs, as JSON. Appended to the job's `error`.
    pub details: Option<Box<RawValue>>,
}

impl Error {
    /// Refuses the input.
    ///
    /// ```
    /// # use gristmill_sdk::Error;
    /// assert_eq!(Error::invalid_input("width must not be 0").message(), "width must not be 0");
    /// ```
    pub fn invalid_input(message: impl fmt::Display) -> Self {
        Self::InvalidInput(Failure { message: message.to_string(), details: None })
    }

    /// Ends the job because the work could not be done.
    ///
    /// ```
    /// # use gristmill_sdk::Error;
    /// assert_eq!(Error::failed(format_args!("{} of 9 pages", 3)).message(), "3 of 9 pages");
    /// ```
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(Failure { message: message.to_string(), details: None })
    }

    /// Adds data to the error and replaces earlier data. [`Error::Cancelled`] has no data and stays
    /// unchanged. A value without a JSON form is replaced by a string with the reason.
    ///
    /// ```
    /// # use gristmill_sdk::Error;
    /// let error = Error::failed("the upload broke off").with_details(&[3, 4]);
    /// assert_eq!(error.details().unwrap().get(), "[3,4]");
    /// ```
    #[must_use]
    pub fn with_details(mut self, details: &impl Serialize) -> Self {
        if let Self::InvalidInput(failure) | Self::Failed(failure) = &mut self {
            failure.details = to_raw_value(details)
                .or_else(|error| to_raw_value(&format!("details have no JSON form: {error}")))
                .ok();
        }
        self
    }

    /// The sentence for the person who submitted the job.
    ///
    /// ```
    /// # use gristmill_sdk::Error;
    /// assert_eq!(Error::Cancelled.message(), "cancelled");
    /// ```
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidInput(failure) | Self::Failed(failure) => &failure.message,
            Self::Cancelled => "cancelled",
        }
    }

    /// The data for programs, if there is any.
    ///
    /// ```
    /// # use gristmill_sdk::Error;
    /// assert!(Error::failed("no").details().is_none());
    /// ```
    pub fn details(&self) -> Option<&RawValue> {
        match self {
            Self::InvalidInput(failure) | Self::Failed(failure) => failure.details.as_deref(),
            Self::Cancelled => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// The message is the error's text, followed by the texts of its sources, except those that it ends
/// with already.
impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self::Failed(Failure { message, details: None })
    }
}

/// Why a chunk was not added to the job's stream.
///
/// A handler that cannot continue without its stream returns this error with `?`.
///
/// ```
/// use gristmill_sdk::{Context, EmitError, testing::TestContext};
///
/// let ctx = TestContext::new().with_emit_quota(8);
/// assert_eq!(ctx.emit(&"short"), Ok(()));
/// assert_eq!(ctx.emit(&"too much"), Err(EmitError::QuotaExceeded { limit_bytes: 8 }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmitError {
    /// The attempt has ended: cancelled, timed out, or replaced by another one.
    Closed,
    /// The output has no JSON form, or the metrics are not a JSON object; the text has the reason.
    InvalidJson(String),
    /// With this chunk the attempt would emit more bytes than the limit.
    QuotaExceeded {
        /// The limit, in bytes of JSON text.
        limit_bytes: u64,
    },
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("stream is closed: the attempt is over"),
            Self::InvalidJson(why) => write!(f, "chunk is not JSON: {why}"),
            Self::QuotaExceeded { limit_bytes } => {
                write!(f, "chunks exceed the attempt's limit: {limit_bytes} bytes")
            }
        }
    }
}

impl std::error::Error for EmitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError, bool);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bad page number")?;
            if self.1 { write!(f, ": {}", self.0) } else { Ok(()) }
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn message_names_every_source_once() {
        for has_text_of_its_source in [false, true] {
            let source = "x".parse::<u8>().unwrap_err();
            let error = Error::from(Outer(source, has_text_of_its_source));
            assert_eq!(error.message(), "bad page number: invalid digit found in string");
            assert!(matches!(error, Error::Failed(_)));
        }
    }

    #[test]
    fn details_without_a_json_form_say_why() {
        let keys_are_lists = std::collections::BTreeMap::from([(vec![1], 2)]);
        let error = Error::invalid_input("no").with_details(&keys_are_lists);
        assert_eq!(
            error.details().unwrap().get(),
            r#""details have no JSON form: key must be a string""#
        );
    }

    #[test]
    fn cancelled_carries_no_details() {
        assert!(Error::Cancelled.with_details(&1).details().is_none());
    }
}
