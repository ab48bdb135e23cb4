//! The operations that a well-behaved handler performs.

use std::io::{BufRead, Write};
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

pub fn emit(ctx: &Context, values: &[Box<RawValue>], delay: Duration) -> Result<(), Error> {
    for value in values {
        std::thread::sleep(delay);
        ctx.emit(value)?;
    }
    Ok(())
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

/// Emits `count` strings of this size.
pub fn chunks(ctx: &Context, count: u64, bytes: usize) -> Result<Output, Error> {
    let chunk = "x".repeat(bytes);
    for _ in 0..count {
        ctx.emit(&chunk)?;
    }
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
    Output::Sha256 { sha256: hex(&digest) }
}

/// Proves that the `s3Config` has arrived without revealing it: the SHA-256 of its four fields,
/// each on its own line.
pub fn s3(ctx: &Context) -> Output {
    let digest = ctx.s3_config().map(|s3| {
        let lines = [s3.access_id, s3.access_secret, s3.bucket_name, s3.endpoint_url].join("\n");
        hex(&Sha256::digest(lines))
    });
    Output::S3 { s3: digest }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn fetch(ctx: &Context, url: String) -> Result<Output, Error> {
    let response = ctx.http_send(Request::get(url))?;
    Ok(Output::Fetched {
        status: response.status,
        length: response.body.len(),
        body: String::from_utf8(response.body).ok(),
    })
}

/// Emits each line of the answer when it arrives.
pub fn fetch_lines(ctx: &Context, url: String) -> Result<Output, Error> {
    for line in ctx.http_stream(Request::get(url))?.body.lines() {
        ctx.emit(&line?)?;
    }
    Ok(Output::Nothing)
}

/// A job for another endpoint.
pub struct Job {
    pub input: Box<RawValue>,
    pub key: Option<String>,
}

pub fn submit(ctx: &Context, endpoint: &str, Job { input, key }: &Job) -> Result<Output, Error> {
    Ok(Output::Text(match key {
        Some(key) => ctx.submit_with_key(endpoint, input, key)?,
        None => ctx.submit(endpoint, input)?,
    }))
}

pub fn call(ctx: &Context, endpoint: &str, Job { input, key }: &Job) -> Result<Output, Error> {
    Ok(Output::Bare(match key {
        Some(key) => ctx.call_with_key(endpoint, input, key)?,
        None => ctx.call(endpoint, input)?,
    }))
}

/// Returns the value that an earlier job left here: none, if every job has its own instance.
pub fn remember(value: Option<Box<RawValue>>) -> Output {
    static MEMORY: Mutex<Option<Box<RawValue>>> = Mutex::new(None);
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    Output::Remembered { remembered: std::mem::replace(&mut memory, value) }
}
