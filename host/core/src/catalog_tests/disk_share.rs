//! Components in the shares of the disk of their owners.

use super::*;
use crate::sharing::disk_share::DiskAccount;
use crate::sharing::disk_space::DiskSpaceGauge;
use crate::store_error::OwnerQuota;

const MIB: u64 = 1 << 20;

/// A catalog with the owners `a` and `b`, on a disk of its own.
async fn start(rows: Arc<Rows>) -> (Catalog, Arc<DiskSpaceGauge>) {
    let t = Fixture::on(rows).await;
    t.put(["a", "b"].map(|name| CatalogEntry::Key(key_of(name)))).await;
    let disk_space = Arc::new(DiskSpaceGauge::new(t.catalog.tenancy()));
    (t.catalog.with_disk_space(disk_space.clone()), disk_space)
}

/// The MiB of both owners.
fn held(disk_space: &Arc<DiskSpaceGauge>) -> [u64; 2] {
    ["a", "b"].map(|name| DiskAccount::new(disk_space, &owner(name)).bytes() / MIB)
}

async fn write(
    catalog: &Catalog,
    content: &[u8],
    mib: [u64; 2],
    owners: &[&str],
) -> Result<(), StoreError> {
    let [bytes, compiled_bytes] = mib.map(|mib| mib * MIB);
    let component = Component { bytes, compiled_bytes, ..component(content, owners) };
    let change = vec![CatalogChange::Put(CatalogEntry::Component(component))];
    catalog.change(|_| Ok((change, ()))).await
}

#[tokio::test]
async fn components_count_with_their_compiled_files_in_the_shares_of_all_their_owners() {
    let rows = Arc::<Rows>::default();
    let (catalog, disk_space) = start(rows.clone()).await;
    disk_space.set(1 << 40, 0);
    write(&catalog, b"x", [10, 30], &["a"]).await.unwrap();
    assert_eq!(held(&disk_space), [40, 0]);
    write(&catalog, b"x", [10, 30], &["a", "b"]).await.unwrap();
    write(&catalog, b"y", [5, 15], &["b"]).await.unwrap();
    assert_eq!(held(&disk_space), [40, 60]);
    // For a second engine.
    write(&catalog, b"x", [10, 50], &["a", "b"]).await.unwrap();
    assert_eq!(held(&disk_space), [60, 80]);

    let (catalog, disk_space) = start(rows).await;
    assert_eq!(held(&disk_space), [60, 80], "a start counts the same");
    assert_eq!(disk_space.granted_bytes(), 0, "they are in the first measurement");
    write(&catalog, b"x", [10, 50], &["b"]).await.unwrap();
    assert_eq!(held(&disk_space), [0, 80]);
    for content in [b"x", b"y"] {
        let key = CatalogKey::Component(ComponentDigest::of(content));
        let change = vec![CatalogChange::Delete(key)];
        catalog.change(|_| Ok::<_, StoreError>((change, ()))).await.unwrap();
    }
    assert_eq!(held(&disk_space), [0, 0]);
}

#[tokio::test]
async fn a_component_beyond_its_owners_share_of_the_disk_is_refused() {
    let (catalog, disk_space) = start(Arc::default()).await;
    disk_space.set(60 * MIB, 0);
    write(&catalog, b"x", [40, 120], &["a"]).await.unwrap();
    disk_space.set(60 * MIB, 0);
    let refused = write(&catalog, b"y", [10, 20], &["a"]).await.unwrap_err();
    assert_eq!(
        refused,
        StoreError::QuotaExceeded(OwnerQuota::Components { more_mib: 30, held_mib: 160 })
    );
    let sentence = refused.to_string();
    assert!(sentence.contains("exceed the owner's share of the disk"), "{sentence}");
    assert_eq!(held(&disk_space), [160, 0]);
    write(&catalog, b"y", [10, 20], &["b"]).await.unwrap();
    let refused = write(&catalog, b"y", [10, 20], &["a", "b"]).await;
    assert!(refused.is_err(), "it counts in full for each owner");
    // Jobs need files that are compiled again, whatever the share.
    disk_space.set(MIB, 0);
    write(&catalog, b"x", [40, 200], &["a"]).await.unwrap();
    write(&catalog, b"y", [10, 30], &["b"]).await.unwrap();
    assert_eq!(held(&disk_space), [240, 40]);
}
