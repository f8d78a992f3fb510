//! Blocks of sealed days, counted by their run directories, without reading blocks.

use model::{Budget, SourceError, TimeRange};

use super::select::Pin;
use crate::block;
use crate::core::Core;
use crate::keys;
use crate::parallel::yielder::Yielder;
use crate::window::PartitionId;

/// Blocks of a sealed day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayBlocks {
    /// Start of the day, ms since the epoch.
    pub start_ms: i64,
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of the blocks.
    pub block_bytes: u64,
    /// Number of further blocks, of which only summaries are left.
    pub blocks_summarized: u64,
}

/// Counts the blocks of the newest sealed days, the newest first.
pub(crate) async fn day_blocks(
    core: &Core,
    pin: &Pin,
    days_max: usize,
    budget: &Budget,
) -> Result<Vec<DayBlocks>, SourceError> {
    budget.check()?;
    let first = PartitionId::of(pin.visible(TimeRange::new(i64::MIN, i64::MAX)).start_ms);
    let (lsm, days) = core.read_partitions(|partitions| {
        let newest = partitions.range(first..).rev().take(days_max);
        // A follower replaces partitions and LSM view under this lock, so both agree.
        (core.lsm.fixed(), newest.map(|(day, _)| *day).collect::<Vec<_>>())
    });
    let (lsm, mut yielder) = (lsm.for_query(budget), Yielder::new(budget));
    let mut counted = Vec::with_capacity(days.len());
    for day in days {
        let start_ms = day.start_ms();
        let mut of_day = DayBlocks { start_ms, blocks: 0, block_bytes: 0, blocks_summarized: 0 };
        let mut scan = lsm.scan_prefix(&keys::directories(day)).await?;
        while let Some((key, bytes)) = scan.next().await? {
            let blocks = block::decode_directory(&key, &bytes)?;
            yielder.work(1 + blocks.len()).await?;
            let summarized = blocks.iter().filter(|entry| entry.is_summarized()).count() as u64;
            of_day.blocks_summarized += summarized;
            of_day.blocks += blocks.len() as u64 - summarized;
            of_day.block_bytes += blocks.iter().map(|entry| u64::from(entry.bytes)).sum::<u64>();
        }
        counted.push(of_day);
    }
    Ok(counted)
}
