//! JSON objects in bodies. Serde alone would also accept a list of the fields' values.

/// Implements serde's traits for a type with `#[serde(remote = "Self")]`, for which serde derives
/// plain functions: only an object is read.
macro_rules! only_objects {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        fields: A,
                    ) -> Result<$type, A::Error> {
                        $type::deserialize(serde::de::value::MapAccessDeserializer::new(fields))
                    }
                }

                deserializer.deserialize_map(Fields)
            }
        }
    };
}
pub(crate) use only_objects;

#[cfg(test)]
mod tests {
    use crate::management::{JobActionFilter, RateLimit};

    #[test]
    fn a_list_of_values_is_no_object() {
        let limit: RateLimit = serde_json::from_str(r#"{"callsPer10s":7}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&limit).unwrap(),
            r#"{"callsPer10s":7,"callsPerWorker":0}"#
        );
        let refused = serde_json::from_str::<RateLimit>("[7,3]").unwrap_err();
        assert!(refused.to_string().contains("expected an object"), "{refused}");
        let filter: JobActionFilter = serde_json::from_str(r#"{"idPrefix":"a"}"#).unwrap();
        assert_eq!(filter.id_prefix.as_deref(), Some("a"));
        serde_json::from_str::<JobActionFilter>(r#"[["echo"]]"#).unwrap_err();
    }
}
