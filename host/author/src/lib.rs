//! The commands of `gristmill` for the authors of handlers: `new`, `upgrade-sdk`, `build`, `run`,
//! `test`, `dev` and `deploy`.
//!
//! *Promise:* `run` and `test` run a handler in the sandbox of a host, with the same limits and
//! messages, and without a host. All commands but `new` share the [project file](project) and its
//! build. `dev` needs a host in its process, which the program passes to it, so that nothing here
//! knows a store or a listener.
//!
//! **Bounds.** [`limits`] has those of a job on this machine. **Cost.** A component is compiled
//! once for each of its contents: a [cache](compiler()) keeps the machine code.

mod build;
mod compiler;
mod deploy;
mod dev;
mod domain_values;
mod fresh_component;
mod limits;
mod local;
mod new;
mod project;
mod run;
mod sources;
mod temporary;
mod test;
mod test_input;

pub use build::{BuildArgs, run as build};
pub use compiler::compiler;
pub use deploy::{DeployArgs, deploy};
pub use dev::{DevArgs, DevHook, dev};
pub use new::{NewArgs, UpgradeSdkArgs, new, upgrade_sdk};
pub use run::{RunArgs, run};
pub use test::{TestArgs, test};
