//! Types whose values are words of requests and answers.

/// Defines such a type: each value with its word. Another text is refused with the words that are
/// allowed, and so is a value that is no text: for a number, serde's own code would only say
/// "expected value".
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $type:ident { $($(#[$value_about:meta])* $value:ident = $word:tt,)+ }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum $type {
            $(
                $(#[$value_about])*
                #[cfg_attr(feature = "openapi", schema(rename = $word))]
                $value,
            )+
        }

        impl $type {
            const WORDS: &[&str] = &[$($word),+];

            /// All of them.
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$value),+];

            /// The word that stands for it in requests and answers.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;

                impl serde::de::Visitor<'_> for Word {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "one of `{}`", $type::WORDS.join("`, `"))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        let found = $type::ALL.into_iter().find(|value| value.as_str() == text);
                        found.ok_or_else(|| E::unknown_variant(text, $type::WORDS))
                    }
                }

                deserializer.deserialize_str(Word)
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::management::ScalerType;

    #[test]
    fn a_word_is_read_as_it_is_written_and_a_refusal_has_what_came_and_what_is_allowed() {
        for value in ScalerType::ALL {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(text, format!("{:?}", value.as_str()));
            assert_eq!(serde_json::from_str::<ScalerType>(&text).unwrap(), value);
        }
        for (given, came) in
            [("5", "integer `5`"), ("{}", "map"), ("null", "null"), ("\"x\"", "`x`")]
        {
            let refused = serde_json::from_str::<ScalerType>(given).unwrap_err().to_string();
            for part in [came, "`QUEUE_DELAY`", "`REQUEST_COUNT`"] {
                assert!(refused.contains(part), "{given}: {refused}");
            }
        }
    }
}
