//! Free bytes of a file system.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Returns the bytes that an unprivileged process can write to the file system of a path.
///
/// Errors: those of the system, or a path with a NUL byte.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut figures = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string that lives until the call has returned, and the call writes at
    // most one statvfs.
    let status = unsafe { libc::statvfs(path.as_ptr(), figures.as_mut_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, and has filled all of it.
    let figures = unsafe { figures.assume_init() };
    // The widths of the fields differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Ok((figures.f_bavail as u64).saturating_mul(figures.f_frsize as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_free_bytes_and_a_missing_one_does_not() {
        assert!(free_bytes(&std::env::temp_dir()).is_ok());
        let missing = free_bytes(Path::new("/there/is/none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(free_bytes(Path::new("a\0b")).is_err());
    }
}
