//! Inputs of an import: texts, blocks, folders of blocks.

use std::path::{Path, PathBuf};

use formats::FormatError;
use formats::tsdb::{Block, BlockMeta};
use model::hash::xxh64;

use super::labels::AddedLabels;
use crate::tools::ToolError;

/// Input of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// File of OpenMetrics text or JSON lines.
    Text(PathBuf),
    /// Folder of a block of Prometheus.
    Block(PathBuf, BlockMeta),
}

impl Input {
    /// Returns the name of the progress note for the input with these labels.
    pub(super) fn note_name(&self, labels: &AddedLabels) -> String {
        let name = match self {
            Input::Text(path) => {
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                format!("import/text/{:016x}", xxh64(path.as_os_str().as_encoded_bytes()))
            }
            Input::Block(_, meta) => format!("import/block/{}", meta.ulid),
        };
        match labels.digest() {
            Some(digest) => format!("{name}/{digest}"),
            None => name,
        }
    }
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::Text(path) | Input::Block(path, _) => path.display().fmt(f),
        }
    }
}

/// Returns the inputs of paths: files in the given order, blocks of a folder sorted by time.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<Input>, ToolError> {
    let mut inputs = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(path)
            .map_err(|source| FormatError::Io { path: path.display().to_string(), source })?;
        if !metadata.is_dir() {
            inputs.push(Input::Text(path.clone()));
            continue;
        }
        let found = blocks(path)?;
        if found.is_empty() {
            let hint = match path.join("wal").is_dir() {
                true => "; a snapshot of Prometheus turns its log (wal) into blocks",
                false => "",
            };
            let path = path.display();
            return Err(ToolError::Usage(format!(
                "{path} holds no blocks: neither it nor a folder in it has a meta.json{hint}"
            )));
        }
        inputs.extend(found);
    }
    Ok(inputs)
}

fn blocks(folder: &Path) -> Result<Vec<Input>, ToolError> {
    if let Some(meta) = Block::read_meta(folder)? {
        return Ok(vec![Input::Block(folder.to_owned(), meta)]);
    }
    let io = |source| FormatError::Io { path: folder.display().to_string(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        // Other folders are being written or deleted.
        if is_ulid(&path)
            && let Some(meta) = Block::read_meta(&path)?
        {
            found.push((meta.min_time, meta.ulid.clone(), Input::Block(path, meta)));
        }
    }
    let has_log = |name: &str| folder.join(name).is_dir();
    if !found.is_empty() && (has_log("wal") || has_log("chunks_head")) {
        eprintln!(
            "note: of {} only blocks are imported, not what Prometheus has in its write-ahead log: \
             a snapshot (POST /api/v1/admin/tsdb/snapshot) has that in blocks as well",
            folder.display()
        );
    }
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    Ok(found.into_iter().map(|(_, _, input)| input).collect())
}

/// Returns whether a folder has the name of a block: 26 digits of Crockford's base 32.
fn is_ulid(path: &Path) -> bool {
    let name = path.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
    name.len() == 26 && name.iter().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
}
