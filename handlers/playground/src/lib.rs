//! Behaves as requested, correctly or not: the handler of the demo and of the platform's tests.

mod files;
mod limits;
mod ops;

use std::time::Duration;

use gristmill_sdk::{Context, Error, RawValue, handler};
use serde::{Deserialize, Serialize};

/// The operation, and the settings of all operations in one flat object. An enum with the settings
/// beside its tag would be more readable, but serde buffers those, and a buffered value is not raw
/// any more.
#[derive(Deserialize)]
struct Input {
    op: Option<Op>,
    /// The body of a call of `/openai/*`, which then replaces this input.
    openai_input: Option<Box<Input>>,
    values: Option<Vec<Box<RawValue>>>,
    value: Option<Box<RawValue>>,
    message: Option<String>,
    name: Option<String>,
    url: Option<String>,
    endpoint: Option<String>,
    key: Option<String>,
    ms: Option<u64>,
    delay_ms: Option<u64>,
    retry_after_ms: Option<u64>,
    #[serde(default)]
    never_retry: bool,
    count: Option<u64>,
    steps: Option<u64>,
    rounds: Option<u64>,
    mib: Option<usize>,
    bytes: Option<usize>,
    code: Option<i32>,
    file: Option<files::Job>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Echo,
    Sleep,
    Fail,
    Stream,
    Emit,
    Progress,
    Spin,
    SleepForever,
    Alloc,
    Recurse,
    Trap,
    Exit,
    Stdout,
    Log,
    Output,
    Chunk,
    Env,
    Args,
    Sha256,
    Fetch,
    FetchLines,
    Submit,
    Call,
    Remember,
    S3,
    Trace,
    File,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output {
    Nothing,
    Bare(Box<RawValue>),
    Echo {
        echo: Option<Box<RawValue>>,
    },
    Slept {
        slept: u64,
        echo: Option<Box<RawValue>>,
    },
    Done {
        done: u64,
    },
    Allocated {
        allocated_mib: usize,
    },
    Printed {
        printed: usize,
    },
    Text(String),
    Env {
        env: Option<String>,
    },
    Args {
        args: Vec<String>,
    },
    Names {
        names: Vec<String>,
    },
    Sha256 {
        sha256: String,
    },
    Fetched {
        status: u16,
        length: usize,
        body: Option<String>,
    },
    S3 {
        s3: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Trace {
        trace_parent: Option<String>,
    },
    Remembered {
        remembered: Option<Box<RawValue>>,
    },
}

fn play(ctx: &Context, mut input: Input) -> Result<Output, Error> {
    if let Some(openai_input) = input.openai_input.take() {
        input = *openai_input;
    }
    let delay = Duration::from_millis(input.delay_ms.unwrap_or(0));
    let bytes = input.bytes.unwrap_or(1024);
    match required("op", input.op)? {
        Op::Echo => Ok(Output::Echo { echo: input.value }),
        Op::Sleep => Ok(ops::sleep(input.ms.unwrap_or(100), input.value)),
        Op::Fail => {
            if let Some(value) = &input.value {
                ctx.progress(value);
            }
            if let Some(ms) = input.retry_after_ms {
                ctx.retry_after(Duration::from_millis(ms));
            }
            if input.never_retry {
                ctx.never_retry();
            }
            Err(Error::failed(input.message.as_deref().unwrap_or("asked to fail")))
        }
        Op::Stream => ops::stream(ctx, input.count.unwrap_or(3), delay),
        Op::Emit => {
            ops::emit(ctx, &input.values.unwrap_or_default(), delay)?;
            match input.message {
                Some(message) => Err(Error::failed(message)),
                None => Ok(input.value.map_or(Output::Nothing, Output::Bare)),
            }
        }
        Op::Progress => Ok(ops::progress(ctx, input.steps.unwrap_or(3), delay)),
        Op::Output => Ok(Output::Text("x".repeat(bytes))),
        Op::Chunk => ops::chunks(ctx, input.count.unwrap_or(1), bytes),
        Op::Stdout => ops::stdout(bytes),
        Op::Log => {
            ctx.info(required("message", input.message)?);
            Ok(Output::Nothing)
        }
        Op::Env => Ok(ops::env(&required("name", input.name)?)),
        Op::Args => Ok(Output::Args { args: std::env::args().collect() }),
        Op::Sha256 => Ok(ops::sha256(input.rounds.unwrap_or(1))),
        Op::Fetch => ops::fetch(ctx, required("url", input.url)?),
        Op::FetchLines => ops::fetch_lines(ctx, required("url", input.url)?),
        Op::Submit | Op::Call => {
            let endpoint = required("endpoint", input.endpoint)?;
            let job = ops::Job { input: required("value", input.value)?, key: input.key };
            match input.op {
                Some(Op::Submit) => ops::submit(ctx, &endpoint, &job),
                _ => ops::call(ctx, &endpoint, &job),
            }
        }
        Op::Remember => Ok(ops::remember(input.value)),
        Op::S3 => Ok(ops::s3(ctx)),
        Op::Trace => Ok(Output::Trace { trace_parent: ctx.trace_parent() }),
        Op::File => files::file(&required("file", input.file)?),

        Op::Spin => limits::spin(),
        Op::SleepForever => limits::sleep_forever(),
        Op::Alloc => limits::alloc(input.mib.unwrap_or(1)),
        Op::Recurse => limits::recurse(),
        Op::Trap => limits::trap(),
        Op::Exit => std::process::exit(input.code.unwrap_or(1)),
    }
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::invalid_input(format_args!("missing field `{field}`")))
}

handler!(play);

#[cfg(test)]
mod tests;
