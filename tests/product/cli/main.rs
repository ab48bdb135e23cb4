//! The command line, as a shell sees it: results on standard output, everything else on standard
//! error, and an exit code that shows whether the command succeeded.

#![cfg(test)]

mod billing;
mod command;
mod completions;
mod deploy;
mod dev;
mod downloads;
mod first_steps;
mod handlers;
mod http_handlers;
mod jobs;
mod keys;
mod local_run;
mod management;
mod mistakes;
mod new_project;
mod partial_server;
mod project;
mod test_cases;
mod trapping;
mod volumes;
