//! The documented contract, one test for each of its rows, through the real binary and over HTTP.
//! docs/internals/conformance.md has the rows, which `table` writes from the comments of the tests.
//! `e2e` tests behaviour beyond the contract.
//!
//! Tests of timing use a host whose clock they move; only executionTimeout, the waiting time of a
//! call, and the limit of unauthenticated calls use real time.

#![cfg(test)]

mod raw;
mod routes;
mod support;

mod answers;
mod authentication;
mod cancel;
mod concurrency;
mod documents;
mod dynamic_limit;
mod errors;
mod events;
mod health;
mod hosted_rest;
mod idempotency;
mod job_conditions;
mod job_ends;
mod keys;
mod limits;
mod malformed;
mod malformed_http;
mod openai;
mod openai_stream;
mod policy;
mod purge_queue;
mod queue_behaviour;
mod rate_limits;
mod requests;
mod result;
mod retry;
mod run;
mod runsync;
mod s3_config;
mod states;
mod status;
mod stream;
mod stream_behaviour;
mod submission;
mod table;
mod template_fields;
mod template_lookup;
mod templates_and_handlers;
mod versioning;
mod waiting_for_a_sandbox;
