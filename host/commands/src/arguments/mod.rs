//! Arguments that several commands have, and the reading of their values.

pub mod component_file;
mod connection;
mod endpoint_options;
mod http_options;
mod input;
pub(crate) mod job_filter;
pub mod parse;
mod retention;
pub(crate) mod retry_options;
mod start_options;

pub use connection::ConnectionArgs;
pub use endpoint_options::EndpointOptions;
pub use input::InputSource;
pub use parse::given;
