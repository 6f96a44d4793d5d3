//! Both drivers, and the opening of files, against a real file system.

use super::Driver;
use super::backing::{Backing, OpenError};
use super::threads::Threads;
use super::uring::Uring;
use crate::buffer::{Pool, Shared};
use crate::config::{FileStore, Initiators, IoMode, Layout, Volume, Where};
use crate::storage::io::{Done, Io, Whose, Work};
use crate::storage::layout::open_volume;
use slotmap::SlotMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use weir_flow::accept::Cap;
use weir_flow::error::IoError;
use weir_flow::request::RequestKey;

/// A folder of the test's own, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("the folder for temporary files is writable");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn volume(path: &Path, size: Option<u64>) -> Volume {
    Volume {
        name: String::from("v"),
        identity: None,
        tenant: 0,
        stores: vec![Where::File(FileStore {
            name: String::from("v"),
            path: path.to_path_buf(),
            backend: None,
            size,
            io: IoMode::Buffered,
        })],
        layout: Layout::Concat,
        log: None,
        cap: Cap::default(),
        block_size: 512,
        physical_block_size: 4096,
        read_only: false,
        thin: true,
        initiators: Initiators::default(),
        removable: false,
        sanitize: false,
        atomic: false,
        movable: false,
        state: None,
    }
}

fn open(volume: &Volume) -> Result<Backing, OpenError> {
    Backing::open(volume, volume.file().expect("it is on a file"))
}

/// Does some operations at once and returns how each ended, in the order given.
fn perform(driver: &mut dyn Driver, fd: &impl AsRawFd, ios: Vec<Io>) -> Vec<io::Result<()>> {
    let order: Vec<Whose> = ios.iter().map(|io| io.whose).collect();
    for io in ios {
        driver.submit(fd.as_raw_fd(), io);
    }
    let mut done: Vec<Done> = Vec::new();
    while done.len() < order.len() {
        driver.flush().expect("the driver works");
        driver.reap(&mut done);
        std::thread::yield_now();
    }
    let mut take = |whose| {
        let index = done.iter().position(|done| done.whose == whose).expect("each ends once");
        done.swap_remove(index).result
    };
    order.into_iter().map(&mut take).collect()
}

fn filled(pool: &mut Pool, length: usize, byte: u8) -> Shared {
    let mut buffer = pool.take(length).expect("within the limit");
    Rc::get_mut(&mut buffer).expect("fresh").bytes_mut().fill(byte);
    buffer
}

/// Every operation that a driver knows, on one file.
fn exercise(driver: &mut dyn Driver, path: &Path) {
    let backing = open(&volume(path, Some(4 << 20))).expect("a new file");
    let mut keys = SlotMap::<RequestKey, ()>::with_key();
    let mut pool = Pool::new(64 << 20);
    let mut io = |work, offset, length| Io {
        whose: Whose::Request(keys.insert(())),
        work,
        offset,
        length,
        promise: None,
    };
    let (a, b) = (filled(&mut pool, 2 << 20, 0xaa), filled(&mut pool, 8192, 0xbb));
    let write = |buffer: &Shared, at, durable| Work::Write { buffer: buffer.clone(), at, durable };

    let ends = perform(
        driver,
        &backing,
        vec![
            io(write(&a, 0, false), 0, 1 << 20),
            io(write(&a, 1 << 20, true), 1 << 20, 1 << 20),
            io(write(&b, 4096, true), 3 << 20, 4096),
        ],
    );
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    assert!(perform(driver, &backing, vec![io(Work::Sync, 0, 0)])[0].is_ok());
    let ends = perform(
        driver,
        &backing,
        vec![io(Work::Discard, 4096, 8192), io(Work::Zero, 1 << 20, 512)],
    );
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");

    let back = filled(&mut pool, 4 << 20, 0x11);
    let read = |at| Work::Read { buffer: back.clone(), at };
    let ends = perform(
        driver,
        &backing,
        vec![io(read(0), 0, 2 << 20), io(read(2 << 20), 2 << 20, 2 << 20)],
    );
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    let mut expected = vec![0; 4 << 20];
    expected[..2 << 20].fill(0xaa);
    expected[4096..4096 + 8192].fill(0);
    expected[1 << 20..(1 << 20) + 512].fill(0);
    expected[3 << 20..(3 << 20) + 4096].fill(0xbb);
    assert!(back.bytes() == expected, "what was written is what is read");

    // The file is truncated: a read past its end must fail, not return what the buffer held.
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1 << 20).unwrap();
    let ends = perform(driver, &backing, vec![io(read(0), 0, 2 << 20)]);
    assert_eq!(ends[0].as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

    // Nothing is left lent.
    for buffer in [a, b, back] {
        pool.give(buffer);
    }
}

/// The ring reads what was written, makes holes, syncs, and notices a file that was cut.
#[test]
fn ring_does_every_operation() {
    let folder = Folder::new("ring");
    match Uring::new(8) {
        Ok(mut ring) => exercise(&mut ring, &folder.file("v")),
        // Containers may forbid it; the thread pool serves then, and is tested below.
        Err(problem) => eprintln_once(&problem),
    }
}

#[expect(clippy::print_stderr, reason = "a test that cannot run here says so")]
fn eprintln_once(problem: &io::Error) {
    eprintln!("no io_uring here, ring not tested: {problem}");
}

/// The thread pool does the same.
#[test]
fn threads_do_every_operation() {
    let folder = Folder::new("threads");
    let mut threads = Threads::new(2, || {}).expect("threads start");
    exercise(&mut threads, &folder.file("v"));
}

/// More operations than the ring has entries are all done.
#[test]
fn ring_takes_more_than_it_holds() {
    let folder = Folder::new("overflow");
    let Ok(mut ring) = Uring::new(4) else { return };
    let backing = open(&volume(&folder.file("v"), Some(1 << 20))).unwrap();
    let mut keys = SlotMap::<RequestKey, ()>::with_key();
    let mut pool = Pool::new(1 << 20);
    let buffer = filled(&mut pool, 4096, 7);
    let ios = (0..100).map(|n| Io {
        whose: Whose::Request(keys.insert(())),
        work: Work::Write { buffer: buffer.clone(), at: 0, durable: false },
        offset: n * 4096,
        length: 4096,
        promise: None,
    });
    let ends = perform(&mut ring, &backing, ios.collect());
    assert!(ends.len() == 100 && ends.iter().all(Result::is_ok));
    assert!(fs::read(folder.file("v")).unwrap()[..100 * 4096].iter().all(|&byte| byte == 7));
}

/// A device without room says so in a way that becomes the right error for the host.
#[test]
fn a_full_device_is_no_space() {
    let Ok(full) = fs::OpenOptions::new().read(true).write(true).open("/dev/full") else { return };
    let mut pool = Pool::new(1 << 20);
    let buffer = filled(&mut pool, 4096, 1);
    let mut keys = SlotMap::<RequestKey, ()>::with_key();
    let mut threads = Threads::new(1, || {}).unwrap();
    let io = Io {
        whose: Whose::Request(keys.insert(())),
        work: Work::Write { buffer, at: 0, durable: false },
        offset: 0,
        length: 4096,
        promise: None,
    };
    let ends = perform(&mut threads, &full, vec![io]);
    assert_eq!(crate::storage::io::tenant_error(ends[0].as_ref().unwrap_err()), IoError::NoSpace);
}

/// A file is made sparse, of the size asked for; opened again it keeps its size; two openers at a
/// time are refused; a larger file is not served short, and a missing one needs a size.
#[test]
fn files_are_opened_with_care() {
    let folder = Folder::new("open");
    let path = folder.file("v");
    let first = open(&volume(&path, Some(64 << 20))).expect("a new file");
    assert!(first.created && first.capacity == 64 << 20);
    assert!(matches!(open(&volume(&path, None)), Err(OpenError::InUse { .. })));
    drop(first);
    let again = open(&volume(&path, None)).expect("it is there");
    assert!(!again.created && again.capacity == 64 << 20);
    drop(again);
    let larger = open(&volume(&path, Some(32 << 20)));
    assert!(matches!(larger, Err(OpenError::Larger { .. })), "{larger:?}");
    let grown = open(&volume(&path, Some(65 << 20))).expect("files grow");
    assert_eq!(grown.capacity, 65 << 20);
    assert_eq!(fs::metadata(&path).unwrap().len(), 65 << 20);
    let missing = open(&volume(&folder.file("w"), None));
    assert!(matches!(missing, Err(OpenError::NoSize { .. })), "{missing:?}");
    fs::write(folder.file("odd"), [0; 700]).unwrap();
    let odd = open(&volume(&folder.file("odd"), None));
    assert!(matches!(odd, Err(OpenError::PartBlock { .. })), "{odd:?}");
    let nowhere = open(&volume(&folder.file("no/such/folder"), Some(512)));
    let message = nowhere.unwrap_err().to_string();
    assert!(message.starts_with("volume `v`: cannot open /"), "{message}");
}

/// What cannot be opened leaves no file that was made for it, nor for the stores before it; files that were there stay.
#[test]
fn what_is_made_in_vain_is_removed() {
    let folder = Folder::new("vain");
    let huge = folder.file("huge");
    let one = volume(&huge, Some(1 << 63));
    let opened = Backing::open(&one, one.file().unwrap());
    assert!(matches!(opened, Err(OpenError::Os { action: "extend", .. })), "{opened:?}");
    assert!(!huge.exists());
    let paths = ["there", "made", "small"].map(|name| folder.file(name));
    fs::write(&paths[0], vec![1; 1 << 20]).unwrap();
    let sizes = [1 << 20, 1 << 20, 4096];
    let stores = paths.iter().zip(sizes).flat_map(|(path, size)| volume(path, Some(size)).stores);
    let layout = Layout::Stripe { chunk: 64 << 10 };
    let striped = Volume { stores: stores.collect(), layout, ..volume(&huge, None) };
    let opened = open_volume(&striped, |_| unreachable!("it is on files"));
    assert!(matches!(opened, Err(OpenError::NoChunk { .. })), "{opened:?}");
    assert_eq!(paths.map(|path| path.exists()), [true, false, false]);
}
