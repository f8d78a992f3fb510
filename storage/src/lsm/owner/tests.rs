use slatedb::object_store::memory::InMemory;

use super::process::{DURATION_DEFAULT, process_started};
use super::*;
use crate::Store;
use crate::tests::harness::{self, batch, labels};

const DURATION: Duration = Duration::from_secs(60);

fn lease(objects: &Arc<dyn ObjectStore>, is_conditional: bool) -> Lease {
    Lease {
        objects: Arc::clone(objects),
        folder: ObjectPath::from("tessella"),
        is_conditional,
        request_timeout: Duration::from_secs(10),
        duration: DURATION,
    }
}

fn owner(id: &str) -> Owner {
    Owner { id: id.to_owned(), host: "elsewhere".to_owned(), ..Owner::default() }
}

/// Returns a command to take over, or not, that never changes.
fn fixed(take_over: bool) -> watch::Receiver<bool> {
    watch::channel(take_over).1
}

/// Returns how long taking a lease lasts, by the clock of the runtime.
async fn time_to_take(lease: &Lease, owner: &mut Owner, take_over: bool) -> Duration {
    let started = Instant::now();
    lease.take(owner, &mut fixed(take_over)).await.unwrap();
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_once_it_has_not_changed_for_its_duration() {
    for is_conditional in [false, true] {
        let lease = lease(&harness::memory(), is_conditional);
        assert_eq!(time_to_take(&lease, &mut owner("first"), false).await, Duration::ZERO);
        let waited = time_to_take(&lease, &mut owner("second"), false).await;
        assert!(waited >= DURATION && waited <= DURATION + DURATION / CHECKS, "{waited:?}");
        assert_eq!(time_to_take(&lease, &mut owner("third"), true).await, Duration::ZERO);
        assert!(lease.read().await.unwrap().unwrap().is_of(&owner("third")));
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_states_the_duration_of_its_lease() {
    for (lease_ms, expected) in [
        (Some(5_000), Duration::from_secs(5)),
        (Some(600_000), Duration::from_secs(600)),
        (Some(u64::MAX), LEASE_DURATION_MAX),
        (None, DURATION_DEFAULT),
    ] {
        let lease = lease(&harness::memory(), true);
        let first = Owner { lease_ms, ..owner("first") };
        lease.take(&mut first.clone(), &mut fixed(false)).await.unwrap();
        let waited = time_to_take(&lease, &mut owner("second"), false).await;
        assert!(waited >= expected && waited <= expected + DURATION / CHECKS, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_process_takes_a_lease_over_on_command() {
    let lease = lease(&harness::memory(), true);
    lease.take(&mut owner("first"), &mut fixed(false)).await.unwrap();
    let (command, mut commanded) = watch::channel(false);
    let mut second = owner("second");
    let mut taking = Box::pin(lease.take(&mut second, &mut commanded));
    assert!(tokio::time::timeout(DURATION / 2, &mut taking).await.is_err(), "it waits");
    command.send_replace(true);
    let began = Instant::now();
    taking.as_mut().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_waited_for_until_it_is_removed() {
    let lease = lease(&harness::memory(), true);
    let mut first = owner("first");
    lease.take(&mut first, &mut fixed(false)).await.unwrap();
    let status = Arc::new(OwnershipStatus::remote());
    let renewing = tokio::spawn(lease.clone().renew_forever(first.clone(), Arc::clone(&status)));
    let mut second = owner("second");
    let mut command = fixed(false);
    let mut taking = Box::pin(lease.take(&mut second, &mut command));
    assert!(tokio::time::timeout(10 * DURATION, &mut taking).await.is_err(), "it is alive");
    assert_eq!(status.lost(), None);
    renewing.abort();
    let _ = renewing.await;
    lease.remove(&first).await.unwrap();
    let started = Instant::now();
    taking.as_mut().await.unwrap();
    drop(taking);
    assert!(started.elapsed() <= DURATION / CHECKS, "a lease that is gone is not waited for");
    lease.remove(&first).await.unwrap();
    assert!(lease.read().await.unwrap().unwrap().is_of(&second), "only its own is removed");
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_given_back_if_the_store_was_not_opened() {
    for is_conditional in [false, true] {
        let lease = lease(&harness::memory(), is_conditional);
        let first = owner("first");
        lease.take(&mut first.clone(), &mut fixed(false)).await.unwrap();
        let taken_by = async |take_over, name: &str| {
            let mut owner = owner(name);
            let replaced = lease.take(&mut owner, &mut fixed(take_over)).await.unwrap();
            let held = OwnerLock::Lease(lease.clone(), Box::new(owner));
            let status = Arc::new(OwnershipStatus::remote());
            Ownership { held, status, watching: None, replaced }
        };
        taken_by(true, "second").await.give_back().await;
        assert!(lease.read().await.unwrap().unwrap().is_of(&first), "it still works");
        let second = taken_by(true, "second").await;
        taken_by(true, "third").await.give_back().await;
        second.release().await;
        assert!(lease.read().await.unwrap().is_none(), "an opened store is released");
        lease.take(&mut first.clone(), &mut fixed(false)).await.unwrap();
        let expired = taken_by(false, "second").await;
        assert_eq!(expired.replaced, None);
        expired.give_back().await;
        assert!(lease.read().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_process_of_this_machine_is_not_waited_for() {
    let mut child = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
    let alive = Owner {
        pid: child.id(),
        process_started: process_started(child.id()),
        id: "alive".to_owned(),
        ..Owner::this(None)
    };
    assert!(alive.process_started.is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    let lease = lease(&harness::memory(), true);
    lease.take(&mut alive.clone(), &mut fixed(false)).await.unwrap();
    assert_eq!(time_to_take(&lease, &mut Owner::this(None), false).await, Duration::ZERO);
    // Unknown on another machine.
    for elsewhere in [
        Owner { machine: Some("another boot".to_owned()), ..alive.clone() },
        Owner { host: "elsewhere".to_owned(), ..alive.clone() },
        Owner { machine: None, ..alive },
    ] {
        assert!(!elsewhere.is_dead(&Owner::this(None)), "{elsewhere:?}");
    }
    let itself = Owner::this(None);
    assert!(!itself.is_dead(&itself));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_expires_like_any_other() {
    let objects = harness::memory();
    let lease = lease(&objects, true);
    objects.put(&lease.path(), "not an owner".into()).await.unwrap();
    assert!(time_to_take(&lease, &mut owner("a"), false).await >= DURATION);
}

#[tokio::test(start_paused = true)]
async fn an_owner_notices_that_its_lease_has_been_taken() {
    for is_conditional in [false, true] {
        let lease = lease(&harness::memory(), is_conditional);
        let mut first = owner("first");
        lease.take(&mut first, &mut fixed(false)).await.unwrap();
        let status = Arc::new(OwnershipStatus::remote());
        let renewing =
            tokio::spawn(lease.clone().renew_forever(first.clone(), Arc::clone(&status)));
        // A lease that was deleted by hand is written again.
        lease.objects.delete(&lease.path()).await.unwrap();
        tokio::time::sleep(DURATION).await;
        assert!(lease.read().await.unwrap().unwrap().is_of(&first));
        lease.take(&mut owner("second"), &mut fixed(true)).await.unwrap();
        let error = status.wait().await;
        assert!(error.to_string().contains("taken over by process 0 on host elsewhere"), "{error}");
        renewing.await.unwrap();
        assert!(lease.read().await.unwrap().unwrap().is_of(&owner("second")));
    }
}

/// Opens a store in memory with a lease that is renewed every few milliseconds.
async fn open_leased(objects: &Arc<dyn ObjectStore>, take_over: bool) -> Store {
    let mut location = Location::on(Arc::clone(objects));
    location.has_lease = true;
    let lease_duration = Duration::from_millis(60);
    let options = StoreOptions { take_over, lease_duration, ..harness::options() };
    Store::open_at(&location, options).await.unwrap()
}

#[test]
fn a_store_without_manifest_accepts_no_writes() {
    harness::run(async {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let store = open_leased(&objects, false).await;
        let write = |time_ms| batch(&labels(&[("a", "b")]), &[(time_ms, 1.0)]);
        store.append(write(1)).await.unwrap();
        assert_eq!(store.lost(), None);
        let manifests = ObjectPath::from("tessella/manifest");
        let listed = objects.list_with_delimiter(Some(&manifests)).await.unwrap().objects;
        for manifest in listed {
            objects.delete(&manifest.location).await.unwrap();
        }
        let error = store.wait_until_lost().await;
        assert!(matches!(&error, StoreError::Lost(why) if why.contains("manifest")), "{error}");
        assert_eq!(store.append(write(2)).await, Err(error));
    });
}

#[test]
fn a_store_that_is_taken_over_is_lost_and_one_that_is_closed_is_free() {
    harness::run(async {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let first = open_leased(&objects, false).await;
        let second = open_leased(&objects, true).await;
        assert!(first.wait_until_lost().await.is_loss());
        let refused = first.append(batch(&labels(&[("a", "b")]), &[(1, 1.0)])).await;
        assert!(refused.unwrap_err().is_loss());
        assert_eq!(second.lost(), None);
        second.close().await.unwrap();
        let lease = ObjectPath::from("tessella/lease");
        assert!(objects.head(&lease).await.is_err(), "it is removed");
    });
}
