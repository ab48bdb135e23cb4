//! Compiles in real children, with and without a cache, and children that refuse, die or never end.

use gristmill_core::id::OwnerId;

use super::*;
use crate::compile::order::Purpose;
use crate::testing::{core_module, guest};

const LAST_OF_OURS: &str = "--nocapture";

const ECHO: &str = "(call $ok (local.get $input) (local.get $input_len))";

/// Not a real test: [`own_child`] runs it in the child.
#[test]
#[ignore = "runs in the child processes of other tests"]
fn as_child() {
    let args = std::env::args_os().skip_while(|arg| arg != LAST_OF_OURS).skip(1);
    let code = child_main(args);
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

/// Not a real test: prints what the kernel knows of a child with its limits.
#[test]
#[ignore = "runs in the child processes of other tests"]
fn as_limited_child() {
    limit_this_process().unwrap();
    let preference = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    println!("preference: {}", preference.trim());
}

#[test]
fn the_kernel_ends_a_compile_before_its_host_when_memory_runs_out() {
    let child = "compile::process::tests::as_limited_child";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", child, LAST_OF_OURS])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("preference: 1000\n"), "{output:?}");
}

/// This test program as the compiling process.
fn own_child() -> Compiler {
    let args = ["--ignored", "--exact", "compile::process::tests::as_child", LAST_OF_OURS];
    Compiler::child(std::env::current_exe().unwrap(), args.map(Into::into).into())
}

async fn compile_with(compiler: Compiler, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let directory = tempfile::tempdir().unwrap();
    let component = directory.path().join("in.wasm");
    let artifact = directory.path().join("out.cwasm");
    std::fs::write(&component, bytes).unwrap();
    let kind = Kind { metering: Metering::Fuel, explains_traps: false };
    let task = CompileTask { kind, component, artifact: artifact.clone() };
    let turn = compiler.turns().join(&OwnerId::operator(), Purpose::Upload).unwrap().await;
    let compiled = compiler.compile(task, &turn).await.map_err(|error| error.to_string())?;
    compiled.artifact.finish().unwrap();
    Ok(std::fs::read(artifact).unwrap())
}

#[tokio::test]
async fn a_child_compiles_what_this_process_can_run() {
    let by_child = compile_with(own_child(), &guest(ECHO)).await.unwrap();
    let by_us = compile_with(Compiler::in_process(), &guest(ECHO)).await.unwrap();
    assert!(by_child == by_us, "the same bytes");
}

#[tokio::test]
async fn a_cache_changes_no_byte() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let other = format!("(nop) {ECHO}");
    let cached = |handler: String| {
        let mut compiler = own_child();
        compiler.use_cache(cache.clone()).unwrap();
        async move { compile_with(compiler, &guest(&handler)).await.unwrap() }
    };
    let without = compile_with(own_child(), &guest(&other)).await.unwrap();
    let first = cached(ECHO.to_owned()).await;
    let functions = cache.join("functions-fuel");
    let kept = std::fs::read(&functions).unwrap();
    let (second, of_other) = (cached(ECHO.to_owned()).await, cached(other).await);
    assert!(first == second, "the same component");
    assert!(of_other == without, "with functions of another");
    // Damage of the cache does no harm.
    std::fs::write(&functions, &kept[..kept.len() - 1]).unwrap();
    std::fs::remove_dir_all(cache.join("components")).unwrap();
    assert!(cached(ECHO.to_owned()).await == first, "after damage");
    assert_eq!(std::fs::read(&functions).unwrap().len(), kept.len());
    assert!(own_child().use_cache(functions.clone()).is_err(), "it is a file");
    let no_directory = Compiler { cache: Some(functions), ..own_child() };
    let compiled = compile_with(no_directory, &guest(ECHO)).await;
    assert!(compiled == Ok(first), "without a place for one");
}

#[tokio::test]
async fn a_child_says_why_it_refuses() {
    let refused = compile_with(own_child(), &core_module()).await.unwrap_err();
    assert!(refused.starts_with("the file is a core WebAssembly module"), "{refused}");
}

#[tokio::test]
async fn a_killed_child_is_distinguished_from_a_broken_one() {
    let shell = |script: &str| Compiler::child("/bin/sh".into(), vec!["-c".into(), script.into()]);
    for (script, expected) in [
        ("kill -XCPU $$", "component could not be compiled within its limits: it took more"),
        ("echo oom >&2; kill -ABRT $$", "component could not be compiled within its limits: s"),
        ("echo no >&2; exit 3", "the compiling process ended without a report: exit status: 3"),
        ("exec yes >&2", ""),
    ] {
        // The last one never ends by itself: dropping the compile ends it.
        let limit = Duration::from_secs(if expected.is_empty() { 1 } else { 60 });
        let component = guest(ECHO);
        let compiling = compile_with(shell(script), &component);
        let Ok(error) = tokio::time::timeout(limit, compiling).await else {
            assert_eq!(expected, "", "{script}");
            continue;
        };
        let error = error.unwrap_err();
        assert!(error.starts_with(expected) && !expected.is_empty(), "{error}");
    }
    let missing = Compiler::child("/nonexistent/compiler".into(), vec![]);
    let error = compile_with(missing, &guest(ECHO)).await.unwrap_err();
    assert!(error.starts_with("cannot compile: "), "{error}");
}
