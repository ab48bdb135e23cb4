//! What a host would have stored about the handler of a local run.

use std::sync::Arc;

use gristmill_core::egress::AllowedHosts;
use gristmill_core::endpoint::{ComponentDigest, Deployment, Endpoint, SandboxLimits};
use gristmill_core::id::{EndpointId, OwnerId, TemplateId};
use gristmill_core::template::Template;
use gristmill_core::time::{Clock as _, SystemClock};

use super::RunArgs;
use crate::cli::parse;

/// The id of everything that a local run needs an id for; handlers see it as their endpoint.
const NAME: &str = "local";

/// A deployment of `component` with the options of the command line.
pub(super) fn local(args: RunArgs, component: ComponentDigest) -> Deployment {
    let owner = OwnerId::new(NAME).expect("the name is an id");
    let template = TemplateId::new(NAME).expect("the name is an id");
    let endpoint = Endpoint {
        execution_timeout_ms: args.timeout_ms,
        limits: SandboxLimits {
            memory_bytes_max: args.memory_mib << 20,
            fuel_max: args.max_fuel,
            metering: args.metering,
        },
        allowed_hosts: AllowedHosts::new(args.allowed_hosts),
        ..Endpoint::new(
            EndpointId::new(NAME).expect("the name is an id, and not reserved"),
            owner.clone(),
            template.clone(),
            SystemClock.now(),
        )
    };
    let template = Template {
        container_disk_gb: args.scratch_gb,
        start_command: args.args,
        env: parse::environment(args.env),
        ..Template::new(template, owner, &format!("{NAME}:latest"))
    };
    Deployment {
        endpoint: Arc::new(endpoint),
        template: Arc::new(template),
        component: Some(component),
        volume: None,
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
