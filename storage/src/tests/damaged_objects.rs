//! Damaged objects of every kind: flipped bits, cut short, deleted, or replaced by another. Every
//! series is read whole, or an error names the object. The only silent losses are those that no
//! other object shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{BatchExemplar, BatchMetadata, Budget, ExemplarQuery, Matcher, MetricKind, TimeRange};
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::path::Path;
use slatedb::object_store::{ObjectStore, ObjectStoreExt};

use super::harness::{self, Contents, batch, labels, read};
use crate::lsm::Location;
use crate::window::PARTITION_MS;
use crate::{Store, StoreOptions};

const SERIES: i64 = 6;

/// Silent losses: except on a local disk, no object shows that the newest WAL object is gone or
/// empty.
const SILENT: [(&str, &str, &str); 4] = [
    ("newest write-ahead log", "cut short", "exemplars missing"),
    ("newest write-ahead log", "cut short", "samples missing"),
    ("newest write-ahead log", "gone", "exemplars missing"),
    ("newest write-ahead log", "gone", "samples missing"),
];

fn options() -> StoreOptions {
    StoreOptions { compaction_interval: Some(Duration::from_secs(86_400)), ..harness::options() }
}

async fn open(objects: &InMemory) -> Result<Store, crate::StoreError> {
    let objects: Arc<dyn ObjectStore> = Arc::new(objects.clone());
    let mut location = Location::on(objects);
    location.garbage_interval = Duration::from_secs(86_400);
    Store::open_at(&location, options()).await
}

/// Writes one sample per series and write.
async fn write(store: &Store, times: &[i64]) {
    for number in 0..SERIES {
        for time_ms in times {
            let series = labels(&[("__name__", "m"), ("n", &number.to_string())]);
            let mut batch = batch(&series, &[(*time_ms, number as f64)]);
            if *time_ms == times[0] {
                let trace = labels(&[("trace_id", "1")]);
                let (timestamp_ms, value) = (*time_ms, 1.0);
                let labels = trace;
                batch.exemplars.push(BatchExemplar {
                    series_index: 0,
                    labels,
                    timestamp_ms,
                    value,
                });
                let (help, unit) = ("helps".to_owned(), String::new());
                let (metric, kind) = (format!("m{number}"), MetricKind::Gauge);
                batch.metadata.push(BatchMetadata { metric, kind, help, unit });
            }
            store.append(batch).await.unwrap();
        }
    }
}

/// Returns a killed store and the kind of each object: two days in SSTs, in two runs each, and two
/// logs, one of them of an earlier process.
async fn killed() -> (InMemory, BTreeMap<String, &'static str>) {
    let objects = InMemory::new();
    let store = open(&objects).await.unwrap();
    for times in [[1000, 2000], [3000, PARTITION_MS]] {
        write(&store, &times).await;
        store.seal_all().await.unwrap();
        crate::seal::write_out(store.core()).await.unwrap();
    }
    write(&store, &[PARTITION_MS + 5000]).await;
    drop(store);
    let store = open(&objects).await.unwrap();
    write(&store, &[PARTITION_MS + 9000]).await;
    // Compacted SSTs are not read any more.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let files = store.core().lsm.files().into_iter();
    let kinds: BTreeMap<String, &'static str> = files
        .map(|(segment, name)| {
            let kind = match segment[0] {
                b'p' => "samples and index of a day",
                b'l' => "log records",
                b'm' => "records of the store about itself",
                b'd' => "dictionary",
                b'n' => "metadata",
                b'x' => "exemplars",
                _ => "unknown",
            };
            (name, kind)
        })
        .collect();
    drop(store);
    let mut all = BTreeMap::new();
    let listed = futures::TryStreamExt::try_collect::<Vec<_>>(objects.list(None)).await.unwrap();
    let mut names: Vec<String> = listed.iter().map(|o| o.location.to_string()).collect();
    names.sort();
    let newest = |folder: &str| names.iter().rfind(|name| name.contains(folder)).cloned();
    let newest_of = ["/wal/", "/manifest/", "/compactions/"].map(newest);
    for name in &names {
        let file = name.rsplit('/').next().unwrap_or_default();
        let is_newest = newest_of.contains(&Some(name.clone()));
        let kind = match (name, is_newest) {
            (name, true) if name.contains("/wal/") => "newest write-ahead log",
            (name, false) if name.contains("/wal/") => "write-ahead log",
            (name, true) if name.contains("/manifest/") => "newest manifest",
            (name, false) if name.contains("/manifest/") => "manifest",
            (name, true) if name.contains("/compactions/") => "newest compactions",
            (name, false) if name.contains("/compactions/") => "compactions",
            _ => kinds.get(file).copied().unwrap_or("merged file"),
        };
        all.insert(name.clone(), kind);
    }
    (objects, all)
}

/// Returns the outcome of opening and reading a store.
async fn outcome(objects: &InMemory, object: &str, whole: &Contents) -> BTreeSet<String> {
    let file = object.rsplit('/').next().unwrap_or_default().trim_end_matches(".sst");
    let named = |error: String| {
        let is_named = error.contains(file);
        (if is_named { "named" } else { "not named" }, error)
    };
    let mut outcomes = BTreeSet::new();
    let store = match tokio::time::timeout(Duration::from_secs(900), open(objects)).await {
        Err(_) => return BTreeSet::from(["hangs".to_owned()]),
        Ok(Err(error)) => {
            let (is_named, error) = named(error.to_string());
            if std::env::var_os("DAMAGE_ERRORS").is_some() {
                eprintln!("  {object}: closed: {error}");
            }
            return BTreeSet::from([format!("closed, {is_named}")]);
        }
        Ok(Ok(store)) => store,
    };
    for number in 0..SERIES {
        let matchers = vec![Matcher::equal("n", number.to_string())];
        for day in 0..2 {
            let times = (day * PARTITION_MS, day * PARTITION_MS + PARTITION_MS - 1);
            let expected = whole[number as usize].1.iter().copied();
            let expected: Vec<_> =
                expected.filter(|s| (times.0..=times.1).contains(&s.0)).collect();
            match read(&store, matchers.clone(), times.0, times.1).await {
                Ok(found) => {
                    let found = found.into_iter().next().map(|(_, s)| s).unwrap_or_default();
                    outcomes.insert(
                        if found == expected { "right" } else { "samples missing" }.to_owned(),
                    );
                }
                Err(error) => {
                    let (is_named, error) = named(error.to_string());
                    if std::env::var_os("DAMAGE_ERRORS").is_some() {
                        eprintln!("  {object}: {error}");
                    }
                    outcomes.insert(format!("error, {is_named}"));
                    if error.contains("damaged data at the object store") {
                        let has_key = error.contains("in a read from key p");
                        outcomes
                            .insert(if has_key { "key named" } else { "key missing" }.to_owned());
                    }
                }
            }
        }
    }
    let selectors = vec![vec![Matcher::equal("__name__", "m")]];
    let query = ExemplarQuery { selectors, times: TimeRange::ALL };
    let answer = model::Source::exemplars(&store, &query, &Budget::unlimited()).unwrap();
    let count: usize = answer.found.iter().map(|series| series.exemplars.len()).sum();
    if count < 4 * SERIES as usize {
        let what = if answer.warnings.is_empty() { "missing" } else { "in warnings" };
        outcomes.insert(format!("exemplars {what}"));
    }
    let answer = model::Source::metadata(&store, None, usize::MAX);
    if answer.found.len() < SERIES as usize {
        outcomes.insert("metadata missing".to_owned());
    }
    outcomes
}

#[test]
fn damaged_objects_are_errors_and_not_gaps() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    let mut table: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    let (objects, kinds) = runtime.block_on(killed());
    let whole = runtime.block_on(async {
        let store = open(&objects.fork()).await.unwrap();
        harness::read_all(&store).await.unwrap()
    });
    assert_eq!(whole.len(), SERIES as usize);
    for (name, kind) in &kinds {
        let path = Path::from(name.as_str());
        let bytes =
            runtime.block_on(async { objects.get(&path).await.unwrap().bytes().await.unwrap() });
        let other = kinds.iter().find(|(n, k)| *k == kind && *n != name).map(|(n, _)| n.as_str());
        let mut damaged: Vec<(&str, Option<Vec<u8>>)> = vec![("gone", None)];
        for bit in (0..bytes.len() * 8).step_by((bytes.len() * 8 / 8).max(1)) {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            damaged.push(("bit flipped", Some(bytes)));
        }
        for len in [0, 1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            if len >= bytes.len() {
                continue;
            }
            damaged.push(("cut short", Some(bytes[..len].to_vec())));
        }
        if let Some(other) = other {
            let of_other =
                async { objects.get(&Path::from(other)).await.unwrap().bytes().await.unwrap() };
            damaged.push(("another of its kind", Some(runtime.block_on(of_other).to_vec())));
        }
        for (damage, bytes) in damaged {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .expect("a runtime can be built");
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                runtime.block_on(async {
                    let objects = objects.fork();
                    match bytes {
                        None => objects.delete(&path).await.unwrap(),
                        Some(bytes) => drop(objects.put(&path, bytes.into()).await.unwrap()),
                    }
                    outcome(&objects, name, &whole).await
                })
            }));
            let found = found.unwrap_or_else(|_| BTreeSet::from(["panic".to_owned()]));
            table.entry((kind, damage)).or_default().extend(found);
        }
    }
    let mut silent = BTreeSet::new();
    for ((kind, damage), found) in &table {
        println!("{kind:28} | {damage:20} | {found:?}");
        let missing = ["samples missing", "exemplars missing", "metadata missing", "key missing"];
        for wrong in ["panic", "hangs"].into_iter().chain(missing) {
            if found.contains(wrong) {
                silent.insert((*kind, *damage, wrong));
            }
        }
    }
    assert_eq!(silent, BTreeSet::from(SILENT), "a new silent loss, or a fixed one");
    assert!(table.values().any(|found| found.contains("key named")), "{table:?}");
    let kinds: BTreeSet<&str> = kinds.into_values().collect();
    assert!(kinds.len() >= 10 && !kinds.contains("unknown"), "{kinds:?}");
}
