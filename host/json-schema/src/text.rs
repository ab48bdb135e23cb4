//! What a JSON text has, without parsing it.

/// Whether objects and lists of `text`, which is one JSON value, are nested deeper than `levels`.
/// Costs no stack, and half a nanosecond for each byte outside strings.
pub fn is_nested_deeper(text: &str, levels: usize) -> bool {
    let mut depth = 0_usize;
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'"' => rest = after_string(rest),
            b'{' | b'[' => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The most values that `text`, which is one JSON value, can have: each one but the first follows a
/// comma or a bracket. Costs as much as [`is_nested_deeper`].
pub(crate) fn values_at_most(text: &str) -> usize {
    let mut count = 1;
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'"' => rest = after_string(rest),
            b',' | b'{' | b'[' => count += 1,
            _ => {}
        }
    }
    count
}

/// The text after the string that has begun.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(at) == Some(&b'"');
        rest = rest.get(at + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_strings() {
        let cases = [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[1,{"b":2}],"c":[[]]}"#, 3),
            (r#"["[[[[", "\\", "\"[["]"#, 1),
            ("[[],[],[[]]]", 3),
        ];
        for (text, depth) in cases {
            assert!(!is_nested_deeper(text, depth), "{text}");
            assert!(depth == 0 || is_nested_deeper(text, depth - 1), "{text}");
        }
    }

    #[test]
    fn values_are_counted_outside_strings() {
        for (text, most) in
            [("1", 1), ("[]", 2), (r#"{"a":[1,{"b":2}]}"#, 5), (r#"["a,b,[","c"]"#, 3)]
        {
            assert_eq!(values_at_most(text), most, "{text}");
        }
    }
}
