//! Writes the Rust SDK's bindings of `wit/handler.wit`, which are checked in: the macro that would make
//! them in each build needs 40 crates, two minutes of the first build of a handler. Use `make bindings`.
//!
//! Each file begins with the digest of the contract, by which a test finds bindings of an older one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::Opts;

/// A world of the SDK with the file of its bindings.
struct World {
    file: &'static str,
    /// WIT of the world, for a world that is not in the contract.
    source: Option<&'static str>,
    name: &'static str,
    export_macro: &'static str,
}

const WORLDS: [World; 2] = [
    World { file: "handler.rs", source: None, name: "handler", export_macro: "export_component" },
    World {
        file: "with_init.rs",
        source: Some(
            "package gristmill:sdk; world with-init { export gristmill:handler/lifecycle@0.1.0; }",
        ),
        name: "with-init",
        export_macro: "export_init",
    },
];

fn main() -> Result<()> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let contract = sdk.join("../wit/handler.wit");
    let text =
        fs::read(&contract).with_context(|| format!("cannot read {}", contract.display()))?;
    let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    for world in WORLDS {
        let path = sdk.join("src/bindings").join(world.file);
        let bindings = world.bindings(&contract)?;
        fs::write(&path, format!("// contract: sha256:{digest}\n{bindings}"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

impl World {
    fn bindings(&self, contract: &Path) -> Result<String> {
        let mut resolve = Resolve::default();
        let (mut package, _) = resolve.push_path(contract)?;
        if let Some(source) = self.source {
            package = resolve.push_str("with-init.wit", source)?;
        }
        let world = resolve.select_world(&[package], Some(self.name))?;
        let options = Opts {
            format: true,
            pub_export_macro: true,
            export_macro_name: Some(self.export_macro.to_owned()),
            ..Opts::default()
        };
        let mut files = Files::default();
        options.build().generate(&mut resolve, world, &mut files)?;
        let (_, bindings) = files.iter().next().context("the generator made no file")?;
        Ok(String::from_utf8(bindings.to_vec())?)
    }
}
