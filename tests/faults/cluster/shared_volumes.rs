//! The files of network volumes, on a file system that all hosts mount.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gristmill_tests::{TestHost, guests, run_in_own_network};
use serde_json::{Value, json};

use crate::hosts::{arguments, finished, submit, until_active};
use crate::postgres::{Database, done};

/// The variable that marks the inner test.
const INSIDE: &str = "SHARED_VOLUMES_INSIDE";

/// One directory that is the `volumes` of several data directories: mounted there where this test
/// may mount it, and else behind a symbolic link.
struct Shared {
    directory: tempfile::TempDir,
    mounts: Vec<PathBuf>,
}

impl Shared {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), mounts: Vec::new() }
    }

    fn put_into(&mut self, data: &Path) {
        let volumes = data.join("volumes");
        if std::env::var_os(INSIDE).is_none() {
            if volumes.exists() {
                fs::remove_dir(&volumes).unwrap();
            }
            return symlink(self.directory.path(), volumes).unwrap();
        }
        fs::create_dir_all(&volumes).unwrap();
        done(Command::new("mount").arg("--bind").arg(self.directory.path()).arg(&volumes));
        self.mounts.push(volumes);
    }
}

/// Otherwise the removal of a data directory would remove the files of the others.
impl Drop for Shared {
    fn drop(&mut self) {
        for mount in &self.mounts {
            let _ = Command::new("umount").arg("--lazy").arg(mount).status();
        }
    }
}

/// A job on a file; its document.
async fn file(host: &TestHost, key: &str, job: Value) -> Value {
    let clients = [host.client()];
    let body = json!({ "input": { "op": "file", "file": job } });
    let job = submit(&clients, "play", key, &body).await;
    finished(&clients, "play", &job).await
}

/// The test starts itself again where it may mount a directory.
#[test]
fn jobs_on_the_next_active_host_find_the_files_of_their_shared_volume() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let is_inside = std::env::var_os(INSIDE).is_some();
    if is_inside || !rustix::process::geteuid().is_root() {
        return runtime.block_on(write_on_one_host_and_read_on_the_next());
    }
    let name = "shared_volumes::jobs_on_the_next_active_host_find_the_files_of_their_shared_volume";
    run_in_own_network(name, &[(INSIDE, "1".as_ref())]);
}

async fn write_on_one_host_and_read_on_the_next() {
    if std::env::var_os(INSIDE).is_some() {
        gristmill_tests::ip("link set lo up");
    }
    let Some(database) = Database::new() else { return };
    let mut shared = Shared::new();
    let arguments = arguments(&database);
    let mut one = TestHost::start_prepared(&arguments, |data| {
        // A host refuses a directory that others can read.
        fs::DirBuilder::new().mode(0o700).create(data).unwrap();
        shared.put_into(data);
    });
    // Its data directory exists only after its first start.
    let mut two = TestHost::join(&arguments, one.admin_key());
    two.kill9();
    shared.put_into(&two.data_dir());
    two.start_again();
    assert_eq!(two.ready()["role"], "standby");

    let new = json!({ "name": "grain", "size": 1 });
    let volume = one.client().post("/v1/networkvolumes", &new).await.ok();
    let settings = json!({ "networkVolumeId": volume["id"], "volumeMountPath": "/mill" });
    one.deploy(&guests::playground(), "play", settings).await;
    let write = json!({ "do": "write", "path": "/mill/a", "text": "rye" });
    let written = file(&one, "write", write).await;
    assert_eq!(written["status"], "COMPLETED", "{written}");
    one.kill9();
    until_active(&two).await;
    let read = file(&two, "read", json!({ "do": "read", "path": "/mill/a" })).await;
    assert_eq!(read["output"], "rye", "{read}");
    // The volume is not only readable, and goes back to the first host.
    let append = json!({ "do": "append", "path": "/mill/a", "text": " and oats" });
    let appended = file(&two, "append", append).await;
    assert_eq!(appended["status"], "COMPLETED", "{appended}");
    one.start_again();
    assert_eq!(one.ready()["role"], "standby");
    two.kill9();
    until_active(&one).await;
    let read = file(&one, "read again", json!({ "do": "read", "path": "/mill/a" })).await;
    assert_eq!(read["output"], "rye and oats", "{read}");
}
