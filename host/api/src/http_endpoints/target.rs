//! The endpoint and the handler's own part of a path.

/// The prefix of these paths.
pub(super) const PREFIX: &str = "/http/";

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'p> {
    /// The text in the place of the endpoint's id.
    pub(super) endpoint: &'p str,
    /// The handler's path with its first slash, byte for byte; `None` when the path ends with the
    /// endpoint.
    pub(super) rest: Option<&'p str>,
}

impl<'p> Target<'p> {
    /// `None` for a path that is not one of a handler.
    pub(crate) fn of(path: &'p str) -> Option<Self> {
        let below = path.strip_prefix(PREFIX)?;
        let end = below.find('/').unwrap_or(below.len());
        let (endpoint, rest) = below.split_at_checked(end)?;
        (!endpoint.is_empty())
            .then_some(Self { endpoint, rest: Some(rest).filter(|rest| !rest.is_empty()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_handler_stays_as_it_is() {
        for (path, endpoint, rest) in [
            ("/http/site", "site", None),
            ("/http/site/", "site", Some("/")),
            ("/http/site/a//b/../%2F;c", "site", Some("/a//b/../%2F;c")),
            ("/http/site//", "site", Some("//")),
            ("/http/s%2Fx/a", "s%2Fx", Some("/a")),
            ("/http/site/openai/v1", "site", Some("/openai/v1")),
        ] {
            assert_eq!(Target::of(path), Some(Target { endpoint, rest }), "{path}");
        }
        for path in ["/http", "/http/", "/http//site", "/https/site/", "/v2/http/run", "//http/a"] {
            assert_eq!(Target::of(path), None, "{path}");
        }
    }
}
