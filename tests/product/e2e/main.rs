//! The platform's behaviour for clients beyond the rows of the contract (those are in
//! `conformance`), through the real binary and over HTTP. Each name states the rule that it checks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod abandoned_calls;
mod abandoned_uploads;
mod auth;
mod big_streams;
mod billing;
mod browsers;
mod cancel;
mod concurrent_changes;
mod console;
mod deleted_templates;
mod deploy;
mod docs_page;
mod durability;
mod errors;
mod events;
mod fair_keys;
mod gpu_fields;
mod handler_calls;
mod handlers;
mod health;
mod hostile;
mod hostile_uploads;
mod input;
mod input_schemas;
mod isolation;
mod job_actions;
mod job_list;
mod lifecycle;
mod log_streams;
mod logs;
mod lost_admin_key;
mod management_limits;
mod metrics;
mod openapi;
mod own_network;
mod owner_shares;
mod owners;
mod owners_apart;
mod pages;
mod priority;
mod progress;
mod registry;
mod registry_fetch;
mod registry_foreign;
mod registry_rules;
mod retention;
mod reuse;
mod sandbox;
mod sandbox_memory;
mod sandbox_network;
mod secrets;
mod security;
mod series;
mod shared_build;
mod silent_log;
mod stream;
mod stream_events;
mod stream_sizes;
mod structure;
mod tags;
mod timeline;
mod timeouts;
mod traces;
mod ttl;
mod typed_client;
mod unauthenticated;
mod unknown_parameters;
mod uploads;
mod volume_files;
mod volumes;
mod webhooks;
mod wire_documents;
