//! Whole numbers in JSON bodies. `2`, `2.0` and `2e0` are the same number in JSON, and some clients
//! only write the second form.

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// A number without a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeNumber(pub i128);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = WholeNumber;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number.into()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number.into()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<WholeNumber, E> {
                if number.fract() != 0.0 {
                    return Err(E::invalid_type(Unexpected::Float(number), &self));
                }
                #[expect(clippy::cast_possible_truncation, reason = "saturates: out of any bounds")]
                Ok(WholeNumber(number as i128))
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// For `deserialize_with`: a whole number that fits the field's type.
///
/// # Errors
/// For anything else.
pub fn required<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i128>,
{
    let WholeNumber(number) = WholeNumber::deserialize(deserializer)?;
    T::try_from(number).map_err(|_| out_of_range(number))
}

/// The same, or null.
///
/// # Errors
/// For anything else.
pub fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i128>,
{
    let Some(WholeNumber(number)) = Option::deserialize(deserializer)? else { return Ok(None) };
    T::try_from(number).map(Some).map_err(|_| out_of_range(number))
}

fn out_of_range<E: de::Error>(number: i128) -> E {
    if number < 0 {
        return E::custom(format_args!("{number} is negative; the least is 0"));
    }
    E::custom("the number is too large for any such field")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_fit_is_refused_with_the_reason() {
        #[derive(Debug, serde::Deserialize)]
        struct One(
            #[serde(deserialize_with = "required")]
            #[expect(dead_code, reason = "only its reading is tested")]
            u32,
        );

        let said = |text| serde_json::from_str::<One>(text).unwrap_err().to_string();
        assert_eq!(said("-1"), "-1 is negative; the least is 0");
        for large in ["5000000000", "1e99"] {
            assert!(said(large).starts_with("the number is too large"), "{}", said(large));
        }
    }

    #[test]
    fn one_number_has_many_spellings_and_a_fraction_is_none_of_them() {
        let cases = [
            ("2", Some(2)),
            ("2.0", Some(2)),
            ("2e0", Some(2)),
            ("-7.0", Some(-7)),
            ("18446744073709551615", Some(u64::MAX.into())),
            ("1e300", Some(i128::MAX)),
            ("2.5", None),
            ("\"2\"", None),
            ("true", None),
        ];
        for (text, expected) in cases {
            let number: Option<WholeNumber> = serde_json::from_str(text).ok();
            assert_eq!(number.map(|WholeNumber(number)| number), expected, "{text}");
        }
    }
}
