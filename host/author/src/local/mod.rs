//! Shared parts of `run` and `test`: a handler on this machine, without a host, in the same sandbox
//! that a host uses.

mod bench;
mod component_source;
mod deployment;
mod options;
mod request;
mod sink;
mod stack;

pub(crate) use bench::{Bench, LocalJob, stop_on_signal};
pub(crate) use component_source::ComponentSource;
pub(crate) use deployment::local as local_deployment;
pub(crate) use options::LocalOptions;
pub(crate) use request::{
    GivenRequest, LocalRequest, NoAnswer, RequestTarget, WholeAnswer, kind_of, parse_header,
};
pub(crate) use sink::TerminalSink;
pub(crate) use stack::{describe_call, describe_stack};
