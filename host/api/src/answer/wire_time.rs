//! The format of times in answers.

use gristmill_core::time::Timestamp;

/// A time in RFC 3339, in UTC, always with three digits of milliseconds: such texts have one
/// length, and their order is that of the times.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    format!("{:.3}", time(at))
}

/// A time in RFC 3339, in UTC, without zeros at the end of its fraction: for whole hours, and for
/// documents whose digest must be that of earlier versions.
pub(crate) fn rfc3339_shortest(at: Timestamp) -> String {
    time(at).to_string()
}

fn time(at: Timestamp) -> jiff::Timestamp {
    let ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_digits() {
        for (ms, text) in [
            (1_234, "1970-01-01T00:00:01.234Z"),
            (1_790, "1970-01-01T00:00:01.790Z"),
            (2_000, "1970-01-01T00:00:02.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_millis(ms)), text);
        }
        assert_eq!(rfc3339_shortest(Timestamp::from_millis(2_000)), "1970-01-01T00:00:02Z");
        assert_eq!(rfc3339_shortest(Timestamp::from_millis(1_790)), "1970-01-01T00:00:01.79Z");
    }
}
