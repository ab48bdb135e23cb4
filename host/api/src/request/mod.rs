//! Reading a request: its head, path, query and body.

pub(crate) mod body;
pub(crate) mod brand;
pub(crate) mod byte_range;
pub(crate) mod head;
pub(crate) mod known_query;
pub(crate) mod paths;
pub(crate) mod query;
pub(crate) mod time;
