//! Local files, by absolute path or `file://` URL. What follows `file://` is the path as it
//! stands: nothing in it is decoded, and no host is split off.
//!
//! A file is opened so that nothing waits, looked at once it is open, and never trusted
//! about its length. Without a media folder a character device is read like a file, up to
//! the cap; everything else that is no regular file is refused.
//!
//! Invariant: from a media folder only regular files come that lie in it once all links are
//! followed, and its one error tells nothing about what lies elsewhere.

use std::{
    fs::{self, File, FileType, Metadata, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{ByteBudget, FetchError, Files, MAX_FETCH_BYTES, budget::Claim, capped};
use crate::common::excerpt::excerpt;

/// The bytes of a file, at most [`MAX_FETCH_BYTES`].
pub(super) fn read(
    files: &Files,
    source: &str,
    budget: &ByteBudget,
) -> Result<Vec<u8>, FetchError> {
    let opened = open(files, source)?;
    if opened.len > MAX_FETCH_BYTES {
        return Err(FetchError::TooLarge {
            what: opened.what,
            cap: MAX_FETCH_BYTES,
        });
    }
    capped::read(&mut &opened.file, MAX_FETCH_BYTES, budget)
        .map_err(|why| why.reading(opened.what, MAX_FETCH_BYTES))
}

/// The bytes of a regular file of any length that the budget bears.
pub(super) fn read_whole(
    files: &Files,
    source: &str,
    budget: &ByteBudget,
) -> Result<Vec<u8>, FetchError> {
    let Opened {
        file,
        what,
        len,
        regular,
    } = open(files, source)?;
    if !regular {
        return Err(FetchError::NotAFile { what });
    }
    let mut claim = Claim::new(budget);
    if !claim.grow(len) {
        return Err(FetchError::OverBudget { what });
    }
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len as usize).is_err() {
        return Err(FetchError::OutOfMemory { what });
    }
    match file.take(len + 1).read_to_end(&mut bytes) {
        Err(source) => Err(FetchError::Read { what, source }),
        Ok(got) if got as u64 != len => Err(FetchError::Changed { what }),
        Ok(_) => {
            claim.keep(len);
            Ok(bytes)
        }
    }
}

pub(super) struct Opened {
    file: File,
    /// What to call it.
    what: String,
    len: u64,
    regular: bool,
}

fn open(files: &Files, source: &str) -> Result<Opened, FetchError> {
    let path = Path::new(source.strip_prefix("file://").unwrap_or(source));
    let opened = match files {
        Files::Nowhere => return Err(FetchError::FilesRefused),
        Files::Anywhere => open_if(path, false, |kind| kind.is_file() || is_char_device(kind)),
        // Not the error itself: it would tell what is there.
        Files::Under(folder) => {
            return open_under(folder, path).map_err(|_| FetchError::NotInMediaFolder);
        }
    };
    opened.map_err(|error| refusal(path, error))
}

fn refusal(path: &Path, source: io::Error) -> FetchError {
    let what = shown(path);
    match source.kind() {
        io::ErrorKind::Unsupported => FetchError::NotAFile { what },
        _ => FetchError::Read { what, source },
    }
}

/// Opens a file that lies in `folder`, links followed.
fn open_under(folder: &Path, path: &Path) -> io::Result<Opened> {
    let folder = fs::canonicalize(folder)?;
    let real = fs::canonicalize(path)?;
    if !path.is_absolute() || !real.starts_with(&folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    open_resolved(&folder, &real)
}

/// Opens a path that has no links in it, unless somebody puts one there meanwhile: then the
/// file lies elsewhere, and is refused.
pub(super) fn open_resolved(folder: &Path, real: &Path) -> io::Result<Opened> {
    let opened = open_if(real, true, |kind| kind.is_file())?;
    if !place(&opened.file, real)?.starts_with(folder) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(opened)
}

/// Opens what is of a kind that `accepts`. It is asked twice: before, because to open a
/// device or a pipe is an act already, and after, because only then it holds still.
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
        what: shown(path),
        len: metadata.len(),
        regular: metadata.is_file(),
    })
}

/// Read only; neither opening nor reading waits. `resolved`: the last name is no link.
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

/// Where an open file lies. Linux says it of the file itself; elsewhere only the path can be asked again.
#[cfg(target_os = "linux")]
fn place(file: &File, _: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;

    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn place(_: &File, path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// A path as errors show it.
fn shown(path: &Path) -> String {
    excerpt(path.display())
}
