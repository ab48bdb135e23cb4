//! Turns: no owner waits for all changes of another.

use futures::FutureExt as _;
use futures::future::join_all;

use super::*;

#[tokio::test]
async fn owners_and_their_keys_change_the_catalog_in_turn() {
    let t = Fixture::new().await;
    let keys = ["a", "a", "b"].map(key_of);
    let [first, second, other] = &keys;
    let calls = [first, first, first, second, other];
    let order = Mutex::new(Vec::new());
    let changes = calls.iter().enumerate().map(|(number, caller)| {
        let (t, order) = (&t, &order);
        async move {
            let written = template(caller.owner.as_str(), &format!("t{number}"), "mill");
            let change = vec![CatalogChange::Put(CatalogEntry::Template(written))];
            let decide = |_: &_| {
                order.lock().push(number);
                Ok::<_, StoreError>((change, ()))
            };
            t.catalog.change_for(caller, decide).await.unwrap();
        }
    });
    let mut changes: Vec<_> = changes.map(Box::pin).collect();
    for change in &mut changes {
        assert!(change.as_mut().now_or_never().is_none(), "it is being written, or waits");
    }
    join_all(changes).await;
    assert_eq!(*order.lock(), [0, 4, 3, 1, 2], "the other owner, then the other key");
}
