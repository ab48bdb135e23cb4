//! JSON objects in bodies.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// For `deserialize_with`: an object, or null. Serde alone would also accept a list of the fields'
/// values.
pub(crate) fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let fields = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    fields.map(|fields| T::deserialize(fields).map_err(D::Error::custom)).transpose()
}
