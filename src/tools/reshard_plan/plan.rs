//! Plan: the move of each target, and sums.

use std::collections::BTreeMap;

use super::ReshardPlanArgs;
use super::layout::{Change, hash};
use super::targets::Targets;

/// Number of series and samples of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) series: u64,
    pub(super) samples: u64,
}

/// Sum over targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) targets: u64,
    pub(super) amount: Amount,
}

/// Target with its shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedTarget {
    /// Values of the labels, in the order of the flags.
    pub(super) values: Vec<String>,
    pub(super) amount: Amount,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Move of all targets.
pub(super) struct Plan {
    /// All targets, those with the most series first.
    pub(super) targets: Vec<PlannedTarget>,
    pub(super) total: Total,
    pub(super) moved: Total,
    /// Sums by old and new shard, including targets that stay.
    pub(super) flows: BTreeMap<(usize, usize), Total>,
    /// Sums of each new shard.
    pub(super) shards: Vec<Total>,
    /// Number of series that lack one of the labels, such as results of rules.
    pub(super) series_without_labels: u64,
    /// Number of targets on another shard than the old layout says, if the sources are its shards.
    pub(super) misplaced: Option<u64>,
}

impl Total {
    fn add(&mut self, amount: Amount) {
        self.targets += 1;
        self.amount.series += amount.series;
        self.amount.samples += amount.samples;
    }
}

impl Plan {
    /// Returns the plan of a change.
    pub(super) fn new(args: &ReshardPlanArgs, change: &Change, targets: Targets) -> Plan {
        let mut plan = Plan {
            targets: Vec::with_capacity(targets.len()),
            total: Total::default(),
            moved: Total::default(),
            flows: BTreeMap::new(),
            shards: vec![Total::default(); args.to],
            series_without_labels: 0,
            misplaced: (args.servers.len() + args.storage_urls.len() == args.from).then_some(0),
        };
        for (values, sources) in targets {
            let amount = sources.values().fold(Amount::default(), |sum, found| Amount {
                series: sum.series + found.series,
                samples: sum.samples + found.samples,
            });
            if values.iter().any(String::is_empty) {
                plan.series_without_labels += amount.series;
                continue;
            }
            let hash = hash(args, &values);
            let (from, to) = (change.before.shard(hash), change.after.shard(hash));
            let is_misplaced = sources.keys().any(|source| *source != from);
            plan.misplaced = plan.misplaced.map(|count| count + u64::from(is_misplaced));
            plan.total.add(amount);
            plan.flows.entry((from, to)).or_default().add(amount);
            plan.shards[to].add(amount);
            if from != to {
                plan.moved.add(amount);
            }
            plan.targets.push(PlannedTarget { values, amount, from, to });
        }
        plan.targets.sort_by(|a, b| {
            let size = |target: &PlannedTarget| (target.amount.series, target.amount.samples);
            size(b).cmp(&size(a)).then_with(|| a.values.cmp(&b.values))
        });
        plan
    }

    /// Returns the share of the series that move.
    pub(super) fn moved_share(&self) -> f64 {
        share(self.moved.amount.series, self.total.amount.series)
    }

    /// Returns the series of a new shard, relative to the mean of all.
    pub(super) fn of_mean(&self, shard: usize) -> f64 {
        let series = self.shards[shard].amount.series;
        share(series, self.total.amount.series) * self.shards.len() as f64
    }

    /// Returns the series of the largest new shard, relative to the mean of all.
    pub(super) fn imbalance(&self) -> f64 {
        (0..self.shards.len()).map(|shard| self.of_mean(shard)).fold(0.0, f64::max)
    }
}

/// Returns a share; 0 of nothing.
pub(super) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}
