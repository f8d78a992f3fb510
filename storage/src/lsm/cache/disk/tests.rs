use std::path::Path as FilePath;
use std::sync::atomic::{AtomicUsize, Ordering};

use slatedb::object_store::memory::InMemory;
use slatedb::object_store::{ObjectStoreExt, PutPayload};
use slatedb::object_store_tag::RetryReason;

use super::*;
use crate::sizes::Sizes;
use crate::tests::harness;
use slatedb::object_store_tag::{ObjectStoreCallTag, SstType, TableStoreKind};

/// Object store that counts reads.
#[derive(Debug)]
struct Counting(InMemory, Arc<AtomicUsize>);

#[async_trait]
impl Layer for Counting {
    fn below(&self) -> &dyn ObjectStore {
        &self.0
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.get_opts(from, how).await
    }
}

struct Fixture {
    folder: std::path::PathBuf,
    asked: Arc<AtomicUsize>,
    cache: Layered<DiskCache>,
    path: Path,
    bytes: Vec<u8>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // The folder may be missing already.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn open(objects: Arc<dyn ObjectStore>, folder: &FilePath, bytes_max: u64) -> Layered<DiskCache> {
    let options = DiskCacheOptions { folder: folder.to_owned(), bytes_max };
    DiskCache::open(objects, &options, Sizes::small().cache_part_bytes).unwrap()
}

impl Fixture {
    async fn new(name: &str, len: usize, bytes_max: u64) -> Fixture {
        let folder =
            std::env::temp_dir().join(format!("tessella-disk-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
        let path = Path::from("tessella/compacted/01ABC.sst");
        let objects = InMemory::new();
        objects.put(&path, PutPayload::from(bytes.clone())).await.unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let objects: Arc<dyn ObjectStore> =
            Arc::new(Layered(Counting(objects, Arc::clone(&asked))));
        let cache = open(objects, &folder, bytes_max);
        Fixture { folder, asked, cache, path, bytes }
    }

    fn reopen(&mut self, bytes_max: u64) {
        let objects = Arc::clone(&self.cache.objects);
        self.cache = open(objects, &self.folder, bytes_max);
    }

    /// Reads, compares, and waits until the fetched parts are written. Returns the number of reads
    /// of the object store.
    async fn read(&self, range: Range<u64>, retry: Option<RetryReason>) -> usize {
        let asked = self.asked.load(Ordering::SeqCst);
        let mut tag = ObjectStoreCallTag::new(TableStoreKind::Main, SstType::Compacted);
        tag.retry = retry;
        let mut extensions = Extensions::new();
        extensions.insert(tag);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            extensions,
            ..GetOptions::default()
        };
        let found = self.cache.get_opts(&self.path, options).await.unwrap();
        let end = (range.end as usize).min(self.bytes.len());
        assert_eq!(found.meta.size, self.bytes.len() as u64, "{range:?}");
        assert_eq!(found.range, range.start..end as u64);
        let expected = &self.bytes[range.start as usize..end];
        assert_eq!(found.bytes().await.unwrap(), expected, "{range:?}");
        let all = self.cache.writes.acquire_many(WRITES_MAX as u32).await.unwrap();
        drop(all);
        self.asked.load(Ordering::SeqCst) - asked
    }
}

#[test]
fn every_range_is_what_the_object_store_has() {
    harness::run(async {
        for len in [1, 63, 64, 65, 300] {
            let fixture = Fixture::new("ranges", len, 1 << 20).await;
            for step in [17, 5, 64] {
                for start in (0..len as u64).step_by(step) {
                    for span in [1, 40, 64, 100, 400] {
                        fixture.read(start..start + span, None).await;
                    }
                }
            }
            assert_eq!(fixture.read(0..len as u64, None).await, 0, "all is kept by now");
        }
    });
}

#[test]
fn what_is_missing_is_fetched_with_one_request() {
    harness::run(async {
        let fixture = Fixture::new("one", 1000, 1 << 20).await;
        assert_eq!(fixture.read(100..110, None).await, 1);
        assert_eq!(fixture.read(64..128, None).await, 0);
        assert_eq!(fixture.read(500..510, None).await, 1);
        assert_eq!(fixture.read(0..1000, None).await, 1);
        assert_eq!(fixture.read(3..999, None).await, 0);
        let stats = fixture.cache.stats();
        assert_eq!(stats.bytes, 1000 + 16 * 12);
        assert!(stats.hits >= 16 && stats.misses >= 16, "{stats:?}");
    });
}

#[test]
fn parts_outlive_the_process_and_damaged_ones_are_fetched() {
    harness::run(async {
        let mut fixture = Fixture::new("damage", 200, 1 << 20).await;
        assert_eq!(fixture.read(0..200, None).await, 1);
        fixture.reopen(1 << 20);
        assert_eq!(fixture.read(0..200, None).await, 0);
        let file = fixture.folder.join("01ABC.sst.1");
        let whole = std::fs::read(&file).unwrap();
        let flipped = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            bytes
        };
        for wrong in [Vec::new(), whole[..20].to_vec(), flipped(5), flipped(30)] {
            std::fs::write(&file, &wrong).unwrap();
            assert_eq!(fixture.read(0..200, None).await, 1);
            assert_eq!(fixture.read(0..200, None).await, 0, "it has been written again");
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(fixture.read(0..200, None).await, 1);
    });
}

#[test]
fn what_the_tree_finds_wrong_is_fetched_again() {
    harness::run(async {
        let fixture = Fixture::new("retry", 200, 1 << 20).await;
        fixture.read(0..200, None).await;
        assert_eq!(fixture.read(0..64, Some(RetryReason::CrcMismatch)).await, 1);
        assert_eq!(fixture.read(0..200, None).await, 0);
    });
}

#[test]
fn what_was_asked_for_longest_ago_makes_room() {
    harness::run(async {
        let mut fixture = Fixture::new("room", 64 * 8, 4 * (64 + 12)).await;
        for part in 0..4 {
            assert_eq!(fixture.read(part * 64..part * 64 + 1, None).await, 1);
        }
        assert_eq!(fixture.read(0..1, None).await, 0);
        assert_eq!(fixture.read(64 * 4..64 * 4 + 1, None).await, 1);
        assert_eq!(fixture.read(0..1, None).await, 0, "it was asked for a moment ago");
        assert_eq!(fixture.read(64..65, None).await, 1, "it was asked for longest ago");
        let stats = fixture.cache.stats();
        assert_eq!((stats.bytes, stats.evictions), (4 * 76, 2));
        fixture.reopen(2 * 76);
        assert_eq!(fixture.cache.stats().bytes, 2 * 76);
        assert_eq!(std::fs::read_dir(&fixture.folder).unwrap().count(), 2);
    });
}

#[test]
fn reads_that_are_not_of_the_trees_files_go_past() {
    harness::run(async {
        let fixture = Fixture::new("past", 200, 1 << 20).await;
        for _ in 0..2 {
            let asked = fixture.asked.load(Ordering::SeqCst);
            fixture.cache.get_range(&fixture.path, 0..10).await.unwrap();
            assert_eq!(fixture.asked.load(Ordering::SeqCst), asked + 1);
        }
        assert_eq!(fixture.cache.stats(), DiskCacheStats::default());
    });
}
