//! The text of a line in a file: `CHECKSUM NUMBER TIME JOB LEVEL TEXT`, so that an operator can
//! read the file with usual tools. The checksum, eight hexadecimal digits of CRC-32, covers the
//! rest of the line. A text of a handler has no line break, so each line stands alone: damage costs
//! the lines that it touches.

use std::io::Write as _;

use gristmill_core::hex::is_lower_hex;
use gristmill_core::id::JobId;
use gristmill_core::limits::LOG_LINE_BYTES_MAX;
use gristmill_core::logs::LogLine;
use gristmill_core::runtime::LogLevel;
use gristmill_core::time::Timestamp;

/// The first line of each file: its format and version.
pub(crate) const HEADER: &[u8] = b"gristmill-log 1\n";

/// The beginning of the first line in every version.
const FORMAT: &[u8] = b"gristmill-log ";

/// Whether a file with this beginning is of another version, whose lines may have another meaning.
/// A file with a damaged beginning is not.
pub(crate) fn is_of_other_version(start: &[u8]) -> bool {
    start.starts_with(FORMAT) && !start.starts_with(HEADER)
}

/// Most bytes of a line in a file: two numbers of 20 digits, a job's id of 46 characters, and the
/// rest.
pub(crate) const LINE_BYTES_MAX: usize = LOG_LINE_BYTES_MAX + 128;

/// Hexadecimal digits of a checksum.
const SUM_DIGITS: usize = 8;

/// Adds a line with its line break.
pub(crate) fn encode(line: &LogLine, into: &mut Vec<u8>) {
    let LogLine { number, at, job, level, text } = line;
    let begin = into.len();
    // Writing into memory does not fail.
    let _ = write!(into, "00000000 {number} {} {job} {} ", at.as_millis(), level.as_str());
    let end = text.floor_char_boundary(LOG_LINE_BYTES_MAX);
    // The runtime has removed control characters already.
    let text = text.bytes().take(end).map(|byte| if byte == b'\n' { b' ' } else { byte });
    into.extend(text);
    let (_, line) = into.split_at_mut(begin);
    let Some((sum, rest)) = line.split_at_mut_checked(SUM_DIGITS) else { return };
    let _ = write!(&mut sum[..], "{:08x}", crc32fast::hash(rest));
    into.push(b'\n');
}

/// The inverse, without the line break. `None`: damaged.
pub(crate) fn decode(line: &[u8]) -> Option<LogLine> {
    let (sum, rest) = line.split_at_checked(SUM_DIGITS)?;
    let sum = std::str::from_utf8(sum).ok().filter(|_| is_lower_hex(sum, SUM_DIGITS))?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(rest) {
        return None;
    }
    let mut fields = std::str::from_utf8(rest).ok()?.strip_prefix(' ')?.splitn(5, ' ');
    let number = fields.next()?.parse().ok()?;
    let at = Timestamp::from_millis(fields.next()?.parse().ok()?);
    let job: JobId = fields.next()?.parse().ok()?;
    let level = fields.next()?;
    let level = LogLevel::ALL.into_iter().find(|known| known.as_str() == level)?;
    Some(LogLine { number, at, job, level, text: fields.next()?.into() })
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{ShardId, SubmissionKind};
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> LogLine {
        let job = JobId::generate(SubmissionKind::Sync, ShardId(0xffff));
        let at = Timestamp::from_millis(u64::MAX);
        LogLine { number: u64::MAX, at, job, level: LogLevel::Error, text: text.into() }
    }

    fn encoded(line: &LogLine) -> Vec<u8> {
        let mut bytes = vec![];
        encode(line, &mut bytes);
        assert_eq!(bytes.pop(), Some(b'\n'));
        assert!(!bytes.contains(&b'\n') && bytes.len() < LINE_BYTES_MAX);
        bytes
    }

    #[test]
    fn a_damaged_line_is_no_line() {
        let bytes = encoded(&line("Grüße  an alle"));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "{bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len}");
        }
        assert!(decode(&bytes).is_some());
        // The sum of nothing, and a line of another format.
        assert_eq!((decode(b"00000000"), decode(&HEADER[..HEADER.len() - 1])), (None, None));
    }

    #[test]
    fn a_text_of_megabytes_is_cut_and_a_line_break_in_it_is_a_space() {
        let bytes = encoded(&line(&"ä\n".repeat(10 << 20)));
        let text = decode(&bytes).unwrap().text;
        assert!(text.starts_with("ä ä ä") && text.len() <= LOG_LINE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn lines_are_decoded_as_they_were(
            (number, at) in any::<(u64, u64)>(),
            level in prop::sample::select(&LogLevel::ALL[..]),
            text in "[^\n]{0,200}",
        ) {
            let (at, text) = (Timestamp::from_millis(at), text.into());
            let line = LogLine { number, at, level, text, ..line("") };
            prop_assert_eq!(decode(&encoded(&line)), Some(line));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
