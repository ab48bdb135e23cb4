//! The load generator behind `make bench`: starts the real host on an empty directory, once for
//! each workload, and prints the measured figures and the machine. With `--against` it compares two
//! hosts, with `--url` it generates the HTTP load of `make bench-peers`, with `--soak` the load of
//! `make soak`.

#![expect(
    clippy::indexing_slicing,
    reason = "a tool for the terminal, which may stop at the first surprise"
)]

mod arguments;
mod beside;
mod call;
mod compare;
mod connection;
mod drive;
mod host;
mod open_loop;
mod samples;
mod soak;
mod stored_jobs;
mod table;
mod trend;
mod workloads;

use crate::arguments::{Arguments, UrlArguments};
use crate::call::Call;
use crate::connection::request;
use crate::drive::{Drive, Figures};

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments {
        Arguments::Bench(arguments) => runtime.block_on(async {
            match &arguments.against {
                Some(against) => compare::run(&arguments, against).await,
                None => workloads::run(&arguments).await,
            }
        }),
        Arguments::Soak(arguments) => runtime.block_on(soak::run(&arguments)),
        Arguments::Url(arguments) => runtime.block_on(post(&arguments)),
    }
}

/// Posts the same body to one URL.
async fn post(arguments: &UrlArguments) -> anyhow::Result<()> {
    let UrlArguments { addr, path, body, expected, key, connections, warm_up, measured } =
        arguments;
    let headers =
        key.as_ref().map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
    let call = Call::once(request("POST", path, &headers, body), expected);
    let latencies =
        Drive::start(addr, &call, *connections, *warm_up, *measured).await?.finish().await?;
    table::print_json(&Figures::of(&latencies, *measured));
    Ok(())
}
