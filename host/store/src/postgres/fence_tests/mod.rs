//! The fence between hosts: every order of their statements in a [`model`], and random walks of the
//! model on a real server ([`replay`]).

mod model;
mod replay;
