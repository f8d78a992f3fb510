//! Files of a web configuration, and detection of changes.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};

/// Maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Minimum age at which a change has another time than a later one: file times are coarse.
const SETTLED_AGE: Duration = Duration::from_secs(2);

/// State of files at the time they were read.
pub(super) struct Files {
    folder: PathBuf,
    read: Vec<(PathBuf, Option<FileStamp>)>,
    content: Context,
    /// True if a file was changed so shortly before it was read that a later change has the same time.
    is_unsettled: bool,
}

/// Identity and times of a file, which differ after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of a file; `None` if it is absent or inaccessible.
    fn of(path: &Path) -> Option<FileStamp> {
        std::fs::metadata(path).ok().map(|metadata| FileStamp::from(&metadata))
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = now.saturating_sub(SETTLED_AGE).as_secs();
        let newest = self.modified.0.max(self.changed.0);
        newest < i64::try_from(settled).unwrap_or(i64::MAX)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> FileStamp {
        FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Files {
    /// Returns an empty set.
    pub(super) fn new() -> Files {
        let content = Context::new(&SHA256);
        Files { folder: PathBuf::new(), read: Vec::new(), content, is_unsettled: false }
    }

    /// Sets the base of relative paths to the folder of a file.
    pub(super) fn set_folder(&mut self, file: &Path) {
        self.folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
    }

    /// Reads a file.
    ///
    /// Errors: the file cannot be read, or is too large.
    pub(super) fn read(&mut self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let path = self.folder.join(path);
        // The stamp comes first, so that a change during the read is detected later.
        let stamp = FileStamp::of(&path);
        self.is_unsettled |= stamp.is_none_or(|stamp| !stamp.is_settled(SystemTime::now()));
        let read = read(&path);
        self.content.update(path.as_os_str().as_encoded_bytes());
        match &read {
            Ok(bytes) => {
                self.content.update(&(bytes.len() as u64).to_le_bytes());
                self.content.update(bytes);
            }
            Err(error) => self.content.update(error.to_string().as_bytes()),
        }
        self.read.push((path, stamp));
        read
    }

    /// Returns whether a file may have changed since it was read.
    pub(super) fn may_have_changed(&self) -> bool {
        self.is_unsettled || self.read.iter().any(|(path, stamp)| FileStamp::of(path) != *stamp)
    }

    /// Returns whether both sets have the same files with the same content.
    pub(super) fn are_same(&self, other: &Files) -> bool {
        let [ours, theirs] = [self, other].map(|files| files.content.clone().finish());
        ours.as_ref() == theirs.as_ref()
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the file has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}
