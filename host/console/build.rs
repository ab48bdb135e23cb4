//! Builds the crate again when a file is added: the macro only follows files that it has seen.

fn main() {
    println!("cargo:rerun-if-changed=assets");
}
