//! The command line: the workloads of `make bench` and `make bench-against`, one URL for `make
//! bench-peers`, or `make soak`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::beside::Beside;

const USAGE: &str = "usage:
  load --host GRISTMILL --handlers DIRECTORY [--only WORK]... [--connections N] [--seconds N] [--long]
       [--against GRISTMILL [--against-handlers DIRECTORY] [--pairs N]
        [--together] [--beside OBSERVERS] [--env NAME=VALUE]...]
  load --soak FILE.csv --host GRISTMILL --handlers DIRECTORY [--minutes N]
  load --url http://HOST:PORT/PATH --body TEXT --expect TEXT [--key KEY] [--connections N]
       [--warm-up N] [--seconds N]
With --connections, a bench has only the rows with so many.
With --against, load alternates N times between both programs and prints their ratios.
With --together, both are under load in the same windows, N of them, and start again for each.
With --against-handlers, the other program has components of its own, such as those of its commit.
With --beside and --env, only the new program has the observers and the variables.
OBSERVERS is scrapes (each second), consoles (ten), or all (ten consoles, and scrapes each 15 s).
With --soak, load writes what it measures to the file and reports whether it stayed flat.
With --url, load posts TEXT there and prints one JSON object; it needs no host.";

/// The selected mode.
pub(crate) enum Arguments {
    Bench(BenchArguments),
    Soak(SoakArguments),
    Url(UrlArguments),
}

pub(crate) struct BenchArguments {
    pub(crate) host: PathBuf,
    pub(crate) handlers: PathBuf,
    /// Names of workloads; empty means all.
    pub(crate) only: Vec<String>,
    /// Only the rows with so many connections; `None` means all.
    pub(crate) connections: Option<usize>,
    /// How long each figure is measured, after a warm-up of a fifth of it.
    pub(crate) measured: Duration,
    /// Whether a million jobs are stored too, which takes minutes.
    pub(crate) is_long: bool,
    /// Another host to compare with.
    pub(crate) against: Option<Against>,
}

/// A comparison of two hosts.
pub(crate) struct Against {
    /// The other host's program, the base of the ratios.
    pub(crate) host: PathBuf,
    /// The components for it.
    pub(crate) handlers: PathBuf,
    /// How often each work runs with each program, for `measured` each time; at least 1.
    pub(crate) pairs: usize,
    /// Whether both hosts are under load at the same time, instead of in turn.
    pub(crate) is_together: bool,
    /// Observers of the new program.
    pub(crate) beside: Option<Beside>,
    /// Variables of the new program's environment.
    pub(crate) environment: Vec<(String, String)>,
}

pub(crate) struct SoakArguments {
    pub(crate) host: PathBuf,
    pub(crate) handlers: PathBuf,
    /// The file for the samples.
    pub(crate) csv: PathBuf,
    pub(crate) lasts: Duration,
}

pub(crate) struct UrlArguments {
    pub(crate) addr: String,
    pub(crate) path: String,
    pub(crate) body: String,
    pub(crate) expected: String,
    pub(crate) key: Option<String>,
    pub(crate) connections: usize,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

impl Arguments {
    pub(crate) fn parse() -> anyhow::Result<Self> {
        let (mut host, mut handlers, mut only) = (None, None, Vec::new());
        let (mut url, mut body, mut expected, mut key) = (None, None, None, None);
        let (mut soak, mut minutes) = (None, 30);
        let (mut against, mut against_handlers, mut pairs) = (None, None, 30);
        let (mut is_together, mut beside, mut environment) = (false, None::<Beside>, Vec::new());
        let (mut connections, mut warm_up, mut seconds, mut is_long) = (None, 1, 5, false);
        let mut arguments = std::env::args_os().skip(1);
        while let Some(name) = arguments.next() {
            let flag = match name.to_str() {
                Some("--long") => Some(&mut is_long),
                Some("--together") => Some(&mut is_together),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let value = arguments.next().context(USAGE)?;
            let text = || value.clone().into_string().ok().context("an argument is not UTF-8");
            match name.to_str() {
                Some("--host") => host = Some(PathBuf::from(value)),
                Some("--handlers") => handlers = Some(PathBuf::from(value)),
                Some("--against") => against = Some(PathBuf::from(value)),
                Some("--against-handlers") => against_handlers = Some(PathBuf::from(value)),
                Some("--pairs") => pairs = text()?.parse().context("--pairs")?,
                Some("--beside") => beside = Some(Beside::parse(&text()?)?),
                Some("--env") => {
                    let text = text()?;
                    let (name, value) = text.split_once('=').context("--env is NAME=VALUE")?;
                    environment.push((name.to_owned(), value.to_owned()));
                }
                Some("--soak") => soak = Some(PathBuf::from(value)),
                Some("--minutes") => minutes = text()?.parse().context("--minutes")?,
                Some("--only") => only.push(text()?),
                Some("--url") => url = Some(text()?),
                Some("--body") => body = Some(text()?),
                Some("--expect") => expected = Some(text()?),
                Some("--key") => key = Some(text()?),
                Some("--connections") => {
                    connections = Some(text()?.parse().context("--connections")?);
                }
                Some("--warm-up") => warm_up = text()?.parse().context("--warm-up")?,
                Some("--seconds") => seconds = text()?.parse().context("--seconds")?,
                _ => bail!(USAGE),
            }
        }
        ensure!(
            seconds > 0 && connections != Some(0) && pairs > 0,
            "--seconds, --connections and --pairs are at least 1"
        );
        let measured = Duration::from_secs(seconds);
        if let Some(beside) = beside {
            beside.check(measured)?;
        }
        if let Some(url) = url {
            let (addr, path) = url
                .strip_prefix("http://")
                .and_then(|rest| rest.split_once('/'))
                .context("--url is http://HOST:PORT/PATH")?;
            return Ok(Self::Url(UrlArguments {
                addr: addr.to_owned(),
                path: format!("/{path}"),
                body: body.context("--body is missing")?,
                expected: expected.context("--expect is missing")?,
                key,
                connections: connections.unwrap_or(64),
                warm_up: Duration::from_secs(warm_up),
                measured,
            }));
        }
        let (host, handlers) = (host.context(USAGE)?, handlers.context(USAGE)?);
        if let Some(csv) = soak {
            ensure!(minutes > 0, "--minutes is at least 1");
            let lasts = Duration::from_secs(minutes * 60);
            return Ok(Self::Soak(SoakArguments { host, handlers, csv, lasts }));
        }
        let against = against.map(|host| Against {
            host,
            handlers: against_handlers.unwrap_or_else(|| handlers.clone()),
            pairs,
            is_together,
            beside,
            environment,
        });
        Ok(Self::Bench(BenchArguments {
            host,
            handlers,
            only,
            connections,
            measured,
            is_long,
            against,
        }))
    }
}
