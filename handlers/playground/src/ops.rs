//! What well-behaved handlers do.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gristmill_sdk::http::Request;
use gristmill_sdk::{Context, Error, RawValue};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::Output;

pub fn sleep(ms: u64, echo: Option<Box<RawValue>>) -> Output {
    std::thread::sleep(Duration::from_millis(ms));
    Output::Slept { slept: ms, echo }
}

#[derive(Serialize)]
struct Chunk {
    i: u64,
}

pub fn stream(ctx: &Context, count: u64, delay: Duration) -> Result<Output, Error> {
    for i in 0..count {
        std::thread::sleep(delay);
        ctx.emit(&Chunk { i })?;
    }
    Ok(Output::Nothing)
}

#[derive(Serialize)]
struct Progress {
    progress: u64,
}

/// Counts from 1.
pub fn progress(ctx: &Context, steps: u64, delay: Duration) -> Output {
    for progress in 1..=steps {
        ctx.progress(&Progress { progress });
        std::thread::sleep(delay);
    }
    Output::Done { done: steps }
}

pub fn chunk(ctx: &Context, bytes: usize) -> Result<Output, Error> {
    ctx.emit(&"x".repeat(bytes))?;
    Ok(Output::Nothing)
}

/// Prints lines of 64 bytes, the last one cut to size.
pub fn stdout(bytes: usize) -> Result<Output, Error> {
    let line = format!("{}\n", "x".repeat(63));
    let mut out = std::io::stdout().lock();
    let mut left = bytes;
    while left > 0 {
        let part = line.as_bytes().get(..left).unwrap_or(line.as_bytes());
        out.write_all(part)?;
        left -= part.len();
    }
    out.flush()?;
    Ok(Output::Printed { printed: bytes })
}

pub fn env(name: &str) -> Output {
    Output::Env { env: std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()) }
}

/// The first round hashes nothing, each later one the digest before it.
pub fn sha256(rounds: u64) -> Output {
    let mut digest = Vec::new();
    for _ in 0..rounds {
        digest = Sha256::digest(&digest).to_vec();
    }
    Output::Sha256 { sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect() }
}

pub fn fetch(ctx: &Context, url: String) -> Result<Output, Error> {
    let response = ctx.http_send(Request::get(url))?;
    Ok(Output::Fetched {
        status: response.status,
        length: response.body.len(),
        body: String::from_utf8(response.body).ok(),
    })
}

/// Answers what an earlier job left here: nothing, as every job has an instance of its own.
pub fn remember(value: Option<Box<RawValue>>) -> Output {
    static MEMORY: Mutex<Option<Box<RawValue>>> = Mutex::new(None);
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    Output::Remembered { remembered: std::mem::replace(&mut memory, value) }
}
