//! Every fuzz target on its seeds, without a fuzzer.

#![cfg(test)]

#[path = "src/lib.rs"]
mod targets;

use std::fs;
use std::path::Path;

/// Makes a test of each target.
macro_rules! replays {
    ($($target:ident),*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target), targets::$target);
        })*

        #[test]
        fn every_target_is_replayed() {
            let replayed = [$(concat!(stringify!($target), ".rs")),*];
            let targets = fs::read_dir(fuzz().join("targets")).unwrap();
            let mut targets: Vec<_> = targets.map(|entry| entry.unwrap().file_name()).collect();
            targets.sort();
            assert_eq!(targets, replayed);
        }
    };
}
replays!(component, query, record, segment, sse_resume, submission);

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}

fn replay(target: &str, run: fn(&[u8])) {
    let seeds = fs::read_dir(fuzz().join("seeds").join(target)).unwrap();
    let mut files: Vec<_> = seeds.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no seeds");
    for file in files {
        println!("{}", file.display());
        run(&fs::read(&file).unwrap());
    }
}
