//! Only the host's user may access the data directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use gristmill_tests::{TestHost, command};

#[tokio::test]
async fn a_directory_open_to_others_is_refused_and_a_shared_volume_warned_about() {
    let mut host = TestHost::start();
    let dir = host.data_dir();
    let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
    host.ask_to_end();
    host.wait(Duration::from_secs(60));
    let log = fs::read_dir(&dir).unwrap().count();
    for loose in [0o755, 0o750, 0o770, 0o777, 0o1777] {
        mode(loose);
        let refused = command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&dir)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        let command = format!("run `chmod 0700 {}`", dir.display());
        assert!(
            text.contains(&format!("has mode {loose:04o}")) && text.contains(&command),
            "{text}"
        );
        assert_eq!(fs::read_dir(&dir).unwrap().count(), log, "nothing was touched");
    }
    // The mode of a volume that Kubernetes prepared for `fsGroup`.
    mode(0o2770);
    host.start_again();
    assert!(host.log().contains("has mode 2770"), "{}", host.log());
    mode(0o700);
    host.start_again();
}
