//! The deployment of a handler that runs without a host.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint, EndpointSettings};
use gristmill_core::deploy::handler_kind::HandlerKind;
use gristmill_core::deploy::template::Template;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::id::{EndpointId, OwnerId, TemplateId, VolumeId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::time::{Clock as _, SystemClock};
use gristmill_json_schema::SchemaText;
use gristmill_runtime::how_to_allow;

use super::options::LocalSettings;

/// The id of all objects of a local run; handlers see it as their endpoint.
const NAME: &str = "local";

/// The sentence for a request to a host that is not allowed. The user knows the options of a local
/// run, and no endpoint `local`.
pub(super) fn request_refusal(_: &EndpointId, host: &str, port: u16) -> String {
    format!("requests to `{host}:{port}` are not allowed; {}", how_to_allow(host, port))
}

/// The id of the only possible network volume.
pub(super) fn volume_id() -> VolumeId {
    VolumeId::new(NAME).expect("the name is an id")
}

/// A deployment of `component` with these settings, for handlers of this kind.
pub(crate) fn local(
    settings: LocalSettings,
    kind: HandlerKind,
    component: ComponentDigest,
    input_schema: Option<SchemaText>,
) -> Deployment {
    // The user of the command, who permits private addresses.
    let owner = OwnerId::operator();
    let template = TemplateId::new(NAME).expect("the name is an id");
    let now = SystemClock.now();
    let volume = settings.volume.is_some().then(|| Volume {
        id: volume_id(),
        owner: owner.clone(),
        name: NAME.to_owned(),
        size_gb: settings.volume_gb,
        created_at: now,
    });
    let endpoint = Endpoint {
        kind: kind.into(),
        settings: EndpointSettings {
            allowed_hosts: settings.allowed_hosts,
            ..settings.limits.settings()
        },
        network_volume: volume.as_ref().map(|volume| volume.id.clone()),
        ..Endpoint::new(
            EndpointId::new(NAME).expect("the name is an id, and not reserved"),
            owner.clone(),
            template.clone(),
            now,
        )
    };
    let template = Template {
        container_disk_gb: settings.limits.scratch_gb(),
        volume_mount_path: settings.mount_path,
        start_command: settings.args,
        env: settings.env,
        ..Template::new(template, owner, &format!("{NAME}:latest"))
    };
    Deployment {
        endpoint: Arc::new(endpoint),
        template: Arc::new(template),
        component: Some(component),
        input_schema,
        volume: volume.map(Arc::new),
        incarnation: EndpointIncarnation::default(),
    }
}

/// The deployment with these variables in addition to its own.
pub(super) fn with_env(
    deployment: &Arc<Deployment>,
    env: BTreeMap<String, String>,
) -> Arc<Deployment> {
    if env.is_empty() {
        return deployment.clone();
    }
    let mut endpoint = Endpoint::clone(&deployment.endpoint);
    endpoint.settings.env = env;
    Arc::new(Deployment { endpoint: Arc::new(endpoint), ..Deployment::clone(deployment) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::local::LocalOptions;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: LocalOptions,
    }

    #[test]
    fn a_refused_request_names_the_setting_of_a_local_run() {
        let endpoint = EndpointId::new(NAME).unwrap();
        for (port, pattern) in [(443, "a.example"), (80, "a.example"), (8443, "a.example:8443")] {
            let said = request_refusal(&endpoint, "a.example", port);
            assert!(said.starts_with(&format!("requests to `a.example:{port}` are not allowed;")));
            assert!(said.contains(&format!("--allow-host {pattern}, or in `[network] allow`")));
        }
    }

    #[test]
    fn the_options_reach_the_handler() {
        let words = "x --env A=1 --arg --v --memory-mib 2 --max-fuel 9 --timeout-ms 50 --volume d \
                     --mount-path /grain";
        let line = Line::try_parse_from(words.split_whitespace()).unwrap();
        let settings = line.options.over(None);
        let component = ComponentDigest::of(b"");
        let deployment = Arc::new(local(settings, HandlerKind::Jobs, component, None));
        assert_eq!(deployment.arguments().collect::<Vec<_>>(), ["--v"]);
        assert_eq!(deployment.environment().collect::<Vec<_>>(), [("A", "1")]);
        let settings = &deployment.endpoint.settings;
        assert_eq!((settings.memory_mib, settings.max_fuel), (2, Some(9)));
        assert_eq!(settings.execution_timeout_ms, 50);
        assert_eq!(deployment.volume.as_ref().unwrap().size_gb, 1);
        assert_eq!(deployment.template.volume_mount_path, "/grain");

        let own = [("A", "2"), ("B", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let of_case = with_env(&deployment, own.into());
        assert_eq!(of_case.environment().collect::<Vec<_>>(), [("A", "2"), ("B", "3")]);
    }
}
