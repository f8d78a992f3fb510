//! Rules of the retention at work: what they expire is deleted as by a tombstone.
//!
//! ```text
//! every two hours, a rule:
//!   one write   the log epoch ends; a tombstone from where the rule has been to where it is now,
//!               in place of one of the rule that is not cleaned up yet; where all rules are
//!   then        the head drops it, selections mask it
//! every day     files that hold nothing but what has expired, or much of it, are written anew
//! ```
//!
//! Nothing is written to the times that a rule has expired: they are refused. So a tombstone of a
//! rule may reach further and later than the one before it and cover nothing that counts. Where the
//! clock is set back, the rule goes back with it: what is written from then on is later than the
//! tombstone, which does not cover it.

use std::sync::{Arc, PoisonError};

use crate::core::Core;
use crate::delete::{self, Tombstone};
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::retention::{Keeping, RetentionTime, Rule, are_same};
use crate::window::{partition_of_window, window_of};

/// Expires what rules do not keep any more. On return it is out of view for good.
///
/// Errors: after one, whether it is is not known, and the log takes nothing more.
pub(crate) async fn expire(core: &Arc<Core>) -> Result<(), StoreError> {
    // Before the rules are looked at: of two calls the later one sees the newer rules.
    let mut log = core.log.lock().await;
    let time = core.observe_retention_time();
    let keeping = core.keeping();
    let bytes = keeping.encode(|rule| rule.floor_ms(time));
    if *core.stored_rules.lock().unwrap_or_else(PoisonError::into_inner) == bytes {
        return Ok(());
    }
    log.check()?;
    let mut set = WriteSet::default();
    match &bytes {
        Some(bytes) => set.put(keys::RULES.to_vec(), bytes.clone()),
        None => set.delete(keys::RULES),
    }
    let (mut new, mut old) = (Vec::new(), Vec::new());
    for rule in &keeping.rules {
        let Some(tombstone) = next_tombstone(core, rule, time, log.epoch, &mut old) else {
            continue;
        };
        log.epoch += 1;
        let key = keys::tombstone(tombstone.epoch);
        let bytes = delete::encode(&key, &tombstone);
        set.put(key, bytes);
        new.push(tombstone);
    }
    old.iter().for_each(|epoch| set.delete(&keys::tombstone(*epoch)));
    core.lsm.commit(set).await.inspect_err(|error| log.failure().set(error))?;
    let ends: Vec<i64> = new.iter().map(|tombstone| tombstone.end_ms).collect();
    // Of a series that holds nothing open nothing is to be dropped: what it knows of its newest
    // sample is not asked for, since times that have expired are refused before.
    let is_open = |t: &&Tombstone| !core.head.is_beside(t.start_ms, t.end_ms);
    let dropping: Vec<_> =
        new.iter().filter(is_open).map(|tombstone| log.begin_drop(tombstone)).collect();
    core.tombstones.exchange(new, &old);
    keeping.rules.iter().for_each(|rule| rule.set_expired_before(rule.floor_ms(time)));
    *core.stored_rules.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    drop(log);
    let mut result = Ok(());
    for dropped in dropping {
        result = result.and(core.drop_deleted(dropped).await);
    }
    for end_ms in ends {
        core.head.changes.note_expired_before(end_ms.saturating_add(1));
    }
    result
}

/// The tombstone of what a rule has expired since it was looked at, if there may be something;
/// those that it stands for are added to `old`.
fn next_tombstone(
    core: &Core,
    rule: &Rule,
    time: RetentionTime,
    epoch: u32,
    old: &mut Vec<u32>,
) -> Option<Tombstone> {
    let (mut start_ms, floor_ms) = (rule.expired_before_ms(), rule.floor_ms(time));
    if floor_ms <= start_ms {
        return None;
    }
    let end_ms = floor_ms - 1;
    let partitions =
        partition_of_window(window_of(start_ms))..=partition_of_window(window_of(end_ms));
    let is_any_sealed = core.read_partitions(|all| all.range(partitions).next().is_some());
    if !is_any_sealed && core.head.is_beside(start_ms, end_ms) {
        return None;
    }
    for tombstone in core.tombstones.all().values() {
        if !tombstone.is_cleaned && tombstone.end_ms <= end_ms && is_of(tombstone, rule) {
            start_ms = start_ms.min(tombstone.start_ms);
            old.push(tombstone.epoch);
        }
    }
    let selectors = vec![rule.rule.matchers.clone()];
    Some(Tombstone { epoch, start_ms, end_ms, selectors, is_cleaned: false })
}

/// Returns whether a rule could have made a tombstone.
fn is_of(tombstone: &Tombstone, rule: &Rule) -> bool {
    matches!(&tombstone.selectors[..], [matchers] if are_same(matchers, &rule.rule.matchers))
}

/// Whether rules have expired the end of a day that is still in files. Within a day it waits: each
/// time, the files of the whole day are written anew.
pub(crate) fn is_cleaning_due(core: &Core, keeping: &Keeping) -> bool {
    let day = |time_ms: i64| partition_of_window(window_of(time_ms));
    core.tombstones.all().values().any(|tombstone| {
        !tombstone.is_cleaned
            && day(tombstone.start_ms) < day(tombstone.end_ms.saturating_add(1))
            && keeping
                .rules
                .iter()
                .any(|rule| tombstone.end_ms < rule.expired_before_ms() && is_of(tombstone, rule))
    })
}
