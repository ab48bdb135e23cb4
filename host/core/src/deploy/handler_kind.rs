//! What a component handles, by the interfaces that it exports.

use gristmill_wire::management::EndpointType;

/// A kind of handler. A component has one, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerKind {
    /// Of jobs, which wait in a queue.
    Jobs,
    /// Of HTTP requests.
    Http,
}

impl From<EndpointType> for HandlerKind {
    fn from(endpoint: EndpointType) -> Self {
        match endpoint {
            EndpointType::Queue => Self::Jobs,
            EndpointType::LoadBalancer => Self::Http,
        }
    }
}

impl From<HandlerKind> for EndpointType {
    fn from(handler: HandlerKind) -> Self {
        match handler {
            HandlerKind::Jobs => Self::Queue,
            HandlerKind::Http => Self::LoadBalancer,
        }
    }
}

impl HandlerKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Jobs, Self::Http];

    /// The interface that a component exports for it, and the track of its versions.
    pub fn export(self) -> (&'static str, &'static str) {
        match self {
            Self::Jobs => ("gristmill:handler/run", "0.1"),
            Self::Http => ("wasi:http/incoming-handler", "0.2"),
        }
    }

    /// The kinds of a component with these exports.
    pub fn of(exports: &[String]) -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| kind.is_among(exports)).collect()
    }

    /// Whether a component with these exports has such a handler.
    pub fn is_among(self, exports: &[String]) -> bool {
        let (interface, track) = self.export();
        exports.iter().any(|export| interface_of(export, track) == Some(interface))
    }
}

/// The interface in the name of an import or export, `package/interface@version`; `None` unless the
/// version is a released one of this track.
pub fn interface_of<'n>(name: &'n str, track: &str) -> Option<&'n str> {
    let (interface, version) = name.split_once('@')?;
    let patch = version.strip_prefix(track)?;
    (patch.starts_with('.') && !patch.contains('-')).then_some(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_released_version_of_the_track_is_the_kind() {
        for (export, expected) in [
            ("gristmill:handler/run@0.1.0", [true, false]),
            ("gristmill:handler/run@0.1.7", [true, false]),
            ("gristmill:handler/run@0.2.0", [false, false]),
            ("gristmill:handler/run@0.10.0", [false, false]),
            ("wasi:http/incoming-handler@0.2.0", [false, true]),
            ("wasi:http/incoming-handler@0.2.12", [false, true]),
            ("wasi:http/incoming-handler@0.2.0-rc-2023-12-05", [false, false]),
            ("wasi:http/handler@0.3.0", [false, false]),
            ("run", [false, false]),
        ] {
            let exports = [export.to_owned()];
            assert_eq!(HandlerKind::ALL.map(|kind| kind.is_among(&exports)), expected, "{export}");
        }
        let both = ["wasi:http/incoming-handler@0.2.0", "a:b/c", "gristmill:handler/run@0.1.0"];
        assert_eq!(HandlerKind::of(&both.map(str::to_owned)), HandlerKind::ALL);
    }
}
