//! Rebuilds the binary when a file is added to the files that it carries for `gristmill new`;
//! changes of existing files are detected without this.

fn main() {
    let carried = [
        "templates",
        "../../guest-sdk/src",
        "../../guest-sdk/python/src/gristmill",
        "../../guest-sdk/javascript/src",
        "../../wit",
    ];
    for path in carried {
        println!("cargo::rerun-if-changed={path}");
    }
}
