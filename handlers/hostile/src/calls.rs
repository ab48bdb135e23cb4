//! Floods of calls that the host must answer, and calls that never end.

use gristmill_sdk::{Context, Error};
use serde::Serialize;
use wasip2::cli::stderr::get_stderr;
use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::io::poll::{Pollable, poll};
use wasip2::random::random::get_random_bytes;

pub fn park(count: usize) -> ! {
    let clocks: Vec<_> = (0..count).map(|_| subscribe_duration(u64::MAX)).collect();
    let clocks: Vec<&Pollable> = clocks.iter().collect();
    loop {
        poll(&clocks);
    }
}

pub fn poll_list(count: usize) -> usize {
    let clock = subscribe_duration(0);
    poll(&vec![&clock; count]).len()
}

pub fn handles(count: usize) -> usize {
    let taken: Vec<_> = (0..count).map(|_| subscribe_duration(u64::MAX)).collect();
    taken.len()
}

pub fn random(bytes: usize) -> usize {
    get_random_bytes(bytes as u64).len()
}

pub fn log(ctx: &Context, count: usize, bytes: usize) -> usize {
    let line = "x".repeat(bytes);
    (0..count).for_each(|_| ctx.info(&line));
    count
}

pub fn empty_writes(count: usize) -> Result<usize, Error> {
    let stderr = get_stderr();
    for _ in 0..count {
        stderr.write(&[]).map_err(Error::failed)?;
    }
    Ok(count)
}

pub fn progress(ctx: &Context, count: usize, bytes: usize) -> usize {
    let value = "x".repeat(bytes);
    (0..count).for_each(|_| ctx.progress(&value));
    count
}

pub fn emit(ctx: &Context, count: usize, bytes: usize) -> Result<usize, Error> {
    let value = "x".repeat(bytes);
    for _ in 0..count {
        ctx.emit(&value)?;
    }
    Ok(count)
}

/// The input of a further job of this handler.
#[derive(Serialize)]
struct Next {
    op: &'static str,
    count: usize,
    path: String,
}

pub fn circle(ctx: &Context, count: usize) -> Result<usize, Error> {
    let next = Next { op: "circle", count: count + 1, path: String::new() };
    ctx.submit(&ctx.endpoint(), &next)?;
    Ok(count)
}

pub fn flood(ctx: &Context, count: usize, bytes: usize) -> usize {
    let next = Next { op: "log", count: 0, path: "x".repeat(bytes) };
    (0..count).take_while(|_| ctx.submit(&ctx.endpoint(), &next).is_ok()).count()
}
