//! A test that starts itself again in a network of its own, where it may change addresses.

use std::ffi::OsStr;
use std::process::Command;

/// Runs the test `name` of this program again in a network of its own, with these variables of its environment.
/// Without the permission for it, prints the reason and returns.
///
/// # Panics
/// When that test fails.
pub fn run_in_own_network(name: &str, variables: &[(&str, &OsStr)]) {
    let works = |options: &[&str]| {
        // Containers often forbid changing an interface.
        let mut probe = in_namespace(options, OsStr::new("ip"));
        probe.args(["link", "set", "lo", "up"]);
        probe.output().is_ok_and(|output| output.status.success())
    };
    let Some(options) = [&[][..], &["--map-root-user"]].into_iter().find(|options| works(options))
    else {
        println!(
            "skipped: this machine permits no network namespace, or has no `unshare` and `ip`"
        );
        return;
    };
    let mut inside = in_namespace(options, std::env::current_exe().unwrap().as_os_str());
    inside.args(["--exact", name, "--nocapture"]).envs(variables.iter().copied());
    assert!(inside.status().unwrap().success(), "see above");
}

/// `unshare` with these options, then the command.
fn in_namespace(options: &[&str], program: &OsStr) -> Command {
    let mut command = Command::new("unshare");
    command.args(options).args(["--net", "--mount", "--"]).arg(program);
    command
}

/// Changes the network.
///
/// # Panics
/// When `ip` fails.
pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}
