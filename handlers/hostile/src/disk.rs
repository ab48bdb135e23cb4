//! Attacks through a directory of the host: leaving it, exceeding its size, and exhausting the
//! host's descriptors, memory and threads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};

use gristmill_sdk::Error;
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

/// The C library's error for any failed write.
const EIO: i32 = 29;

/// Paths that lead outside, as arguments of a descriptor's own functions, without a library that
/// splits them first.
const OUTSIDE: [&str; 10] = [
    "..",
    "../",
    "../.",
    "a/../..",
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "/",
    "/proc/self/environ",
    "link",
    "link/passwd",
];

/// The paths outside that were reached in any way: none, if the host keeps its promise.
pub fn escape(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let directories = get_directories();
    let Some((root, _)) = directories.iter().find(|(_, name)| name == path) else {
        return vec![format!("{path} is not there")];
    };
    for target in ["/etc", "/etc/passwd", "..", ".", "../../admin.key", ""] {
        found.extend(root.symlink_at(target, "made").map(|()| format!("linked to {target}")));
    }
    let (follow, none) = (PathFlags::SYMLINK_FOLLOW, PathFlags::empty());
    let (read, write) = (DescriptorFlags::READ, DescriptorFlags::READ | DescriptorFlags::WRITE);
    let create = OpenFlags::CREATE;
    let tails = ["", "\0", "/..", "/x"];
    let paths = OUTSIDE.iter().flat_map(|path| tails.map(|tail| format!("{path}{tail}")));
    // A path is split as text, so this one is the directory itself.
    let paths = paths.filter(|path| path != "link/..");
    for path in paths.chain(["x".repeat(10_000), "x/".repeat(10_000), "a\0b".to_owned()]) {
        let mut seen = |what: &str, is_ok: bool| {
            found.extend(is_ok.then(|| format!("{what} {path:.40}")));
        };
        for flags in [follow, none] {
            seen("opened", root.open_at(flags, &path, OpenFlags::empty(), read).is_ok());
            seen("made", root.open_at(flags, &path, create, write).is_ok());
            // A link that the host's user created may be examined.
            let is_link = path == "link";
            seen("looked at", !is_link && root.stat_at(flags, &path).is_ok());
            seen("hashed", !is_link && root.metadata_hash_at(flags, &path).is_ok());
        }
        seen("read the link", root.readlink_at(&path).is_ok());
        seen("made directory", root.create_directory_at(&path).is_ok());
        seen("linked", root.link_at(none, &path, root, "made").is_ok());
        seen("linked to", root.link_at(none, "inside", root, &path).is_ok());
        seen("moved in", path != "link" && root.rename_at(&path, root, "made").is_ok());
        seen("moved out", path != "link" && root.rename_at("inside", root, &path).is_ok());
        seen("removed directory", root.remove_directory_at(&path).is_ok());
        seen("removed", path != "link" && root.unlink_file_at(&path).is_ok());
    }
    for (other, name) in directories.iter().filter(|(_, name)| name != path) {
        let moved = root.rename_at("inside", other, "inside");
        found.extend(moved.map(|()| format!("moved to {name}")));
        let linked = root.link_at(none, "inside", other, "inside");
        found.extend(linked.map(|()| format!("linked in {name}")));
    }
    found
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::StorageFull || error.raw_os_error() == Some(EIO)
}

/// Creates files of this size until the host refuses, and returns their number.
pub fn fill(path: &str, bytes: usize) -> usize {
    let content = vec![1; bytes];
    let made = (0_usize..).take_while(|number| {
        let name = format!("{path}/{}{number}", "n".repeat(200));
        fs::write(name, &content).is_ok()
    });
    made.count()
}

/// Creates nested directories until the host refuses, and returns their number; none by a long
/// path.
pub fn deep(path: &str) -> Result<usize, Error> {
    let directories = get_directories();
    let root = directories.iter().find(|(_, name)| name == path).map(|(root, _)| root);
    let mut inner: Option<Descriptor> = None;
    for depth in 0.. {
        let outer = inner.as_ref().or(root).ok_or_else(|| Error::failed("no directory"))?;
        match outer.create_directory_at("d") {
            Ok(()) => {}
            Err(ErrorCode::NameTooLong) => return Ok(depth),
            Err(error) => return Err(Error::failed(error)),
        }
        let flags = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
        let opened = outer.open_at(PathFlags::empty(), "d", OpenFlags::DIRECTORY, flags);
        inner = Some(opened.map_err(Error::failed)?);
    }
    Ok(0)
}

/// Writes to files that it has removed and keeps open, and returns the number of bytes.
pub fn orphans(path: &str, bytes: usize) -> Result<usize, Error> {
    let content = vec![1; bytes];
    let (mut kept, mut taken) = (Vec::new(), 0);
    loop {
        let name = format!("{path}/orphan");
        let mut file = match File::create(&name) {
            Ok(file) => file,
            Err(error) if is_full(&error) => return Ok(taken),
            Err(error) => return Err(Error::failed(error)),
        };
        fs::remove_file(&name).map_err(Error::failed)?;
        match file.write_all(&content) {
            Ok(()) => taken += bytes,
            Err(error) if is_full(&error) => return Ok(taken),
            Err(error) => return Err(Error::failed(error)),
        }
        kept.push(file);
    }
}

/// Opens a file again and again until the host refuses, and returns the number of times.
pub fn open(path: &str) -> Result<usize, Error> {
    let name = format!("{path}/open");
    fs::write(&name, "x").map_err(Error::failed)?;
    let mut files = Vec::new();
    while let Ok(file) = File::open(&name) {
        files.push(file);
    }
    Ok(files.len())
}

/// Floods the host with file operations, for ever.
pub fn churn(path: &str) -> ! {
    let name = format!("{path}/churn");
    loop {
        let _ = fs::write(&name, [1; 8_192]);
        let _ = fs::read(&name);
        let _ = fs::read_dir(path).map(Iterator::count);
        let _ = fs::remove_file(&name);
    }
}

/// Grows, truncates and removes a file at the same time as other jobs; an error other than that of
/// a full disk or a missing file is a fault of the host.
pub fn races(path: &str, count: usize) -> Result<usize, Error> {
    let name = format!("{path}/raced");
    let mut refused = 0;
    for round in 0..count {
        let done = (|| -> io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&name)?;
            file.write_all(&[1; 100_000])?;
            match round % 3 {
                0 => file.set_len(1_000),
                1 => fs::remove_file(&name),
                _ => fs::rename(&name, format!("{path}/other")),
            }
        })();
        match done {
            Ok(()) => {}
            Err(error) if is_full(&error) => refused += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::failed(error)),
        }
    }
    Ok(refused)
}

/// Creates directories with the names of locks, and returns their number.
pub fn locks(path: &str, count: usize) -> Result<usize, Error> {
    for number in 0..count {
        fs::create_dir(format!("{path}/{number}.lock")).map_err(Error::failed)?;
    }
    Ok(count)
}
