//! Expiry by rules of the retention: expired samples are deleted by tombstones.
//!
//! ```text
//! every two hours, per rule:
//!   one write   the log epoch ends; a tombstone covers the times from the old to the new floor of
//!               the rule, and replaces an uncleaned one of the rule; the floors of all rules are
//!               stored
//!   then        the head drops the samples, selections mask them
//! every day     runs with expired samples are rewritten
//! ```
//!
//! Writes to expired times are refused. So a newer tombstone of a rule may cover longer times and a
//! later epoch than its predecessor without covering valid samples. If the clock is set back, so is
//! the floor of the rule: samples written from then on have a later epoch than the tombstone,
//! which does not cover them.

use std::sync::{Arc, PoisonError};

use crate::core::Core;
use crate::delete::{self, Tombstone};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::retention::{Keeping, RetentionTime, Rule, are_same};
use crate::window::PartitionId;

/// Expires samples by the rules. On return, they are durably hidden.
///
/// Errors: the samples may or may not be hidden, and the log takes no more writes.
pub(crate) async fn expire(core: &Arc<Core>) -> Result<(), StoreError> {
    // Before the rules are read: of two calls, the later one sees the newer rules.
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
        log.epoch = log.epoch.next();
        let key = keys::tombstone(tombstone.epoch);
        let bytes = delete::encode(&key, &tombstone);
        set.put(key, bytes);
        new.push(tombstone);
    }
    old.iter().for_each(|epoch| set.delete(&keys::tombstone(*epoch)));
    core.lsm.commit(set).await.inspect_err(|error| log.failure().set(error))?;
    let ends: Vec<i64> = new.iter().map(|tombstone| tombstone.end_ms).collect();
    // Series without open samples have nothing to drop. Their newest sample is not needed, since
    // expired times are refused earlier.
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

/// Returns the tombstone for the samples that a rule has expired since the last call, if there may
/// be any. Adds the epochs of the tombstones that it replaces to `old`.
fn next_tombstone(
    core: &Core,
    rule: &Rule,
    time: RetentionTime,
    epoch: Epoch,
    old: &mut Vec<Epoch>,
) -> Option<Tombstone> {
    let (mut start_ms, floor_ms) = (rule.expired_before_ms(), rule.floor_ms(time));
    if floor_ms <= start_ms {
        return None;
    }
    let end_ms = floor_ms - 1;
    let partitions = PartitionId::of(start_ms)..=PartitionId::of(end_ms);
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

/// Returns whether a tombstone has the matchers of a rule.
fn is_of(tombstone: &Tombstone, rule: &Rule) -> bool {
    matches!(&tombstone.selectors[..], [matchers] if are_same(matchers, &rule.rule.matchers))
}

/// Returns whether rules have expired the end of an uncleaned day. Within a day, cleanup waits,
/// since it rewrites the whole day.
pub(crate) fn is_cleaning_due(core: &Core, keeping: &Keeping) -> bool {
    core.tombstones.all().values().any(|tombstone| {
        !tombstone.is_cleaned
            && PartitionId::of(tombstone.start_ms)
                < PartitionId::of(tombstone.end_ms.saturating_add(1))
            && keeping
                .rules
                .iter()
                .any(|rule| tombstone.end_ms < rule.expired_before_ms() && is_of(tombstone, rule))
    })
}
