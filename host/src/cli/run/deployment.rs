//! What a host would have stored about the handler of a local run.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_core::egress::AllowedHosts;
use gristmill_core::endpoint::{ComponentDigest, Deployment, Endpoint, SandboxLimits, Scaling};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::template::Template;
use gristmill_core::time::{Clock as _, SystemClock};
use gristmill_core::webhook::WebhookSecrets;

use super::RunArgs;
use crate::cli::parse;

/// The id of everything that a local run needs an id for; handlers see it as their endpoint.
const NAME: &str = "local";

/// A deployment of `component` with the options of the command line.
pub(super) fn local(args: RunArgs, component: ComponentDigest) -> Deployment {
    let owner = OwnerId::new(NAME).expect("the name is an id");
    let template = TemplateId::new(NAME).expect("the name is an id");
    let endpoint = Endpoint {
        id: EndpointId::new(NAME).expect("the name is an id, and not reserved"),
        name: NAME.to_owned(),
        owner: owner.clone(),
        template: template.clone(),
        version: 1,
        created_at: SystemClock.now(),
        scaling: Scaling::default(),
        execution_timeout_ms: args.timeout_ms,
        limits: SandboxLimits {
            memory_bytes_max: args.memory_mib << 20,
            fuel_max: args.max_fuel,
            metering: args.metering,
        },
        allowed_hosts: AllowedHosts::new(args.allowed_hosts),
        env: BTreeMap::new(),
        webhook_secrets: WebhookSecrets::generate(),
    };
    let template = Template {
        id: template,
        owner,
        name: NAME.to_owned(),
        image: format!("{NAME}:latest"),
        container_disk_gb: 0,
        volume_gb: 0,
        volume_mount_path: String::new(),
        registry_auth: String::new(),
        entrypoint: Vec::new(),
        start_command: args.args,
        env: parse::environment(args.env),
        ports: Vec::new(),
        readme: String::new(),
        is_public: false,
        is_platform: false,
        is_serverless: true,
    };
    Deployment {
        endpoint: Arc::new(endpoint),
        template: Arc::new(template),
        component: Some(component),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn the_options_reach_the_handler() {
        let words = "x a.wasm --input {} --env A=1 --arg --v --memory-mib 2 --max-fuel 9 \
                     --timeout-ms 50";
        let line = Line::try_parse_from(words.split_whitespace()).unwrap();
        let deployment = local(line.run, ComponentDigest::of(b""));
        assert_eq!(deployment.arguments().collect::<Vec<_>>(), ["--v"]);
        assert_eq!(deployment.environment().collect::<Vec<_>>(), [("A", "1")]);
        let limits = deployment.endpoint.limits;
        assert_eq!((limits.memory_bytes_max, limits.fuel_max), (2 << 20, Some(9)));
        assert_eq!(deployment.endpoint.execution_timeout_ms, 50);
    }
}
