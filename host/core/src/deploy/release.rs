//! The handlers that a template or an endpoint has run, so that an endpoint can go back to one of
//! them.
//!
//! **Bounds.** [`Releases::KEPT_MAX`] releases; the oldest is removed. Without its image and its
//! settings, a stored release has about 130 bytes; those that are the same as in the release before
//! it are stored once. Settings have some 500 bytes, and 20 for each of at most 64 variables, with
//! their names.

use std::ops::Deref;
use std::sync::Arc;

use gristmill_wire::management::ReleaseSettings;
use serde::{Deserialize, Serialize};

use crate::deploy::digest::ComponentDigest;
use crate::time::Timestamp;

/// A handler that a template or an endpoint has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The version of the endpoint, or the revision of the template, that ran it first.
    pub version: u32,
    /// The time of that first use.
    pub released_at: Timestamp,
    /// The template's image name at that time.
    pub image: Arc<str>,
    /// The component.
    pub component: ComponentDigest,
    /// The endpoint's settings at that time; `None` for releases of a template.
    pub settings: Option<Arc<ReleaseSettings>>,
}

/// The newest releases, the newest last; at most [`Releases::KEPT_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<StoredRelease>", into = "Vec<StoredRelease>")]
pub struct Releases(Vec<Release>);

impl Releases {
    /// Number of releases that are kept.
    pub const KEPT_MAX: usize = 20;

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the newest release.
    pub(crate) fn push(&mut self, release: Release) {
        self.0.push(release);
        let surplus = self.0.len().saturating_sub(Self::KEPT_MAX);
        self.0.drain(..surplus);
    }

    /// Adds the newest release, unless the one before it has the same component.
    pub(crate) fn push_new(&mut self, release: Release) {
        if self.0.last().is_none_or(|last| last.component != release.component) {
            self.push(release);
        }
    }
}

impl Deref for Releases {
    type Target = [Release];

    fn deref(&self) -> &[Release] {
        &self.0
    }
}

/// A release in a stored record: what is the same as in the release before it is absent.
#[derive(Serialize, Deserialize)]
struct StoredRelease {
    version: u32,
    released_at: Timestamp,
    /// `None`: that of the release before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<Arc<str>>,
    component: ComponentDigest,
    /// `None`: those of the release before it, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Arc<ReleaseSettings>>,
}

impl From<Releases> for Vec<StoredRelease> {
    fn from(Releases(releases): Releases) -> Self {
        let mut earlier: Option<Arc<str>> = None;
        let mut earlier_settings = None;
        let stored = releases.into_iter().map(|release| {
            let Release { version, released_at, image, component, settings } = release;
            let is_new = earlier.as_ref() != Some(&image);
            earlier = Some(image.clone());
            let image = is_new.then_some(image);
            let new_settings = settings.clone().filter(|_| settings != earlier_settings);
            earlier_settings = settings;
            StoredRelease { version, released_at, image, component, settings: new_settings }
        });
        stored.collect()
    }
}

impl From<Vec<StoredRelease>> for Releases {
    fn from(stored: Vec<StoredRelease>) -> Self {
        let mut releases = Self::default();
        let mut image: Arc<str> = Arc::from("");
        let mut settings = None;
        for release in stored {
            let StoredRelease { version, released_at, component, .. } = release;
            image = release.image.unwrap_or(image);
            settings = release.settings.or(settings);
            let (image, settings) = (image.clone(), settings.clone());
            releases.push(Release { version, released_at, image, component, settings });
        }
        releases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: u32, image: &str) -> Release {
        Release {
            version,
            released_at: Timestamp::from_millis(u64::from(version)),
            image: image.into(),
            component: ComponentDigest::of(&version.to_be_bytes()),
            settings: None,
        }
    }

    #[test]
    fn an_image_is_stored_once_in_a_row() {
        let given = [(1, "a:1"), (2, "a:1"), (3, "b:1"), (4, "b:1"), (5, "a:1")];
        let mut releases = Releases::default();
        given.iter().for_each(|(version, image)| releases.push(release(*version, image)));
        let stored = serde_json::to_value(&releases).unwrap();
        let has_image: Vec<_> = stored
            .as_array()
            .unwrap()
            .iter()
            .map(|release| release.get("image").is_some())
            .collect();
        assert_eq!(has_image, [true, false, true, false, true]);
        assert_eq!(serde_json::from_value::<Releases>(stored).unwrap(), releases);
    }

    #[test]
    fn settings_are_stored_once_in_a_row() {
        let settings = |memory_mib: u64| {
            let text = format!(
                r#"{{"templateId":"t","workersMin":0,"workersMax":1,"idleTimeout":5,"scalerType":"REQUEST_COUNT",
                "scalerValue":1,"executionTimeoutMs":1,"retention":{{}},"memoryMib":{memory_mib},
                "metering":"fuel","reuse":{{"maxJobs":1,"maxIdle":1}}}}"#
            );
            Some(Arc::new(serde_json::from_str::<ReleaseSettings>(&text).unwrap()))
        };
        let mut releases = Releases::default();
        for (version, of) in (1..).zip([None, None, Some(8), Some(8), Some(9), Some(8)]) {
            let settings = of.and_then(settings);
            releases.push(Release { settings, ..release(version, "a:1") });
        }
        let stored = serde_json::to_value(&releases).unwrap();
        let kept: Vec<_> =
            stored.as_array().unwrap().iter().map(|one| one.get("settings").is_some()).collect();
        assert_eq!(kept, [false, false, true, false, true, true]);
        assert_eq!(serde_json::from_value::<Releases>(stored).unwrap(), releases);
    }

    #[test]
    fn the_oldest_releases_are_removed_with_their_images() {
        let mut releases = Releases::default();
        for version in 0..50 {
            releases.push(release(version, "mill:latest"));
        }
        assert_eq!(releases.len(), Releases::KEPT_MAX);
        let stored = serde_json::to_vec(&releases).unwrap();
        assert!(stored.len() < 20 * 130 + 20, "{} bytes", stored.len());
        let read: Releases = serde_json::from_slice(&stored).unwrap();
        assert_eq!(read, releases);
        assert_eq!((read[0].version, &*read[0].image), (30, "mill:latest"));
        let last = release(49, "another:latest");
        releases.push_new(last);
        assert_eq!(read, releases, "it is the same component");
    }
}
