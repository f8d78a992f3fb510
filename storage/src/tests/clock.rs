//! Wrong clocks: the retention deletes nothing because of them.

use std::sync::Arc;

use model::{Labels, Matcher};
use slatedb::object_store::ObjectStore;

use super::harness::{self, Contents, batch, labels, open_with, read_all};
use crate::window::PARTITION_MS;
use crate::{
    Clock, ManualClock, RETENTION_CONFIRMATION, RetentionLimit, RetentionRule, Store, StoreOptions,
};

const BEGIN_MS: i64 = 1000 * PARTITION_MS + PARTITION_MS / 3;
const MINUTE_MS: i64 = 60_000;
const KEPT_MS: i64 = 15 * PARTITION_MS;
const DEBUG_KEPT_MS: i64 = 5 * PARTITION_MS;

fn other() -> Labels {
    labels(&[("__name__", "x")])
}

fn debug() -> Labels {
    labels(&[("__name__", "debug")])
}

/// A store whose senders know the time, whatever its clock shows.
struct World {
    objects: Arc<dyn ObjectStore>,
    clock: Arc<ManualClock>,
    store: Store,
    /// True time.
    now_ms: i64,
    /// Error of the clock; positive if it is ahead.
    ahead_ms: i64,
    /// Acknowledged times, of both series.
    sent: Vec<i64>,
}

impl World {
    /// Opens a store with some days of samples, some of them sealed.
    async fn begin() -> World {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        let store = open_with(&objects, options(&clock)).await.unwrap();
        let mut world =
            World { objects, clock, store, now_ms: BEGIN_MS, ahead_ms: 0, sent: Vec::new() };
        for day in (0..5).rev() {
            world.send(BEGIN_MS - day * PARTITION_MS - 1).await;
        }
        world.store.seal_all().await.unwrap();
        world.live(30).await;
        world
    }

    /// Writes samples with a time, which must be accepted.
    async fn send(&mut self, time_ms: i64) {
        for series in [other(), debug()] {
            let outcome = self.store.append(batch(&series, &[(time_ms, 1.0)])).await.unwrap();
            assert_eq!(outcome.accepted, 1, "{outcome:?} at {time_ms}");
        }
        self.sent.push(time_ms);
    }

    /// Lets minutes pass in which senders write current samples, and the store maintains itself.
    async fn live(&mut self, minutes: i64) {
        for _ in 0..minutes {
            self.now_ms += MINUTE_MS;
            self.clock.set(self.now_ms + self.ahead_ms);
            self.store.maintain().await.unwrap();
            self.send(self.now_ms).await;
        }
    }

    fn set_clock(&mut self, ahead_ms: i64) {
        self.ahead_ms = ahead_ms;
        self.clock.step_to(self.now_ms + ahead_ms);
    }

    /// Writes a sample with the time of the store's clock.
    async fn note_clock(&self) {
        let own = labels(&[("__name__", "own")]);
        let sample = [(self.clock.now_ms(), 1.0)];
        assert_eq!(self.store.append(batch(&own, &sample)).await.unwrap().accepted, 1);
    }

    /// Panics unless both series have all acknowledged samples from a time on.
    async fn check(&self, kept_from_ms: i64) {
        let kept = self.sent.iter().filter(|time_ms| **time_ms >= kept_from_ms);
        let samples: Vec<(i64, u64)> = kept.map(|t| (*t, 1.0_f64.to_bits())).collect();
        let mut found: Contents = read_all(&self.store).await.unwrap();
        found.retain(|(labels, _)| labels.metric_name() != "own");
        assert_eq!(found, [(debug(), samples.clone()), (other(), samples)]);
    }

    async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = open_with(&self.objects, options(&self.clock)).await.unwrap();
    }
}

fn options(clock: &Arc<ManualClock>) -> StoreOptions {
    let matchers = vec![Matcher::equal("__name__", "debug")];
    StoreOptions {
        retention_ms: Some(KEPT_MS),
        retention_rules: vec![RetentionRule { matchers, time_ms: DEBUG_KEPT_MS }],
        retention_confirmation: RETENTION_CONFIRMATION,
        clock: Arc::clone(clock) as _,
        ..harness::options()
    }
}

#[test]
fn a_clock_that_is_ahead_for_a_while_deletes_nothing() {
    harness::run(async {
        let mut world = World::begin().await;
        for minutes in [1, 20] {
            world.set_clock(30 * PARTITION_MS);
            // Samples of the store's own machine agree with its clock.
            world.note_clock().await;
            world.live(minutes).await;
            world.note_clock().await;
            world.check(i64::MIN).await;
            world.set_clock(0);
            world.live(1).await;
            world.check(i64::MIN).await;
        }
        world.live(120).await;
        world.check(i64::MIN).await;
        world.reopen().await;
        world.live(30).await;
        world.check(i64::MIN).await;
        assert_eq!(world.store.stats().partitions_deleted, 0);
    });
}

#[test]
fn a_start_with_a_wrong_clock_deletes_nothing() {
    harness::run(async {
        let mut world = World::begin().await;
        world.set_clock(30 * PARTITION_MS);
        world.reopen().await;
        world.note_clock().await;
        for _ in 0..60 {
            world.live(1).await;
            world.note_clock().await;
        }
        world.check(i64::MIN).await;
        assert_eq!(world.store.stats().partitions_deleted, 0);
        world.set_clock(0);
        world.live(120).await;
        world.check(i64::MIN).await;
    });
}

#[test]
fn a_clock_that_is_ahead_for_long_deletes_nothing_that_senders_do_not_agree_with() {
    harness::run(async {
        let mut world = World::begin().await;
        world.set_clock(30 * PARTITION_MS);
        world.live(300).await;
        world.check(i64::MIN).await;
        world.set_clock(0);
        world.live(1).await;
        world.check(i64::MIN).await;
    });
}

#[test]
fn writes_are_accepted_once_a_clock_that_was_wrong_for_long_is_right() {
    harness::run(async {
        let mut world = World::begin().await;
        world.set_clock(30 * PARTITION_MS);
        for _ in 0..100 {
            world.now_ms += MINUTE_MS;
            world.clock.set(world.now_ms + world.ahead_ms);
            world.note_clock().await;
            world.store.maintain().await.unwrap();
        }
        // All senders confirm the wrong time.
        assert!(world.store.stats().partitions_deleted > 0);
        let current = batch(&debug(), &[(world.now_ms, 1.0)]);
        let outcome = world.store.append(current).await.unwrap();
        let floor = outcome.rejections[0].floor.as_ref().unwrap();
        assert_eq!(
            floor.limit,
            RetentionLimit::Rule("{__name__=\"debug\"}".to_owned(), DEBUG_KEPT_MS)
        );
        assert!(floor.floor_ms > world.now_ms);
        world.set_clock(0);
        world.store.maintain().await.unwrap();
        let right_ms = world.now_ms;
        world.send(right_ms).await;
        world.check(right_ms).await;
        world.live(5).await;
        world.check(right_ms).await;
        for is_sealed in [false, true] {
            if is_sealed {
                world.store.seal_all().await.unwrap();
                world.check(right_ms).await;
                world.store.clean_tombstones().await.unwrap();
                world.check(right_ms).await;
            }
            world.reopen().await;
            world.live(5).await;
            world.check(right_ms).await;
        }
    });
}

#[test]
fn days_are_deleted_after_a_second_look_minutes_later() {
    harness::run(async {
        let mut world = World::begin().await;
        world.now_ms += 20 * PARTITION_MS;
        let back_ms = world.now_ms + MINUTE_MS;
        world.live(1).await;
        world.check(i64::MIN).await;
        world.live(9).await;
        world.check(i64::MIN).await;
        world.live(15).await;
        world.check(back_ms).await;
        assert_eq!(world.store.stats().partitions_deleted, 5);
        let outcome = world.store.append(batch(&other(), &[(BEGIN_MS, 1.0)])).await.unwrap();
        let floor = outcome.rejections[0].floor.as_ref().unwrap();
        assert_eq!(floor.limit, RetentionLimit::Time(KEPT_MS));
        assert!((back_ms - KEPT_MS..=world.now_ms - KEPT_MS).contains(&floor.floor_ms));
    });
}

#[test]
fn a_sample_far_in_the_future_deletes_nothing() {
    harness::run(async {
        let mut world = World::begin().await;
        let options = StoreOptions { ahead_max_ms: None, ..options(&world.clock) };
        world.store.close().await.unwrap();
        world.store = open_with(&world.objects, options).await.unwrap();
        let future = batch(&labels(&[("__name__", "own")]), &[(BEGIN_MS + (1 << 40), 1.0)]);
        assert_eq!(world.store.append(future).await.unwrap().accepted, 1);
        world.live(30).await;
        world.store.seal_all().await.unwrap();
        world.live(30).await;
        world.check(i64::MIN).await;
    });
}

#[test]
fn an_idle_store_keeps_its_samples() {
    harness::run(async {
        let mut world = World::begin().await;
        for _ in 0..50 {
            world.now_ms += PARTITION_MS;
            world.clock.set(world.now_ms);
            world.store.maintain().await.unwrap();
        }
        world.check(i64::MIN).await;
    });
}
