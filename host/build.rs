//! Rebuilds the binary when a file is added to what it carries for `gristmill new`; changes of files
//! that are there already are seen without this.

fn main() {
    let carried = [
        "src/cli/new/templates",
        "../guest-sdk/src",
        "../guest-sdk/python/src/gristmill",
        "../guest-sdk/javascript/src",
        "../wit",
    ];
    for path in carried {
        println!("cargo::rerun-if-changed={path}");
    }
}
