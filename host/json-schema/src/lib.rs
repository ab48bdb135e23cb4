//! Checks JSON values by JSON Schema: the host the input of each new job, by the schema that its
//! component carries, and `gristmill test` outputs by the same rules.
//!
//! **Promise.** A schema is read as JSON Schema draft 2020-12, with the older forms that tools
//! still write: `definitions`, `dependencies`, `additionalItems` and a list as `items`. A keyword
//! that the check cannot apply is refused with the component, and never ignored; annotations such
//! as `title` and `format` are kept and not checked. Nothing is fetched: a `$ref` names a part of
//! the same schema.
//!
//! **Bounds.** A schema comes from the author of a component and an input from a client, and
//! neither is trusted. A schema has [at most 64 KiB](schema::SCHEMA_BYTES_MAX), 64 levels, and a
//! few patterns of bounded size, whose searches count the states that they make. Alternatives and
//! references can still cost time that is exponential in the depth of an input, so that a check
//! also has a number of [steps](Budget); a check without further steps refuses the input.
//! **Cost.** Some 20 ns for each value of an input, besides parsing it.
//!
//! The code is our own because the libraries (`jsonschema`, `boon`) bound neither steps nor
//! recursion: with them a schema of 200 bytes keeps a processor busy for hours, or overflows the
//! stack of the host. The tests compare the results with those of `jsonschema`.

mod canonical;
mod compile;
mod evaluate;
mod fault;
mod keyword;
mod number;
mod openapi;
mod pattern;
mod rules;
mod schema;
#[cfg(test)]
mod tests;
mod text;

pub use evaluate::{Budget, NotChecked};
pub use openapi::as_openapi_component;
pub use rules::InputSchema;
pub use schema::{InvalidSchema, SchemaText};
pub use text::is_nested_deeper;
