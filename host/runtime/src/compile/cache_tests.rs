//! Functions from one compile to the next, modes of the cache's directory, and damage at each byte.

use super::*;

fn with(entries: &[(&[u8], &[u8])], functions: &Functions) -> Functions {
    for (key, code) in entries {
        assert!(functions.insert(key, code.to_vec()));
    }
    let content = functions.content(&functions.made.lock());
    Functions::from_content(content).unwrap()
}

#[test]
fn functions_are_known_from_one_compile_to_the_next() {
    let functions = with(&[(b"a", b"one"), (b"", b"")], &Functions::default());
    let functions = with(&[(b"b", b"three")], &functions);
    let found = [&b"a"[..], b"", b"b", b"c"].map(|key| functions.get(key));
    let expected = [Some("one"), Some(""), Some("three"), None];
    assert_eq!(found, expected.map(|code| code.map(|code| code.as_bytes().into())));
}

#[test]
fn the_last_compiled_functions_are_the_known_ones() {
    let functions = with(&[(b"a", b"of an older compiler")], &Functions::default());
    assert!(functions.get(b"a").is_some());
    let functions = with(&[(b"a", b"new")], &functions);
    assert_eq!(functions.get(b"a").unwrap(), &b"new"[..]);
}

#[test]
fn a_directory_that_others_can_access_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let open = |mode| {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        CompileCache::open(directory.path(), Metering::Fuel).map(drop)
    };
    assert!(open(0o700).is_ok());
    assert!(open(0o750).is_err());
    assert!(open(0o702).is_err());
}

#[test]
fn a_directory_that_others_could_only_read_becomes_private() {
    let directory = tempfile::tempdir().unwrap();
    let mode = || fs::metadata(directory.path()).unwrap().mode() & 0o777;
    let prepare = |mode| {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        make_private(directory.path())
    };
    for readable in [0o700, 0o755, 0o750, 0o711] {
        prepare(readable).unwrap();
        assert_eq!(mode(), 0o700, "it had {readable:o}");
    }
    for writable in [0o777, 0o775, 0o702] {
        let refused = prepare(writable).unwrap_err().to_string();
        assert!(refused.contains("delete it"), "{refused}");
        assert_eq!(mode(), writable, "an entry may be of another user");
    }
}

#[test]
fn beyond_the_bound_those_of_the_newest_compile_stay() {
    let large = vec![7; FUNCTIONS_BYTES_MAX / 3];
    let functions = with(&[(b"used", &large), (b"unused", &large)], &Functions::default());
    assert!(functions.get(b"used").is_some());
    let functions = with(&[(b"new", &large)], &functions);
    let found = [&b"new"[..], b"used", b"unused"].map(|key| functions.get(key).is_some());
    assert_eq!(found, [true, true, false]);
}

#[test]
fn a_damaged_file_is_no_file() {
    let functions = Functions::default();
    functions.insert(b"key", b"code".to_vec());
    let whole = functions.content(&functions.made.lock());
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        assert!(Functions::from_content(damaged).is_none(), "byte {byte}");
        assert!(Functions::from_content(whole[..byte].to_vec()).is_none(), "cut at {byte}");
    }
    assert!(Functions::from_content(whole).is_some());
}
