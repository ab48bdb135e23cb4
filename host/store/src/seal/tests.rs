//! Key files that are missing, wrong or changed by others, and rotations with two keys.

use std::fs;

use super::*;

#[test]
fn a_missing_key_file_is_reported_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let error = Seal::open(&dir.path().join("secrets.key"), false).unwrap_err().to_string();
    assert!(error.contains("secrets.key`: the file is missing"), "{error}");
    assert!(error.contains("put the file there, or name it with --secrets-key"), "{error}");
}

#[test]
fn a_text_opens_in_its_place_with_its_key_only() {
    let dir = tempfile::tempdir().unwrap();
    let (file, other) = (dir.path().join("a"), dir.path().join("b"));
    let seal = Seal::open(&file, true).unwrap();
    let sealed = seal.seal(b"secret", "here");
    assert!(!sealed.windows(6).any(|window| window == b"secret"));
    assert_ne!(sealed, seal.seal(b"secret", "here"), "nonces are fresh");
    let again = Seal::open(&file, false).unwrap();
    assert_eq!(again.open_text(&sealed, "here").as_deref(), Some(&b"secret"[..]));
    assert_eq!(again.open_text(&sealed, "there"), None);
    assert_eq!(Seal::open(&other, true).unwrap().open_text(&sealed, "here"), None);
    for cut in 0..sealed.len() {
        assert_eq!(again.open_text(sealed.get(..cut).unwrap(), "here"), None);
    }
}

#[test]
fn a_file_that_is_missing_or_no_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    assert!(Seal::open(&file, false).is_err());
    let too_long = "0".repeat(66);
    for text in ["", "00", "zz", &too_long, &"é".repeat(32), &"+f".repeat(32)] {
        fs::write(&file, text).unwrap();
        let refused = Seal::open(&file, true).unwrap_err().to_string();
        assert!(refused.contains("64 hexadecimal digits"), "{refused}");
    }
}

#[test]
fn during_a_rotation_both_keys_are_needed_and_then_the_new_one_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    let seal = Seal::open(&file, true).unwrap();
    let text_of = |file: &Path| fs::read_to_string(file).unwrap();
    let only = |text: &str| {
        let file = dir.path().join("only");
        fs::write(&file, text).unwrap();
        Seal::open(&file, false).unwrap()
    };
    let (old, sealed) = (text_of(&file), seal.seal(b"secret", "here"));
    let words: Vec<_> = [false, true]
        .map(|changes_file| Word { is_current: true, changes_file })
        .map(|word| (seal.seal_word(word), word))
        .into();
    for (word, expected) in &words {
        assert_eq!(seal.read_word(word).unwrap(), *expected);
    }
    let cursor = seal.hide(7);

    seal.begin_rotation().unwrap();
    let both = text_of(&file);
    assert_eq!(both.lines().nth(1), Some(old.trim()));
    let restarted = Seal::open(&file, false).unwrap();
    assert!(!restarted.read_word(&words[1].0).unwrap().is_current, "of the old key alone");
    let in_rotation = Word { is_current: false, changes_file: true };
    let nested = seal.seal_word(in_rotation);
    assert_eq!(restarted.read_word(&nested).unwrap(), in_rotation);
    for key in both.lines() {
        assert!(only(key).read_word(&nested).is_err(), "{key}");
    }
    let swapped = only(&both.lines().rev().collect::<Vec<_>>().join("\n"));
    assert_eq!(swapped.read_word(&nested).unwrap(), in_rotation);
    let Renewed::Again(renewed) = seal.renew(&sealed, "here") else { panic!("an old text") };
    assert!(matches!(seal.renew(&renewed, "here"), Renewed::Current));
    assert!(matches!(seal.renew(&renewed, "there"), Renewed::Unreadable));

    seal.end_rotation().unwrap();
    let new = only(&text_of(&file));
    assert_eq!(new.open_text(&renewed, "here").as_deref(), Some(&b"secret"[..]));
    assert_eq!(new.open_text(&sealed, "here"), None);
    assert_eq!(seal.open_text(&sealed, "here").as_deref(), Some(&b"secret"[..]), "a reader");
    let word = seal.seal_word(Word::SETTLED);
    assert_eq!(new.read_word(&word).unwrap(), Word::SETTLED);
    assert!(only(&old).read_word(&word).is_err());
    assert_eq!((seal.reveal(cursor), new.reveal(cursor)), (Some(7), None));
    assert_eq!(new.reveal(seal.hide(7)), Some(7));
}

/// A word of both keys must not be taken for a damaged one of a key that is there.
#[test]
fn a_damaged_word_is_replaced_only_if_all_its_keys_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    let seal = Seal::open(&file, true).unwrap();
    let old = Seal::open(&file, false).unwrap();
    let flipped = |mut word: Vec<u8>| {
        let middle = word.len() / 2;
        word[middle] ^= 1;
        word
    };
    let whole = seal.seal_word(Word::SETTLED);
    assert_eq!(seal.word_in_place_of(&whole), None);
    let new = seal.word_in_place_of(&flipped(whole.clone())).unwrap();
    assert_eq!(seal.read_word(&new).unwrap(), Word::SETTLED);
    assert_eq!(seal.word_in_place_of(whole.get(1..).unwrap()), None, "another length");

    seal.begin_rotation().unwrap();
    let both = seal.seal_word(Word { is_current: false, changes_file: true });
    assert_eq!(old.word_in_place_of(&both), None, "the new key is missing");
    let new = seal.word_in_place_of(&flipped(both)).unwrap();
    let word = seal.read_word(&new).unwrap();
    assert!(!word.is_current, "a start encrypts all texts with the first key");
}

#[test]
fn a_process_keeps_a_few_old_keys_only() {
    let dir = tempfile::tempdir().unwrap();
    let seal = Seal::open(&dir.path().join("key"), true).unwrap();
    for _ in 0..3 * KEYS_MAX {
        seal.begin_rotation().unwrap();
        seal.end_rotation().unwrap();
    }
    assert_eq!((seal.ring().keys.len(), seal.keys_in_file()), (KEYS_MAX, 1));
}

#[test]
fn a_file_that_another_host_has_changed_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    let [one, two] = [true, false].map(|may_create| Seal::open(&file, may_create).unwrap());
    one.begin_rotation().unwrap();
    one.check_file().unwrap();
    let refused = two.check_file().unwrap_err().to_string();
    assert!(refused.contains("have changed"), "{refused}");
    fs::remove_file(&file).unwrap();
    assert!(one.check_file().is_err());
    assert!(one.begin_rotation().is_err());
}
