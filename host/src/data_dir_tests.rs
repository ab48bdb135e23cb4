//! Tables of owners, groups and modes of data directories and key files, with the answer to each.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;

#[test]
fn a_key_file_that_others_can_read_is_named() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("key");
    fs::write(&file, "secret").unwrap();
    for (mode, is_shared) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let warning = check_key_file(&file);
        assert_eq!(warning.is_some(), is_shared, "{mode:o}");
        assert!(warning.is_none_or(|text| text.contains(&format!("(mode {mode:04o}): run"))));
    }
    assert_eq!(check_key_file(&dir.path().join("missing")), None);
}

#[test]
fn some_data_directories_are_refused_and_others_warned_about() {
    let process = Process { user: 1000, groups: vec![7, 1000] };
    let cases = [
        // Owner, group, mode; then the decision.
        ((1000, 1000, 0o700), "private"),
        ((1000, 5, 0o1700), "private"),
        ((0, 0, 0o700), "private"),
        ((1000, 1000, 0o750), "has mode 0750, with which group 1000 can read it"),
        ((1000, 1000, 0o770), "has mode 0770, with which group 1000 can write it"),
        ((1000, 1000, 0o720), "has mode 0720, with which group 1000 can write it"),
        ((1000, 1000, 0o755), "has mode 0755, with which every user of this machine can read it"),
        ((1000, 1000, 0o701), "has mode 0701, with which every user of this machine can read it"),
        ((1000, 1000, 0o777), "has mode 0777, with which every user of this machine can write it"),
        ((1000, 1000, 0o1777), "has mode 1777, with which every user of this machine can write it"),
        ((1001, 1000, 0o700), "belongs to user 1001, not to user 1000, who runs this"),
        // A volume that Kubernetes prepared for `fsGroup: 7`, and the same without the bit.
        ((0, 7, 0o2770), "shared"),
        ((1000, 7, 0o2770), "shared"),
        ((1000, 7, 0o2750), "shared"),
        ((0, 7, 0o770), "has mode 0770, with which group 7 can write it"),
        ((0, 8, 0o2770), "has mode 2770, with which group 8 can write it"),
        ((0, 7, 0o2775), "has mode 2775, with which every user of this machine can read it"),
    ];
    for ((user, group, mode), expected) in cases {
        let answer = match (Found { user, group, mode }).judge(&process) {
            Verdict::Private => "private".to_owned(),
            Verdict::Shared(with) => {
                assert!(with.contains(&format!("mode {mode:04o}: group 7 can ")), "{with}");
                "shared".to_owned()
            }
            Verdict::Refused { fault, .. } => fault,
        };
        assert_eq!(answer, expected, "{user}:{group} {mode:o}");
    }
    let root = Process { user: 0, groups: vec![0] };
    let of_another = Found { user: 1000, group: 1000, mode: 0o700 }.judge(&root);
    assert!(matches!(of_another, Verdict::Refused { .. }), "the user could change root's code");
}

#[test]
fn a_refusal_names_the_mode_and_the_command() {
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("data");
    assert_eq!(check(&dir).unwrap(), None, "the host makes it");
    make(&dir).unwrap();
    assert_eq!(check(&dir).unwrap(), None);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = check(&dir).unwrap_err().to_string();
    for part in ["has mode 0755", &format!("run `chmod 0700 {}`", dir.display())] {
        assert!(refused.contains(part), "{refused}");
    }
    std::os::unix::fs::symlink(&dir, parent.path().join("link")).unwrap();
    assert!(check(&parent.path().join("link")).is_err(), "the directory itself counts");
}
