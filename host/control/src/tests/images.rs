//! Image names, and the components that they keep.

use gristmill_core::access::key::Scope;

use super::*;
use crate::ImageName;

fn name(text: &str) -> ImageName {
    ImageName::parse(text).unwrap()
}

#[tokio::test]
async fn an_image_that_endpoints_run_is_not_removed() {
    let bench = Bench::new().await;
    let (key, other) = (bench.key("a", Scope::Manage).await, bench.key("b", Scope::Manage).await);
    let digest = bench.image("a", "i", "content").await;
    bench.template("a", "t", "i", true).await;
    bench.endpoint(&key, "mine", "t").await.unwrap();
    bench.endpoint(&other, "theirs", "t").await.unwrap();

    let images = &bench.control.images;
    let refused = images.remove(&key, name("i")).await.unwrap_err();
    assert!(matches!(refused, ControlError::Conflict(_)), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "handler `i:latest` is in use by the endpoints `mine`, another owner's; give their templates \
         another image first"
    );
    assert!(bench.view().components.contains_key(&digest));

    bench.control.endpoints.delete(&key, endpoint_id("mine")).await.unwrap();
    bench.control.endpoints.delete(&other, endpoint_id("theirs")).await.unwrap();
    images.remove(&key, name("i")).await.unwrap();
    assert!(!bench.view().components.contains_key(&digest));
    assert_eq!(bench.disk.take(), [format!("remove component {digest}")]);
    let gone = images.remove(&key, name("i")).await;
    assert!(matches!(gone, Err(ControlError::NotFound { what: "handler", .. })), "{gone:?}");
}

#[tokio::test]
async fn a_backup_keeps_the_components_that_it_names() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    let first = bench.image("a", "first", "1").await;
    let second = bench.image("a", "second", "2").await;
    let backup = bench.control.backups.create(false).await.unwrap();
    bench.control.images.remove(&key, name("first")).await.unwrap();
    assert!(bench.view().components.contains_key(&first));
    assert_eq!(bench.disk.take(), [""; 0]);
    backup.write(&mut Vec::new()).unwrap();
    while bench.view().components.contains_key(&first) {
        tokio::task::yield_now().await;
    }
    assert!(bench.view().components.contains_key(&second));
    assert_eq!(bench.disk.take(), [format!("remove component {first}")]);
}

#[tokio::test]
async fn a_tag_that_was_moved_meanwhile_is_not_removed() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    bench.image("a", "i", "1").await;
    let images = &bench.control.images;
    let listed: Vec<_> =
        images.list(&key, Some("i".to_owned())).iter().map(|(image, _)| image.clone()).collect();
    assert_eq!(listed.len(), 1);
    bench.image("a", "i", "2").await;
    assert!(!images.remove_all(&key, "i".to_owned(), listed).await.unwrap());
    let (image, _) = images.get(&key, &name("i")).unwrap();
    let now = images.list(&key, None).iter().map(|(image, _)| image.clone()).collect();
    assert!(images.remove_all(&key, "i".to_owned(), now).await.unwrap());
    assert!(!bench.view().images.contains_key(&image.key()));
}

#[tokio::test]
async fn a_component_without_a_name_is_deleted_while_another_call_deletes_files() {
    let bench = Bench::new().await;
    let key = bench.key("a", Scope::Manage).await;
    let first = bench.image("a", "first", "1").await;
    bench.image("a", "second", "2").await;
    let images = &bench.control.images;
    let blocked = bench.disk.block_removals().await;
    let second = async {
        while bench.view().components.contains_key(&first) {
            tokio::task::yield_now().await;
        }
        images.remove(&key, name("second")).await
    };
    let unblock = async {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        drop(blocked);
    };
    let (first, second, ()) = tokio::join!(images.remove(&key, name("first")), second, unblock);
    first.and(second).unwrap();
    assert!(bench.view().components.is_empty());
    assert_eq!(bench.disk.take().len(), 2);
}
