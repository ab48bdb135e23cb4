//! Sample handlers, which a new user deploys without a compiler. The binary contains their
//! components; `make samples` writes them from the sources in `handlers`.
//!
//! **Bounds.** The components are constants. **Cost.** They are compressed, and take 160 KB.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::Serialize;

/// A handler that is ready to be deployed.
#[derive(Debug, Serialize)]
pub struct Sample {
    /// Its name, which its endpoint gets too.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// Its purpose in one sentence.
    pub about: &'static str,
    /// An input for its first job, as JSON on one line.
    pub input: &'static str,
    /// Its component, compressed with gzip.
    #[serde(skip)]
    pub packed: &'static [u8],
}

/// All samples.
pub static ALL: [Sample; 3] = [
    Sample {
        name: "word-count",
        title: "Word count",
        about: "Counts the lines, words and characters of a text.",
        input: r#"{"text":"to be or not to be"}"#,
        packed: include_bytes!("../components/word-count.wasm.gz"),
    },
    Sample {
        name: "chat",
        title: "Chat",
        about: "Writes short texts about mills, also for clients of OpenAI.",
        input: concat!(
            r#"{"openai_route":"/v1/chat/completions","openai_input":{"model":"gristmill-markov","#,
            r#""messages":[{"role":"user","content":"How is bread made?"}]}}"#
        ),
        packed: include_bytes!("../components/chat.wasm.gz"),
    },
    Sample {
        name: "echo",
        title: "Echo",
        about: "Returns its input.",
        input: r#"{"hello":"world"}"#,
        packed: include_bytes!("../components/echo.wasm.gz"),
    },
];

/// The one to begin with.
pub fn first() -> &'static Sample {
    let [first, ..] = &ALL;
    first
}

/// The sample of this name.
pub fn find(name: &str) -> Option<&'static Sample> {
    ALL.iter().find(|sample| sample.name == name)
}

impl Sample {
    /// Its component.
    ///
    /// # Errors
    /// Never: the tests read each component.
    pub fn component(&self) -> std::io::Result<Vec<u8>> {
        let mut component = Vec::new();
        GzDecoder::new(self.packed).read_to_end(&mut component)?;
        Ok(component)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_a_component_and_an_input_for_a_shell() {
        for Sample { name, input, .. } in &ALL {
            let component = find(name).unwrap().component().unwrap();
            assert!(component.starts_with(b"\0asm\x0d\0\x01\0"), "{name} is no component");
            let text = String::from_utf8_lossy(&component);
            assert!(
                !text.contains("/.cargo/"),
                "{name} has paths of a machine: run `make samples`"
            );
            serde_json::from_str::<serde_json::Map<_, _>>(input).unwrap();
            assert!(!input.contains('\''), "{name}: the input stands between single quotes");
        }
        assert!(find("no-such-sample").is_none());
    }
}
