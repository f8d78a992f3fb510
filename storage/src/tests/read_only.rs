//! Reading a store that another process writes to.

use std::sync::Arc;

use model::{Budget, MetadataQuery, Source, TimeRange};
use slatedb::object_store::ObjectStore;

use super::harness::{batch, labels, memory, open, options, read_all};
use crate::lsm::Location;
use crate::{Store, StoreError};

async fn look(objects: &Arc<dyn ObjectStore>) -> Result<Store, StoreError> {
    Store::open_once_at(&Location::on(Arc::clone(objects)), options()).await
}

#[test]
fn a_store_is_read_as_it_is_while_it_is_written_to() {
    super::harness::run(async {
        let objects = memory();
        let store = open(&objects).await.unwrap();
        let [a, b] = ["a", "b"].map(|name| labels(&[("__name__", name)]));
        store.append(batch(&a, &[(1, 1.0), (2, 2.0)])).await.unwrap();
        store.append(batch(&b, &[(1, 1.0)])).await.unwrap();
        // In SSTs, in the log after them, and only in memory.
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
        store.append(batch(&b, &[(2, 2.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        store.append(batch(&a, &[(3, 3.0)])).await.unwrap();
        store.delete(vec![vec![model::Matcher::equal("__name__", "b")]], 1, 1).await.unwrap();
        let seen = look(&objects).await.unwrap();
        let expected = read_all(&store).await.unwrap();
        assert_eq!(read_all(&seen).await.unwrap(), expected);
        let query = MetadataQuery { selectors: vec![], times: TimeRange::new(0, 9), limit: 0 };
        let budget = Budget::unlimited();
        assert_eq!(
            seen.series(&query, &budget).await.unwrap(),
            store.series(&query, &budget).await.unwrap()
        );
        assert_eq!(
            seen.label_values("__name__", &query, &budget).await.unwrap(),
            store.label_values("__name__", &query, &budget).await.unwrap()
        );
        // Later writes are not seen, and the writer is not disturbed.
        store.append(batch(&a, &[(4, 4.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        assert_eq!(read_all(&seen).await.unwrap(), expected);
        assert_ne!(read_all(&store).await.unwrap(), expected);
        seen.close().await.unwrap();
        store.append(batch(&a, &[(5, 5.0)])).await.unwrap();
    });
}

#[test]
fn nothing_is_written_to_a_store_that_is_only_read() {
    super::harness::run(async {
        let objects = memory();
        let store = open(&objects).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        store.append(batch(&a, &[(1, 1.0)])).await.unwrap();
        store.close().await.unwrap();
        let files = || async {
            use futures::TryStreamExt;
            let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
            let mut names: Vec<_> =
                listed.into_iter().map(|file| (file.location, file.last_modified)).collect();
            names.sort();
            names
        };
        let before = files().await;
        let seen = look(&objects).await.unwrap();
        read_all(&seen).await.unwrap();
        assert_eq!(seen.append(batch(&a, &[(2, 1.0)])).await, Err(StoreError::ReadOnly));
        let any = vec![vec![model::Matcher::equal("__name__", "a")]];
        assert_eq!(seen.delete(any, 0, 9).await, Err(StoreError::ReadOnly));
        assert_eq!(seen.clean_tombstones().await, Err(StoreError::ReadOnly));
        assert_eq!(seen.seal_all().await, Err(StoreError::ReadOnly));
        assert_eq!(seen.maintain().await, Err(StoreError::ReadOnly));
        assert_eq!(seen.snapshot("s", true).await, Err(StoreError::ReadOnly));
        seen.close().await.unwrap();
        assert_eq!(files().await, before);
    });
}

#[test]
fn where_there_is_no_store_none_is_created() {
    super::harness::run(async {
        let objects = memory();
        assert!(matches!(look(&objects).await, Err(StoreError::NoStore(_))));
        let mut listed = objects.list(None);
        assert!(futures::StreamExt::next(&mut listed).await.is_none());
        let folder = std::env::temp_dir().join("tessella-no-such-store");
        let error = Store::open_once(folder.to_str().unwrap(), options()).await.err();
        assert!(matches!(error, Some(StoreError::NoStore(_))), "{error:?}");
        assert!(!folder.exists());
    });
}
