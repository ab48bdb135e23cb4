//! Templates of owners, public ones and those of the platform: who sees them, and who runs them.

use super::*;
use crate::access::key::{NewKey, Scope};
use crate::time::Timestamp;

fn key(owner: &OwnerId, scope: Scope) -> ApiKey {
    let new = NewKey {
        name: "k".into(),
        owner: owner.clone(),
        scopes: vec![scope],
        endpoints: None,
        expires_at: None,
    };
    ApiKey::generate(new, Timestamp::from_millis(0)).0
}

#[test]
fn visibility_follows_owner_and_flags() {
    let me = OwnerId::new("me").unwrap();
    let other = OwnerId::new("other").unwrap();
    let none = TemplateFilter::default();
    let with =
        |endpoint_bound, public, platform| TemplateFilter { endpoint_bound, public, platform };
    // (owner, public, platform, bound, filter) -> visible to `me`
    let cases = [
        (&me, false, false, false, none, true),
        (&me, false, false, true, none, false),
        (&me, false, false, true, with(true, false, false), true),
        (&other, false, false, false, with(true, true, true), false),
        (&other, true, false, false, none, false),
        (&other, true, false, false, with(false, true, false), true),
        (&other, true, false, true, none, false),
        (&other, true, false, true, with(false, true, false), true),
        (&other, true, false, true, with(true, false, false), true),
        (&other, false, false, true, with(true, true, true), false),
        (&other, false, true, true, with(false, false, true), true),
        (&me, true, false, true, with(false, true, true), false),
        (&other, true, true, false, with(false, true, false), false),
        (&other, false, true, false, with(false, false, true), true),
        (&me, true, true, true, with(true, false, true), true),
    ];
    for (owner, is_public, is_platform, is_bound, filter, visible) in cases {
        let template = Template { is_public, is_platform, ..sample(owner.clone()) };
        assert_eq!(
            template.is_visible_to(&key(&me, Scope::Manage), is_bound, filter),
            visible,
            "{owner} public={is_public} platform={is_platform} bound={is_bound} {filter:?}"
        );
    }
}

#[test]
fn the_operator_sees_private_templates_of_others() {
    let [me, other] = ["me", "other"].map(|name| OwnerId::new(name).unwrap());
    let none = TemplateFilter::default();
    let platform = TemplateFilter { platform: true, ..none };
    let private = sample(other.clone());
    assert!(private.is_visible_to(&key(&me, Scope::Admin), false, none));
    assert!(!private.is_visible_to(&key(&me, Scope::Admin), true, none));
    let official = Template { is_platform: true, ..sample(me.clone()) };
    assert!(!official.is_visible_to(&key(&me, Scope::Admin), false, none));
    assert!(official.is_visible_to(&key(&other, Scope::Manage), false, platform));
}

#[test]
fn endpoints_run_own_public_and_platform_templates() {
    let [me, other] = ["me", "other"].map(|name| OwnerId::new(name).unwrap());
    let cases = [
        (&me, false, false, true),
        (&other, false, false, false),
        (&other, true, false, true),
        (&other, false, true, true),
    ];
    for (owner, is_public, is_platform, usable) in cases {
        let template = Template { is_public, is_platform, ..sample(owner.clone()) };
        assert_eq!(template.is_usable_by(&me), usable, "{template:?}");
    }
}

fn sample(owner: OwnerId) -> Template {
    Template::new(TemplateId::new("t").unwrap(), owner, "t:latest")
}
