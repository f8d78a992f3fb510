//! A block: series in the order of their labels, and the chunks of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{Labels, TimeRange};
use serde::Deserialize;

use super::file::WindowedFile;
use super::index::{ChunkMeta, Index};
use super::tombstones::Tombstones;
use crate::chunk::{ChunkDecoder, ChunkSample};
use crate::error::FormatError;

/// The largest chunk that is read, in bytes; Prometheus writes about 1 KiB of floats.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// The largest description of a block, in bytes.
const META_BYTES_MAX: u64 = 4 << 20;

const CHUNKS_MAGIC: u32 = 0x85bd_40dd;

/// What a block says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockMeta {
    /// Its name, which no other block has.
    pub ulid: String,
    /// Its first time, ms since the epoch.
    pub min_time: i64,
    /// What follows its last time.
    pub max_time: i64,
    /// How much is in it.
    #[serde(default)]
    pub stats: BlockStats,
    /// 1.
    pub version: u32,
    /// Section written by Thanos.
    #[serde(default)]
    pub thanos: ThanosMeta,
}

/// The section that Thanos adds to the description of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ThanosMeta {
    /// External labels, which every series of the block has in queries, in place of its own
    /// labels of these names.
    pub labels: BTreeMap<String, String>,
}

/// How much is in a block; 0 where nobody has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockStats {
    /// Samples.
    pub num_samples: u64,
    /// Series.
    pub num_series: u64,
}

/// A series of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Its chunks.
    pub chunks: Vec<ChunkMeta>,
    /// Deleted times.
    deleted: Vec<TimeRange>,
}

/// An open block.
#[derive(Debug)]
pub struct Block {
    meta: BlockMeta,
    index: Index,
    tombstones: Tombstones,
    /// The files of chunks, in order.
    segments: Vec<PathBuf>,
    /// The one that was read last.
    segment: Option<(usize, WindowedFile)>,
}

impl Block {
    /// What a folder's block says of itself; none where the folder is no block.
    pub fn read_meta(folder: &Path) -> Result<Option<BlockMeta>, FormatError> {
        let path = folder.join("meta.json");
        if !path.is_file() {
            return Ok(None);
        }
        let mut file = WindowedFile::open(&path)?;
        if file.len() > META_BYTES_MAX {
            return Err(file.damaged(0, format!("more than {META_BYTES_MAX} bytes")));
        }
        let len = file.len() as usize;
        let meta: BlockMeta = serde_json::from_slice(file.bytes(0, len)?)
            .map_err(|error| FormatError::damaged(&path, 0, error.to_string()))?;
        match meta.version {
            1 => Ok(Some(meta)),
            version => {
                let detail = format!("a block of version {version}, of which 1 is supported");
                Err(FormatError::damaged(&path, 0, detail))
            }
        }
    }

    /// Opens the block of a folder.
    ///
    /// Errors: no block, one of another version, or damage.
    pub fn open(folder: &Path) -> Result<Block, FormatError> {
        let meta = Block::read_meta(folder)?;
        let meta = meta.ok_or_else(|| FormatError::damaged(folder, 0, "no meta.json in it"))?;
        let tombstones = Tombstones::read(&folder.join("tombstones"))?;
        let index = Index::open(&folder.join("index"))?;
        let segments = segments(&folder.join("chunks"))?;
        Ok(Block { meta, index, tombstones, segments, segment: None })
    }

    /// What it says of itself.
    pub fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// How many series it has.
    pub fn series_count(&self) -> u32 {
        self.index.series_count()
    }

    /// A series by its number, from 0 on and below the count.
    pub fn series(&mut self, number: u32) -> Result<Series, FormatError> {
        let series = self.index.series(number)?;
        let deleted = self.tombstones.of(series.reference).to_vec();
        Ok(Series { labels: series.labels, chunks: series.chunks, deleted })
    }

    /// Hands over the samples of a chunk of a series, but for what is deleted, until it is told to
    /// stop by an error.
    pub fn samples<E: From<FormatError>>(
        &mut self,
        series: &Series,
        chunk: &ChunkMeta,
        mut take: impl FnMut(ChunkSample) -> Result<(), E>,
    ) -> Result<(), E> {
        let times = TimeRange::new(chunk.min_ms, chunk.max_ms);
        if series.deleted.iter().any(|deleted| deleted.covers(times)) {
            return Ok(());
        }
        let file = self.segment(chunk.reference)?;
        let offset = chunk.reference & u64::from(u32::MAX);
        let (len, start) = file.varint(offset)?;
        if len > CHUNK_BYTES_MAX {
            return Err(file.damaged(offset, format!("a chunk of {len} bytes")).into());
        }
        file.check(start, len + 1)?;
        let path = file.path().to_owned();
        let (encoding, bytes) = file
            .bytes(start, len as usize + 1)?
            .split_first()
            .expect("one more byte was asked for than the chunk has");
        let in_series = |detail: &dyn std::fmt::Display| {
            let detail = format!("{detail}, in the series {}", series.labels);
            E::from(FormatError::damaged(&path, offset, detail))
        };
        let mut reader = ChunkDecoder::new(*encoding, bytes).map_err(|error| in_series(&error))?;
        while let Some(sample) = reader.next_sample().map_err(|error| in_series(&error))? {
            let at_ms = sample.timestamp_ms();
            if at_ms < chunk.min_ms || at_ms > chunk.max_ms {
                let bounds = format!("{} to {}", chunk.min_ms, chunk.max_ms);
                return Err(in_series(&format!("a sample at {at_ms} in a chunk of {bounds}")));
            }
            if !series.deleted.iter().any(|deleted| deleted.contains(at_ms)) {
                take(sample)?;
            }
        }
        Ok(())
    }

    /// The file of a chunk.
    fn segment(&mut self, reference: u64) -> Result<&mut WindowedFile, FormatError> {
        let number = (reference >> 32) as usize;
        if self.segment.as_ref().is_none_or(|(open, _)| *open != number) {
            let path = self.segments.get(number).ok_or_else(|| {
                let detail = format!("a chunk in file {number} of {}", self.segments.len());
                FormatError::damaged(Path::new(&self.meta.ulid), 0, detail)
            })?;
            self.segment = Some((number, open_segment(path)?));
        }
        Ok(&mut self.segment.as_mut().expect("it has just been opened").1)
    }
}

fn open_segment(path: &Path) -> Result<WindowedFile, FormatError> {
    let mut file = WindowedFile::open(path)?;
    match (file.u32(0)?, file.bytes(4, 1)?[0]) {
        (CHUNKS_MAGIC, 1) => Ok(file),
        (magic, version) => {
            let detail = format!("{magic:08x} and version {version} are not of chunks");
            Err(file.damaged(0, detail))
        }
    }
}

/// The files of a folder of chunks: their names are numbers.
fn segments(folder: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let io = |source| FormatError::io(folder, source);
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(number) = name.and_then(|name| name.parse::<u64>().ok()) {
            segments.push((number, path));
        }
    }
    segments.sort_unstable();
    Ok(segments.into_iter().map(|(_, path)| path).collect())
}
