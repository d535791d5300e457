//! Local files, by absolute path or `file://` URL. The text after `file://` is the path: nothing in
//! it is decoded, and no host is split off.
//!
//! Opening and reading never block. The kind of a file is checked after it is opened, and its
//! declared length is not trusted. Without a media folder a character device is read like a file,
//! up to the cap. Anything else that is not a regular file is refused.
//!
//! Invariant: with a media folder, a file is read only if it is regular and inside the folder after
//! all symbolic links are resolved. All refusals give the same error, which reveals nothing about
//! other files.

use std::{
    fs::{self, File, FileType, Metadata, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{ByteBudget, FetchError, Files, MAX_FETCH_BYTES, budget::Claim, capped};
use crate::common::excerpt::excerpt;

/// Reads a file of at most [`MAX_FETCH_BYTES`].
pub(super) fn read(
    files: &Files,
    source: &str,
    budget: &ByteBudget,
) -> Result<Vec<u8>, FetchError> {
    let opened = open(files, source)?;
    if opened.len > MAX_FETCH_BYTES {
        return Err(FetchError::TooLarge {
            name: opened.name,
            cap: MAX_FETCH_BYTES,
        });
    }
    capped::read(&mut &opened.file, MAX_FETCH_BYTES, budget)
        .map_err(|stopped| stopped.into_fetch_error(opened.name, MAX_FETCH_BYTES))
}

/// Reads a regular file of any length that fits the budget.
pub(super) fn read_whole(
    files: &Files,
    source: &str,
    budget: &ByteBudget,
) -> Result<Vec<u8>, FetchError> {
    let Opened {
        file,
        name,
        len,
        regular,
    } = open(files, source)?;
    if !regular {
        return Err(FetchError::NotAFile { name });
    }
    let mut claim = Claim::new(budget);
    if !claim.grow(len) {
        return Err(FetchError::OverBudget { name });
    }
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len as usize).is_err() {
        return Err(FetchError::OutOfMemory { name });
    }
    match file.take(len + 1).read_to_end(&mut bytes) {
        Err(source) => Err(FetchError::Read { name, source }),
        Ok(got) if got as u64 != len => Err(FetchError::Changed { name }),
        Ok(_) => {
            claim.keep(len);
            Ok(bytes)
        }
    }
}

pub(super) struct Opened {
    file: File,
    /// The path for error messages.
    name: String,
    len: u64,
    regular: bool,
}

fn open(files: &Files, source: &str) -> Result<Opened, FetchError> {
    let path = Path::new(source.strip_prefix("file://").unwrap_or(source));
    let opened = match files {
        Files::Nowhere => return Err(FetchError::FilesRefused),
        Files::Anywhere => open_if(path, false, |kind| kind.is_file() || is_char_device(kind)),
        // The original error is dropped, because it would reveal whether the file exists.
        Files::Under(folder) => {
            return open_under(folder, path).map_err(|_| FetchError::NotInMediaFolder);
        }
    };
    opened.map_err(|error| refusal(path, error))
}

fn refusal(path: &Path, source: io::Error) -> FetchError {
    let name = display_path(path);
    match source.kind() {
        io::ErrorKind::Unsupported => FetchError::NotAFile { name },
        _ => FetchError::Read { name, source },
    }
}

/// Opens a file that is inside `folder` after symbolic links are resolved.
fn open_under(folder: &Path, path: &Path) -> io::Result<Opened> {
    let folder = fs::canonicalize(folder)?;
    let real = fs::canonicalize(path)?;
    if !path.is_absolute() || !real.starts_with(&folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    open_resolved(&folder, &real)
}

/// Opens a resolved path, which has no symbolic links. If a link was inserted since then, the file
/// may be outside of `folder` and is refused.
pub(super) fn open_resolved(folder: &Path, real: &Path) -> io::Result<Opened> {
    let opened = open_if(real, true, |kind| kind.is_file())?;
    if !real_path(&opened.file, real)?.starts_with(folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(opened)
}

/// Opens a file whose type `accepts` allows. The type is checked twice: before opening, because
/// opening a device or a pipe can have side effects, and after, because the path may have changed.
fn open_if(path: &Path, resolved: bool, accepts: impl Fn(FileType) -> bool) -> io::Result<Opened> {
    let check = |metadata: &Metadata| {
        if accepts(metadata.file_type()) {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }
    };
    check(&fs::metadata(path)?)?;
    let file = options(resolved).open(path)?;
    let metadata = file.metadata()?;
    check(&metadata)?;
    Ok(Opened {
        file,
        name: display_path(path),
        len: metadata.len(),
        regular: metadata.is_file(),
    })
}

/// Opens read-only and without blocking. `resolved`: the last component must not be a link.
#[cfg(unix)]
fn options(resolved: bool) -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;

    let follow = if resolved { libc::O_NOFOLLOW } else { 0 };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | follow);
    options
}

#[cfg(not(unix))]
fn options(_: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    options
}

#[cfg(unix)]
fn is_char_device(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_char_device(&kind)
}

#[cfg(not(unix))]
fn is_char_device(_: FileType) -> bool {
    false
}

/// The real path of an open file. Linux reports it for the descriptor. Other systems can only resolve
/// the path again.
#[cfg(target_os = "linux")]
fn real_path(file: &File, _: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;

    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn real_path(_: &File, path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// A path for error messages.
fn display_path(path: &Path) -> String {
    excerpt(path.display())
}
