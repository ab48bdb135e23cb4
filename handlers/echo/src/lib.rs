//! Returns its input, byte for byte.
//!
//! `RawJson` is not parsed, so this is also the lowest cost of a job.

use gristmill_sdk::{Context, Error, RawJson, handler};

fn echo(_ctx: &Context, input: RawJson) -> Result<RawJson, Error> {
    Ok(input)
}

handler!(echo);

#[cfg(test)]
mod tests {
    use gristmill_sdk::testing::TestContext;

    use super::*;

    #[test]
    fn nothing_changes() {
        for text in [r#"{"z":9007199254740993, "a":1.50}"#, r#""é\u00e9""#, "null"] {
            assert_eq!(TestContext::new().run_json(echo, text).unwrap(), text);
        }
    }
}
