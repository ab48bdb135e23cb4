//! Attacks its host, in one way for each `op`, for the tests of docs/internals/security.md.

#![cfg(target_arch = "wasm32")]

mod calls;
mod disk;
mod http;
mod outside;

use gristmill_sdk::{Context, Error, handler};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    op: Op,
    #[serde(default = "one")]
    count: usize,
    #[serde(default = "one")]
    bytes: usize,
    #[serde(default)]
    url: String,
    /// A directory that it may use.
    #[serde(default)]
    path: String,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Park,
    Poll,
    Handles,
    Random,
    Log,
    EmptyWrites,
    Progress,
    Emit,
    Heads,
    Fields,
    Bodies,
    Headers,
    Sockets,
    Files,
    Snoop,
    Escape,
    Fill,
    Deep,
    Orphans,
    Open,
    Churn,
    Races,
    Locks,
    Circle,
    Flood,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Output {
    /// The amount that the host accepted.
    Done(usize),
    /// The objects that were found outside the sandbox.
    Seen(Vec<String>),
}

fn attack(ctx: &Context, input: Input) -> Result<Output, Error> {
    let Input { op, count, bytes, url, path } = input;
    Ok(match op {
        Op::Park => calls::park(count),
        Op::Poll => Output::Done(calls::poll_list(count)),
        Op::Handles => Output::Done(calls::handles(count)),
        Op::Random => Output::Done(calls::random(bytes)),
        Op::Log => Output::Done(calls::log(ctx, count, bytes)),
        Op::EmptyWrites => Output::Done(calls::empty_writes(count)?),
        Op::Progress => Output::Done(calls::progress(ctx, count, bytes)),
        Op::Emit => Output::Done(calls::emit(ctx, count, bytes)?),
        Op::Heads => Output::Done(http::heads(count, bytes)),
        Op::Fields => Output::Done(http::fields(count, bytes)),
        Op::Bodies => Output::Done(http::bodies(count)),
        Op::Headers => Output::Done(http::headers(ctx, url, count, bytes)?),
        Op::Sockets => Output::Seen(outside::sockets()),
        Op::Files => Output::Seen(outside::files()),
        Op::Snoop => Output::Seen(outside::snoop(ctx)),
        Op::Escape => Output::Seen(disk::escape(&path)),
        Op::Fill => Output::Done(disk::fill(&path, bytes)),
        Op::Deep => Output::Done(disk::deep(&path)?),
        Op::Orphans => Output::Done(disk::orphans(&path, bytes)?),
        Op::Open => Output::Done(disk::open(&path)?),
        Op::Churn => disk::churn(&path),
        Op::Races => Output::Done(disk::races(&path, count)?),
        Op::Locks => Output::Done(disk::locks(&path, count)?),
        Op::Circle => Output::Done(calls::circle(ctx, count)?),
        Op::Flood => Output::Done(calls::flood(ctx, count, bytes)),
    })
}

handler!(attack);
