//! The helper against a real file system, and maps against simulated ones.

use super::*;
use crate::storage::state_file::tests::Folder;
use crate::storage::state_file::{Sanitize, State};
use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;

/// Calls end in the order of their submission, each after a wake-up, and what is queued at the end is done.
#[test]
fn chores_end_in_order() {
    let folder = Folder::new("chores-order");
    let (woken, wakes) = mpsc::channel();
    let mut chores = BlockingPool::new(move || woken.send(()).unwrap()).unwrap();
    let state = |byte| State { reservations: vec![byte], sanitize: Sanitize::None };
    let save = |owner, name: &str, byte| BlockingCall::Save {
        owner,
        path: folder.file(name),
        bytes: state(byte).encode().unwrap(),
    };
    chores.submit(save(7, "v.state", 1));
    chores.submit(save(8, "missing/v.state", 2));
    chores.submit(save(9, "v.state", 3));
    let mut done = Vec::new();
    for _ in 0..3 {
        wakes.recv().unwrap();
        chores.reap(&mut done);
    }
    let ends: Vec<(u64, bool)> = done
        .iter()
        .map(|done| match done {
            BlockingResult::Saved { owner, result } => (*owner, result.is_ok()),
            BlockingResult::Mapped { .. } => panic!("no map was requested"),
        })
        .collect();
    assert_eq!(ends, [(7, true), (8, false), (9, true)]);
    let loaded = || state_file::load(&folder.file("v.state")).unwrap();
    assert_eq!(loaded(), Some(state(3)));
    for byte in 4..40 {
        chores.submit(save(7, "v.state", byte));
    }
    drop(chores);
    assert_eq!(loaded(), Some(state(39)));
    assert_eq!(wakes.iter().count(), 36);
}

/// A map of a sparse file separates its data from its holes.
#[test]
fn a_sparse_file_is_mapped() {
    const MIB: u64 = 1 << 20;
    let folder = Folder::new("chores-map");
    let file = Arc::new(File::create(folder.file("disk")).unwrap());
    file.set_len(8 * MIB).unwrap();
    for at in [0, MIB, 5 * MIB] {
        file.write_all_at(&vec![1; MIB as usize], at).unwrap();
    }
    let (woken, wakes) = mpsc::channel();
    let mut chores = BlockingPool::new(move || woken.send(()).unwrap()).unwrap();
    let mut runs = |file: &Arc<File>, offset, length, max| {
        let file = file.clone();
        chores.submit(BlockingCall::Map { token: offset, file, offset, length, block: 4096, max });
        wakes.recv().unwrap();
        let mut done = Vec::new();
        chores.reap(&mut done);
        match done.pop() {
            Some(BlockingResult::Mapped { token, result }) if token == offset => result,
            other => panic!("{other:?}"),
        }
    };
    let fd = &file;
    let all = [(2 * MIB, true), (3 * MIB, false), (MIB, true), (2 * MIB, false)];
    assert_eq!(runs(fd, 0, 8 * MIB, 64).unwrap(), all);
    assert_eq!(runs(fd, 0, 8 * MIB, 2).unwrap(), all[..2]);
    let inside = [(MIB - 4096, false), (4096, true)];
    assert_eq!(runs(fd, 4 * MIB + 4096, MIB, 64).unwrap(), inside);
    assert_eq!(runs(fd, 3 * MIB, 4096, 1).unwrap(), [(4096, false)]);
    assert!(runs(fd, 0, 0, 64).unwrap().is_empty());
    // The file is shorter than it should be: what is missing is not a hole.
    let error = runs(fd, 7 * MIB, 2 * MIB, 64).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    // Something that has no positions at all.
    let (reader, _writer) = io::pipe().unwrap();
    let pipe = Arc::new(File::from(OwnedFd::from(reader)));
    assert!(runs(&pipe, 0, 4096, 64).is_err());
}

/// A file of 1 KiB units, data where there is an `x`; answers as lseek(2) says.
fn sparse(picture: &str) -> impl Fn(SeekFrom) -> io::Result<u64> {
    move |position| {
        let size = picture.len() as u64 * 1024;
        let (at, wanted) = match position {
            SeekFrom::End(0) => return Ok(size),
            SeekFrom::Data(at) => (at, b'x'),
            SeekFrom::Hole(at) => (at, b'.'),
            other => panic!("a map does not ask for {other:?}"),
        };
        if at >= size {
            return Err(Errno::NXIO.into());
        }
        let first = (at / 1024) as usize;
        match picture.bytes().skip(first).position(|unit| unit == wanted) {
            Some(skipped) => Ok(((first + skipped) as u64 * 1024).max(at)),
            None if wanted == b'.' => Ok(size),
            None => Err(Errno::NXIO.into()),
        }
    }
}

/// Where the file system counts in smaller pieces than the volume, a block with any data is mapped.
#[test]
fn runs_are_whole_blocks() {
    let mapped = |picture: &str, max| {
        let length = picture.len() as u64 * 1024;
        map(sparse(picture), 0, length, 4096, max).unwrap()
    };
    let all = [(4096, false), (8192, true), (4096, false)];
    assert_eq!(mapped(".....x..x.......", 9), all);
    // The last run that is wanted may be longer.
    assert_eq!(mapped(".....x..x.......", 2), [(4096, false), (4096, true)]);
    assert_eq!(mapped("...xx...", 9), [(8192, true)]);
    assert_eq!(mapped("x......x", 9), [(8192, true)]);
    assert_eq!(mapped("xxxxxxxx", 9), [(8192, true)]);
    assert_eq!(mapped("........", 9), [(8192, false)]);
    // One call is bounded where every block is in pieces.
    assert_eq!(mapped(&"x...".repeat(100), 3), [(3 * 4096, true)]);
}

/// Every range of every small file gets the runs that its picture shows.
#[test]
fn maps_agree_with_the_picture() {
    for bits in 0..1_u32 << 10 {
        let picture: String =
            (0..10).map(|bit| if bits >> bit & 1 == 1 { 'x' } else { '.' }).collect();
        for start in 0..10 {
            let max = start % 3 + 1;
            let length = (10 - start) as u64 * 1024;
            let runs = map(sparse(&picture), start as u64 * 1024, length, 1024, max).unwrap();
            let mut shown = String::new();
            for &(length, mapped) in &runs {
                let unit = if mapped { "x" } else { "." };
                shown += &unit.repeat((length / 1024) as usize);
            }
            assert!(!runs.is_empty() && runs.len() <= max && picture[start..].starts_with(&shown));
            assert!(runs.windows(2).all(|pair| pair[0].1 != pair[1].1));
            assert!(runs.len() == max || shown.len() == 10 - start, "{picture} from {start}");
        }
    }
}

/// A file that cannot report its holes has none; other errors are reported.
#[test]
fn without_holes_everything_is_mapped() {
    for code in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS] {
        let seek = |position| match position {
            SeekFrom::End(0) => Ok(1 << 30),
            _ => Err(code.into()),
        };
        assert_eq!(map(seek, 4096, 8192, 512, 5).unwrap(), [(8192, true)]);
    }
    let seek = |position| match position {
        SeekFrom::End(0) => Ok(1 << 30),
        _ => Err(Errno::IO.into()),
    };
    let error = map(seek, 0, 512, 512, 5).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    assert!(map(seek, u64::MAX, 512, 512, 5).is_err());
}

/// Data that disappears between two calls is reported as data, and the map continues behind it.
#[test]
fn a_race_with_a_hole_ends() {
    let calls = Cell::new(0);
    let seek = |position| {
        calls.set(calls.get() + 1);
        match position {
            SeekFrom::Data(at) | SeekFrom::Hole(at) => Ok(at),
            _ => Ok(1 << 30),
        }
    };
    assert_eq!(map(seek, 0, 1 << 30, 512, 4).unwrap(), [(4 * 512, true)]);
    assert!(calls.get() < 16);
}

/// The kernel answers in positions, and its errors come through.
#[test]
fn positions_are_asked_of_the_kernel() {
    let folder = Folder::new("chores-seek");
    fs::write(folder.file("disk"), [1; 1000]).unwrap();
    let file = OpenOptions::new().read(true).open(folder.file("disk")).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::End(0)), Ok(1000));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(1000)), Err(Errno::NXIO));
    assert!(rustix::fs::seek(&file, SeekFrom::Data(u64::MAX)).is_err());
}
