//! Local files: which are read, and which a media folder allows.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use super::{Folder, budgeted, error_of, fetch, open, text};
use crate::common::fetch::{ByteBudget, FetchPolicy, Files, MAX_FETCH_BYTES, files::open_resolved};

/// A path at which no file exists.
const ABSENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/absent");

fn under(folder: &Path) -> FetchPolicy {
    FetchPolicy {
        files: Files::Under(folder.to_owned()),
        ..FetchPolicy::closed()
    }
}

#[test]
fn files_are_read_by_path_or_url() {
    let folder = Folder::new();
    let plain = folder.file("a.png", b"pixels");
    let odd = folder.file("a%20b#c?d.png", b"odd");
    for source in [text(&plain).to_owned(), format!("file://{}", text(&plain))] {
        assert_eq!(Ok(b"pixels".to_vec()), fetch(&open(), &source), "{source}");
    }
    // Nothing in a path is decoded or split off.
    assert_eq!(
        Ok(b"odd".to_vec()),
        fetch(&open(), &format!("file://{}", text(&odd)))
    );
    assert_eq!(
        Ok(Vec::new()),
        fetch(&open(), text(&folder.file("empty", b"")))
    );
}

/// No case blocks, for instance to wait for a writer of the pipe.
#[cfg(unix)]
#[test]
fn anything_but_regular_files_is_refused() {
    let folder = Folder::new();
    let pipe = folder.0.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let socket = folder.0.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let absent = folder.0.join("absent");
    let long = format!("/{}", "9j/4AAQ".repeat(100_000));
    #[rustfmt::skip]
    let cases = [
        ("absent",             text(&absent), "No such file or directory (os error 2)"),
        ("host in the URL",    "file://localhost/etc/passwd",  "No such file or directory (os error 2)"),
        ("percent-encoded",    "file:///etc/%70asswd",         "No such file or directory (os error 2)"),
        ("a folder",           text(&folder.0),                ": not a regular file"),
        ("a pipe",             text(&pipe),                    ": not a regular file"),
        ("a socket",           text(&socket),                  ": not a regular file"),
        ("a device",           "/dev/zero",                    "media fetch: /dev/zero: exceeds 67108864 bytes"),
        ("a device, as a URL", "file:///dev/zero",             "media fetch: /dev/zero: exceeds 67108864 bytes"),
        ("a zero byte",        "/etc/pass\0wd",                ""),
        ("much too long",      &long,                          ""),
    ];
    for (name, source, words) in cases {
        let start = Instant::now();
        let error = error_of(&open(), source);
        assert!(error.ends_with(words), "{name}: {error}");
        assert!(start.elapsed().as_secs() < 10, "{name}");
    }
    assert_eq!(Ok(Vec::new()), fetch(&open(), "/dev/null"));
}

#[test]
fn the_file_cap_is_exact() {
    let folder = Folder::new();
    #[rustfmt::skip]
    let cases = [
        ("exactly the cap", MAX_FETCH_BYTES,     true),
        ("one byte over",   MAX_FETCH_BYTES + 1, false),
        ("three GiB",       3 << 30,             false),
    ];
    for (name, len, fits) in cases {
        let path = folder.sparse("zeros", len);
        let got = fetch(&open(), text(&path)).map(|bytes| bytes.len() as u64);
        let expected = if fits {
            Ok(len)
        } else {
            Err(format!(
                "media fetch: {}: exceeds 67108864 bytes",
                text(&path)
            ))
        };
        assert_eq!(expected, got, "{name}");
    }
}

#[test]
fn whole_files_are_limited_by_the_budget() {
    let folder = Folder::new();
    let short = folder.file("short", b"pixels");
    let long = folder.sparse("long", MAX_FETCH_BYTES + 1);
    let huge = folder.sparse("huge", 3 << 30);
    let over = "exceeds the request media byte budget";
    #[rustfmt::skip]
    let cases = [
        ("short",              text(&short), 6, Ok(6)),
        ("budget too small",   text(&short), 5, Err(over)),
        ("over the stream cap", text(&long), 65 << 20, Ok(MAX_FETCH_BYTES + 1)),
        ("three GiB",          text(&huge), 1_342_177_280, Err(over)),
        ("absent",             ABSENT, 9, Err("No such file or directory (os error 2)")),
        ("a folder",           text(&folder.0), 9, Err("not a regular file")),
        #[cfg(unix)]
        ("a device",           "/dev/null", 9, Err("media fetch: read /dev/null: not a regular file")),
        // Its declared length is 0.
        #[cfg(target_os = "linux")]
        ("longer than declared", "/proc/self/status", 1 << 20,
            Err("media fetch: read /proc/self/status: changed size while reading")),
    ];
    for (name, source, bytes, expected) in cases {
        let got = budgeted(
            |budget: &ByteBudget| open().fetch_local_file(source, budget),
            bytes,
        );
        match (expected, got) {
            (Ok(len), got) => assert_eq!(Ok(len), got.map(|bytes| bytes.len() as u64), "{name}"),
            (Err(words), got) => {
                let error = got.expect_err(name);
                assert!(error.ends_with(words), "{name}: {error}");
            }
        }
    }
}

#[test]
fn whole_files_are_read_by_url() {
    let folder = Folder::new();
    let url = format!("file://{}", text(&folder.file("short", b"pixels")));
    assert_eq!(
        Ok(b"pixels".to_vec()),
        budgeted(
            |budget: &ByteBudget| under(&folder.0).fetch_local_file(&url, budget),
            6
        )
    );
}

#[cfg(unix)]
const REFUSED: &str = "media fetch: no such file in the media folder";

/// A media folder with links of all kinds, and a folder outside of it.
#[cfg(unix)]
struct MediaFolder {
    folder: Folder,
    outside: Folder,
    secret: PathBuf,
}

#[cfg(unix)]
impl MediaFolder {
    fn new() -> Self {
        use std::os::unix::fs::symlink;

        let (folder, outside) = (Folder::new(), Folder::new());
        folder.file("a.png", b"pixels");
        folder.file("deep/er/b.png", b"deep");
        let secret = outside.file("secret", b"secret");
        let link = |name: &str, target: &Path| symlink(target, folder.0.join(name)).unwrap();
        link("inner", Path::new("deep/er/b.png"));
        link("inner_absolute", &folder.0.join("a.png"));
        link("outer", &secret);
        link("outer_folder", &outside.0);
        link("dangling", Path::new("nowhere"));
        link("loop", Path::new("loop"));
        assert!(
            Command::new("mkfifo")
                .arg(folder.0.join("pipe"))
                .status()
                .unwrap()
                .success()
        );
        Self {
            folder,
            outside,
            secret,
        }
    }
}

/// All refusals have the same text.
#[cfg(unix)]
#[test]
fn a_media_folder_allows_only_its_own_files() {
    let media = MediaFolder::new();
    let outside = media.outside.0.file_name().unwrap().to_str().unwrap();
    let up = format!("../{outside}/secret");
    let encoded = up.replace("..", "%2e%2e");
    let long = "x".repeat(10_000);
    #[rustfmt::skip]
    let cases = [
        ("a file",                  "a.png",               Some("pixels")),
        ("a file in a subfolder",   "deep/er/b.png",       Some("deep")),
        ("dots inside",             "deep/../a.png",       Some("pixels")),
        ("a link inside",           "inner",               Some("deep")),
        ("an absolute link inside", "inner_absolute",      Some("pixels")),
        ("absent",                  "absent",              None),
        ("dots to the outside",     &up,                   None),
        ("percent-encoded dots",    &encoded,              None),
        ("a link out",              "outer",               None),
        ("through a link out",      "outer_folder/secret", None),
        ("a link to nothing",       "dangling",            None),
        ("a link to itself",        "loop",                None),
        ("a folder",                "deep",                None),
        ("the folder itself",       "",                    None),
        ("a file as a folder",      "a.png/x",             None),
        ("a pipe",                  "pipe",                None),
        ("a zero byte",             "a.png\0",             None),
        ("too long a name",         &long,                 None),
    ];
    let policy = under(&media.folder.0);
    for (name, relative, expected) in cases {
        let path = format!("{}/{relative}", text(&media.folder.0));
        for source in [path.clone(), format!("file://{path}")] {
            let got = fetch(&policy, &source);
            match expected {
                Some(content) => assert_eq!(Ok(content.as_bytes().to_vec()), got, "{name}"),
                None => assert_eq!(Err(REFUSED.to_owned()), got, "{name}"),
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_media_folder_refuses_paths_outside() {
    let media = MediaFolder::new();
    // Its path starts with the path of the folder.
    let sibling = media.folder.0.with_extension("sibling");
    fs::write(&sibling, b"secret").unwrap();
    let policy = under(&media.folder.0);
    for source in [
        text(&media.secret),
        text(&sibling),
        "/etc/passwd",
        ABSENT,
        "file://a.png",
        "file://localhost/etc/passwd#a.png",
        "/proc/self/environ",
        "/dev/zero",
    ] {
        assert_eq!(REFUSED, error_of(&policy, source), "{source}");
    }
    fs::remove_file(sibling).unwrap();
}

#[cfg(unix)]
#[test]
fn a_media_folder_may_be_a_link_or_missing() {
    let media = MediaFolder::new();
    let alias = media.outside.0.join("alias");
    std::os::unix::fs::symlink(&media.folder.0, &alias).unwrap();
    assert_eq!(
        Ok(b"pixels".to_vec()),
        fetch(&under(&alias), text(&alias.join("a.png")))
    );
    assert_eq!(
        REFUSED,
        error_of(
            &under(&media.outside.0.join("nowhere")),
            text(&media.secret)
        )
    );
}

/// A symbolic link that replaces a component after the path was resolved is not followed out of the folder.
#[cfg(target_os = "linux")]
#[test]
fn a_link_inserted_after_resolving_is_refused() {
    use std::os::unix::fs::symlink;

    let (folder, outside) = (Folder::new(), Folder::new());
    let good = folder.file("a.png", b"pixels");
    let secret = outside.file("a.png", b"secret");
    symlink(&outside.0, folder.0.join("swapped")).unwrap();
    symlink(&secret, folder.0.join("swapped.png")).unwrap();
    assert!(open_resolved(&folder.0, &good).is_ok());
    for late in ["swapped/a.png", "swapped.png"] {
        assert!(
            open_resolved(&folder.0, &folder.0.join(late)).is_err(),
            "{late}"
        );
    }
}
