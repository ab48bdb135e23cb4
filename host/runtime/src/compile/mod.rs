//! From an uploaded component to machine code: the requirements that a component meets, and the
//! confined process that compiles it.

pub(crate) mod cache;
pub(crate) mod component;
pub(crate) mod confine;
pub mod handler_kinds;
pub mod input_schema;
pub(crate) mod items;
pub(crate) mod order;
pub mod preinit;
pub mod process;
pub(crate) mod producers;
