//! `gristmill volumes`, and how to give a volume to a handler.

use gristmill_tests::{guests, shared_host};

use crate::command::{on, run};

#[tokio::test]
async fn a_volume_is_made_shown_used_and_deleted() {
    let host = shared_host();
    let id = run(on(&host), "volumes create grain --size 1").succeeded();
    let id = id.line();
    let shown = run(on(&host), &format!("volumes get {id} --json")).succeeded().json();
    assert_eq!((&shown["name"], &shown["size"]), (&"grain".into(), &1.into()));
    let listed = run(on(&host), "volumes list").succeeded();
    let row = listed.stdout.lines().find(|line| line.starts_with(id)).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), [id, "1", "GB", "grain"]);

    let playground = guests::playground().display().to_string();
    let deploy = format!("deploy {playground} --name cli-volume");
    let mounted = format!("{deploy} --volume {id} --mount-path /grain --scratch-gb 1");
    run(on(&host), &mounted).succeeded();
    for path in ["/grain/a", "/tmp/a"] {
        let file = format!("{{\"do\":\"write\",\"path\":\"{path}\",\"text\":\"rye\"}}");
        let submit =
            format!("submit cli-volume --wait --input {{\"op\":\"file\",\"file\":{file}}}");
        run(on(&host), &submit).succeeded();
    }
    run(on(&host), &format!("volumes delete {id}")).failed(1, &["in use", "cli-volume"]);
    run(on(&host), &format!("{deploy} --volume=")).succeeded();
    run(on(&host), &format!("volumes delete {id}")).succeeded();
    run(on(&host), &format!("volumes get {id}")).failed(1, &["not found"]);
    run(on(&host), "volumes create --size 1").failed(2, &["<name>"]);
    run(on(&host), "volumes create grain --name grain --size 1").failed(2, &["--name"]);
    run(on(&host), "volumes create --name grain --size 0")
        .failed_with_any_code(&["from 1 to 4000"]);
    run(on(&host), &format!("{deploy} --mount-path a")).failed_with_any_code(&["absolute"]);
}
