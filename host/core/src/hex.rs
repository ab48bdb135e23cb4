//! Lower-case hexadecimal digits, the only spelling of ids, digests and checksums in this host.

/// Whether a text is exactly this many lower-case hexadecimal digits.
pub fn is_lower_hex(text: &[u8], digits: usize) -> bool {
    text.len() == digits && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The digit of a number below 16.
pub(crate) fn lower_hex_digit(number: u8) -> u8 {
    if number < 10 { b'0' + number } else { b'a' + number - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_lower_case_digits_count() {
        assert!(is_lower_hex(b"09af", 4) && is_lower_hex(b"", 0));
        for wrong in ["09a", "09aff", "09aF", "09ag", "+9af", " 9af"] {
            assert!(!is_lower_hex(wrong.as_bytes(), 4), "{wrong}");
        }
    }
}
