//! A block: series sorted by labels, and their chunks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{Labels, TimeRange};
use serde::Deserialize;

use super::file::WindowedFile;
use super::index::{ChunkMeta, Index};
use super::tombstones::Tombstones;
use crate::chunk::{ChunkDecoder, ChunkSample};
use crate::error::FormatError;

/// Maximum size of a chunk, in bytes; in Prometheus, one of floats has about 1 KiB.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of `meta.json`, in bytes.
const META_BYTES_MAX: u64 = 4 << 20;

const CHUNKS_MAGIC: u32 = 0x85bd_40dd;

/// Description of a block, from `meta.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockMeta {
    /// Unique name.
    pub ulid: String,
    /// First timestamp, ms since the epoch.
    pub min_time: i64,
    /// Last timestamp, exclusive.
    pub max_time: i64,
    /// Statistics.
    #[serde(default)]
    pub stats: BlockStats,
    /// Version of the format, which is 1.
    pub version: u32,
    /// Section written by Thanos.
    #[serde(default)]
    pub thanos: ThanosMeta,
}

/// The section that Thanos adds to the description of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ThanosMeta {
    /// External labels, which replace those of the series in queries.
    pub labels: BTreeMap<String, String>,
}

/// Statistics of a block; 0 if absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockStats {
    /// Number of samples.
    pub num_samples: u64,
    /// Number of series.
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
    /// Files of chunks, in order.
    segments: Vec<PathBuf>,
    /// File that was read last.
    segment: Option<(usize, WindowedFile)>,
}

impl Block {
    /// Reads the description of a block; `None` if the folder is not a block.
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
    /// Errors: not a block, another version, or damage.
    pub fn open(folder: &Path) -> Result<Block, FormatError> {
        let meta = Block::read_meta(folder)?;
        let meta = meta.ok_or_else(|| FormatError::damaged(folder, 0, "no meta.json in it"))?;
        let tombstones = Tombstones::read(&folder.join("tombstones"))?;
        let index = Index::open(&folder.join("index"))?;
        let segments = segments(&folder.join("chunks"))?;
        Ok(Block { meta, index, tombstones, segments, segment: None })
    }

    /// Returns the description.
    pub fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    /// Number of series.
    pub fn series_count(&self) -> u32 {
        self.index.series_count()
    }

    /// Returns a series by its number, which is below `series_count`.
    pub fn series(&mut self, number: u32) -> Result<Series, FormatError> {
        let series = self.index.series(number)?;
        let deleted = self.tombstones.of(series.reference).to_vec();
        Ok(Series { labels: series.labels, chunks: series.chunks, deleted })
    }

    /// Passes the samples of a chunk, except deleted ones, to `take`, until it returns an error.
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
            .expect("the encoding precedes the chunk");
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

    /// Returns the file of a chunk.
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

/// Lists the files of a folder of chunks, whose names are numbers.
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
