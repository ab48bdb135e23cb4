//! A test that starts itself again in a network of its own, where it may change addresses; and the
//! reason with which tests are skipped that may not have such a network, or a disk of their own.

use std::ffi::OsStr;
use std::process::Command;

/// The variable with which an operator of a machine without namespaces accepts that tests are
/// skipped.
const WITHOUT_NAMESPACES: &str = "GRISTMILL_WITHOUT_NAMESPACES";

/// Prints that a test is skipped for this reason, a missing permission.
///
/// # Panics
/// When `GRISTMILL_WITHOUT_NAMESPACES` is not set.
pub fn skip_without_namespaces(reason: &str) {
    let may_skip = std::env::var_os(WITHOUT_NAMESPACES).is_some();
    assert!(
        may_skip,
        "{reason}: run the tests as root, outside a container or in a privileged one, or skip those that need this \
         permission with {WITHOUT_NAMESPACES}=1"
    );
    println!("skipped: {reason}");
}

/// Runs the test `name` of this program again in a network of its own, with these variables of its
/// environment. Without the permission for it, the test is [skipped](skip_without_namespaces).
///
/// # Panics
/// When that test fails, or may not be skipped.
pub fn run_in_own_network(name: &str, variables: &[(&str, &OsStr)]) {
    let works = |options: &[&str]| {
        // Containers often forbid changing an interface.
        let mut probe = in_namespace(options, OsStr::new("ip"));
        probe.args(["link", "set", "lo", "up"]);
        probe.output().is_ok_and(|output| output.status.success())
    };
    let Some(options) = [&[][..], &["--map-root-user"]].into_iter().find(|options| works(options))
    else {
        return skip_without_namespaces(
            "this machine permits no network namespace, or has no `unshare` and `ip`",
        );
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
