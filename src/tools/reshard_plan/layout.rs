//! Layouts: the shard of a target, before and after a change.

use super::hash::{hashmod, rendezvous, xxh64};
use super::slots::SlotLayout;
use super::{Algorithm, ReshardPlanArgs};
use crate::tools::ToolError;

/// Shards of targets.
pub(super) enum Layout {
    /// The hash modulo the number of shards.
    Modulus(u64),
    /// Ranges of slots.
    Slots(SlotLayout),
    /// Hashes of vmagent's URLs; the highest weight counts.
    Rendezvous(Vec<u64>),
}

/// Layouts before and after a change.
pub(super) struct Change {
    pub(super) before: Layout,
    pub(super) after: Layout,
}

impl Layout {
    /// Returns the shard of a hash.
    pub(super) fn shard(&self, hash: u64) -> usize {
        match self {
            Layout::Modulus(shard_count) => (hash % shard_count) as usize,
            Layout::Slots(layout) => layout.shard(hash),
            Layout::Rendezvous(nodes) => rendezvous(hash, nodes),
        }
    }

    /// Returns the ranges of slots, if there are any.
    pub(super) fn slots(&self) -> Option<&SlotLayout> {
        match self {
            Layout::Slots(layout) => Some(layout),
            Layout::Modulus(_) | Layout::Rendezvous(_) => None,
        }
    }
}

impl Change {
    /// Returns the layouts that flags describe.
    ///
    /// Errors: the flags do not fit the algorithm.
    pub(super) fn of(args: &ReshardPlanArgs) -> Result<Change, ToolError> {
        let (from, to) = (args.from, args.to);
        let is_slots = args.algorithm == Algorithm::Slots;
        let is_vmagent = args.algorithm == Algorithm::Vmagent;
        require(is_slots || args.slots.is_empty(), || {
            "--slots is a flag of --algorithm=slots".to_owned()
        })?;
        require(is_vmagent || args.urls.is_empty(), || {
            "--url is a flag of --algorithm=vmagent".to_owned()
        })?;
        match args.algorithm {
            Algorithm::Hashmod => Ok(Change {
                before: Layout::Modulus(from as u64),
                after: Layout::Modulus(to as u64),
            }),
            Algorithm::Slots => {
                let given = args.slots.len();
                require(given == 0 || given == from, || {
                    format!("--slots is given {given} times for --from={from} shards")
                })?;
                let before = match given {
                    0 => SlotLayout::equal(from),
                    _ => SlotLayout::parse(&args.slots)?,
                };
                let after = before.resized(to);
                Ok(Change { before: Layout::Slots(before), after: Layout::Slots(after) })
            }
            Algorithm::Vmagent => {
                let (given, needed) = (args.urls.len(), from.max(to));
                require(given == needed, || {
                    format!("--url is given {given} times for {needed} shards")
                })?;
                let nodes = |count: usize| Layout::Rendezvous(node_hashes(&args.urls[..count]));
                Ok(Change { before: nodes(from), after: nodes(to) })
            }
        }
    }
}

fn require(is_met: bool, message: impl FnOnce() -> String) -> Result<(), ToolError> {
    if is_met { Ok(()) } else { Err(ToolError::Usage(message())) }
}

/// Returns the hashes of vmagent's URLs, which are numbered from 1.
///
/// Source: `initRemoteWriteCtxs` of vmagent.
fn node_hashes(urls: &[String]) -> Vec<u64> {
    let named = urls.iter().enumerate().map(|(index, url)| format!("{}:{url}", index + 1));
    named.map(|name| xxh64(name.as_bytes())).collect()
}

/// Returns the hash of a target by the values of its labels.
pub(super) fn hash(args: &ReshardPlanArgs, values: &[String]) -> u64 {
    match args.algorithm {
        Algorithm::Hashmod | Algorithm::Slots => hashmod(values.join(&args.separator).as_bytes()),
        // Source: `getLabelsHash` of vmagent, over labels in the order of the request.
        Algorithm::Vmagent => {
            let mut labels: Vec<_> = args.labels.iter().zip(values).collect();
            labels.retain(|(_, value)| !value.is_empty());
            labels.sort();
            let text: String = labels.into_iter().flat_map(|(n, v)| [&n[..], &v[..]]).collect();
            xxh64(text.as_bytes())
        }
    }
}
