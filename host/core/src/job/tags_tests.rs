use proptest::prelude::*;

use gristmill_wire::bounds::JOB_KEY_BYTES_MAX;

use super::*;

fn of(pairs: &[(&str, &str)]) -> Result<Option<Tags>, InvalidTags> {
    Tags::new(pairs.iter().copied())
}

#[test]
fn tags_are_in_the_order_of_their_keys() {
    let tags = of(&[("team", "a=b"), ("env", ""), ("a/b.c_d-1", "é %_")]).unwrap().unwrap();
    assert_eq!(tags.as_str(), "a/b.c_d-1=é %_\nenv=\nteam=a=b");
    let pairs: Vec<_> = tags.iter().collect();
    assert_eq!(pairs, [("a/b.c_d-1", "é %_"), ("env", ""), ("team", "a=b")]);
    assert!(tags.has(&Tag::new("team", "a=b").unwrap()));
    assert!(!tags.has(&Tag::new("team", "a").unwrap()));
    assert!(!tags.has(&Tag::new("team", "").unwrap()));
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(size_of::<Option<Tags>>(), 8);
}

#[test]
fn the_key_and_the_priority_of_a_job_are_tags() {
    let tags = of(&[("env", "prod"), ("team", "x")]).unwrap();
    let keyed = |key| Turn { key: Some(key), priority: 0 };
    assert_eq!(Tags::with_turn(tags.clone(), &Turn::default()), Ok(tags.clone()));
    let with_key = Tags::with_turn(tags.clone(), &keyed("acme")).unwrap().unwrap();
    assert_eq!(with_key.as_str(), "env=prod\npolicy/key=acme\nteam=x");
    assert_eq!((tags.unwrap().job_key(), with_key.job_key()), (None, Some("acme")));
    let twice = Err(InvalidTags::Twice(JOB_KEY_TAG.to_owned()));
    assert_eq!(Tags::with_turn(Some(with_key.clone()), &keyed("other")), twice);
    let urgent = Tags::with_turn(None, &Turn { key: None, priority: 9 }).unwrap().unwrap();
    assert_eq!((urgent.as_str(), urgent.priority()), ("policy/priority=9", 9));
    let given = of(&[("policy/priority", "123456789012")]).unwrap().unwrap();
    assert_eq!((given.priority(), with_key.priority()), (9, 0));
    let replaced = with_key.with_debounce(5).unwrap().with_debounce(6).unwrap();
    assert_eq!(replaced.debounced_since_ms(), Some(6));
    for wrong in ["", "a\nb", &"k".repeat(JOB_KEY_BYTES_MAX + 1)] {
        assert_eq!(Tags::with_turn(None, &keyed(wrong)), Err(InvalidTags::JobKey), "{wrong:?}");
    }
}

#[test]
fn each_bound_is_checked() {
    let key = "k".repeat(TAG_KEY_BYTES_MAX);
    let value = "v".repeat(TAG_VALUE_BYTES_MAX);
    assert!(of(&[(&key, &value)]).is_ok());
    for wrong in ["", &format!("{key}k"), "A", "a b", "é", "a=b", "a:b", "a\n"] {
        assert_eq!(of(&[(wrong, "v")]), Err(InvalidTags::Key), "{wrong:?}");
    }
    let bytes = TAG_VALUE_BYTES_MAX + 1;
    let long = InvalidTags::Value { key: "k".to_owned(), bytes };
    assert_eq!(of(&[("k", &format!("{value}v"))]), Err(long));
    for wrong in ["\n", "a\u{0}b", "\u{85}"] {
        assert_eq!(of(&[("k", wrong)]), Err(InvalidTags::Control("k".to_owned())), "{wrong:?}");
    }
    assert_eq!(of(&[("k", "1"), ("k", "1")]), Err(InvalidTags::Twice("k".to_owned())));
    let keys: Vec<_> = (0..=TAGS_MAX).map(|n| format!("k{n}")).collect();
    let count = |number: usize| Tags::new(keys.iter().take(number).map(|key| (key, "v")));
    assert!(count(TAGS_MAX).is_ok());
    assert_eq!(count(TAGS_MAX + 1), Err(InvalidTags::Count));
    let all = |bytes: usize| {
        let value = "v".repeat(254);
        let mut pairs: Vec<_> = (0..8).map(|n| (format!("{n:02}"), value.clone())).collect();
        pairs.last_mut().unwrap().1.push_str(&"v".repeat(bytes));
        Tags::new(pairs)
    };
    assert!(all(0).is_ok());
    assert_eq!(all(1), Err(InvalidTags::Bytes));
}

#[test]
fn no_more_pairs_are_read_than_are_allowed() {
    let endless = (0..).map(|n| (format!("k{n}"), "v"));
    assert_eq!(Tags::new(endless), Err(InvalidTags::Count));
}

#[test]
fn a_damaged_text_is_refused() {
    for text in ["", "a", "b=1\na=2", "a=1\n", "a=1\n\nb=2", "a=1\na=1", "A=1", "=1", "a=\r\nb=1"] {
        assert!(Tags::from_text(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_text_has_its_tags(pairs in proptest::collection::btree_map("[a-z0-9._/-]{1,8}", "[ -~é]{0,9}", 1..9)) {
        let tags = Tags::new(&pairs).unwrap().unwrap();
        prop_assert_eq!(&Tags::from_text(tags.as_str()).unwrap(), &tags);
        let read = tags.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        prop_assert_eq!(read.collect::<BTreeMap<_, _>>(), pairs);
    }
}
