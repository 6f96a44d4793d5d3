//! Storage above its traits, without a kernel: a disk and a network in memory, driven by the test.

use super::io::{Io, Whose, Work};
use super::random::Random;
use super::upstream::network::{Readiness, Stream};
use super::upstream::testing::upstream;
use super::*;
use crate::buffer::{Pool, Shared, Use};
use slotmap::SlotMap;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use weir_flow::clock::{Duration, Instant};
use weir_flow::error::IoError;
use weir_flow::request::{BackendId, PathId, RequestKey};

/// A disk in memory. It ends an operation when the test says so, in the order that the test says.
#[derive(Clone, Default)]
struct Disk(Rc<RefCell<Contents>>);

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    /// Operations that the kernel does not have yet, and those that it has.
    queued: Vec<Io>,
    kernel: Vec<Io>,
    ended: Vec<Done>,
}

impl Disk {
    /// Ends the operation at this place among those that the kernel has; with this error number, or well.
    fn end(&self, index: usize, error: Option<i32>) {
        let mut contents = self.0.borrow_mut();
        let Io { whose, work, offset, length, promise } = contents.kernel.remove(index);
        let range = offset as usize..(offset + length) as usize;
        let flushed = matches!(work, Work::Sync);
        match work {
            _ if error.is_some() => {}
            Work::Read { buffer, at } => {
                buffer.lend(at, length as usize, Use::Fill);
                buffer.fill(at, &contents.bytes[range]);
                buffer.take_back(Use::Fill);
            }
            Work::Write { buffer, at, .. } => {
                contents.bytes[range].copy_from_slice(&buffer.bytes()[at..][..length as usize]);
            }
            Work::Discard | Work::Zero => contents.bytes[range].fill(0),
            Work::Sync => {}
        }
        let result = error.map_or(Ok(()), |code| Err(Error::from_raw_os_error(code)));
        contents.ended.push(Done { whose, result, flushed, promise });
    }

    fn in_kernel(&self) -> usize {
        self.0.borrow().kernel.len()
    }
}

impl Driver for Disk {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn submit(&mut self, _: RawFd, io: Io) {
        self.0.borrow_mut().queued.push(io);
    }

    fn flush(&mut self) -> Result<()> {
        let Contents { queued, kernel, .. } = &mut *self.0.borrow_mut();
        kernel.append(queued);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> bool {
        done.append(&mut self.0.borrow_mut().ended);
        false
    }
}

/// A network in memory: the connections that were begun, in order.
#[derive(Clone, Default)]
struct Memory {
    begun: Rc<RefCell<Vec<(SocketAddr, usize, Wire)>>>,
    forgotten: Rc<RefCell<usize>>,
}

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Ends>>);

/// What a connection has done and what the other end does.
#[derive(Default)]
struct Ends {
    established: bool,
    sent: Vec<u8>,
    arrives: VecDeque<u8>,
    closed: bool,
}

impl Network for Memory {
    type Stream = Wire;

    fn connect(&mut self, address: SocketAddr, socket: usize) -> Result<Wire> {
        let wire = Wire::default();
        self.begun.borrow_mut().push((address, socket, wire.clone()));
        Ok(wire)
    }

    fn forget(&mut self, _: &mut Wire) {
        *self.forgotten.borrow_mut() += 1;
    }
}

impl Stream for Wire {
    fn is_established(&self) -> Result<bool> {
        Ok(self.0.borrow().established)
    }

    fn reset_on_close(&self) {}
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut ends = self.0.borrow_mut();
        match ends.arrives.read(buffer)? {
            0 if !ends.closed => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.borrow_mut().sent.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The same byte again and again.
struct Byte(u8);

impl Random for Byte {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(self.0);
        Ok(())
    }
}

const PORTAL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 3260);

/// Storage on this disk, with one upstream that has one path.
fn storage(disk: &Disk, network: &Memory, random: u8) -> Storage<Memory> {
    let random = Box::new(Byte(random));
    let mut upstreams = Upstreams::new(&[upstream(1, PORTAL)], 0, network.clone(), random);
    upstreams.set_now(Instant::ZERO + Duration::from_secs(1));
    Storage::new(Box::new(disk.clone()), upstreams)
}

fn exchange(storage: &mut Storage<Memory>) -> Vec<StorageDone> {
    let mut done = Vec::new();
    storage.exchange_files(&mut done).expect("the disk takes everything");
    storage.exchange_upstreams(&mut done);
    done
}

/// The only reported end.
fn end(storage: &mut Storage<Memory>) -> Ended {
    match exchange(storage)[..] {
        [StorageDone::Ended(ended)] => ended,
        ref other => panic!("one end is reported: {other:?}"),
    }
}

fn filled(pool: &mut Pool, byte: u8) -> Shared {
    let mut buffer = pool.take(512).expect("within the limit");
    Rc::get_mut(&mut buffer).expect("fresh from the pool").bytes_mut().fill(byte);
    buffer
}

/// Operations on a file reach the disk at the next exchange, and each end is reported once, in the order of the
/// disk, to whom it belongs: with its bytes, its error in the pipeline's terms, and whether it was a flush.
#[test]
fn a_file_is_served_by_any_driver() {
    let disk = Disk::default();
    disk.0.borrow_mut().bytes = vec![1; 4096];
    let mut storage = storage(&disk, &Memory::default(), 0);
    let mut keys = SlotMap::<RequestKey, ()>::with_key();
    let mut pool = Pool::new(1 << 20);
    let (data, back) = (filled(&mut pool, 7), filled(&mut pool, 0));
    let works = [
        Work::Write { buffer: data, at: 0, durable: false },
        Work::Read { buffer: back.clone(), at: 0 },
        Work::Write { buffer: filled(&mut pool, 8), at: 0, durable: true },
        Work::Sync,
    ];
    let whose = works.map(|work| {
        let whose = Whose::Request(keys.insert(()));
        let length = if matches!(work, Work::Sync) { 0 } else { 512 };
        let promise = Some(5).filter(|_| matches!(work, Work::Sync));
        let io = Io { whose, work, offset: 512, length, promise };
        storage.submit(StorageSubmit::Io(Location::File(3), io));
        whose
    });
    assert_eq!(disk.in_kernel(), 0, "a burst is handed over at once");
    assert!(exchange(&mut storage).is_empty());
    assert_eq!(disk.in_kernel(), 4);

    disk.end(3, None);
    let flush = Ended { whose: whose[3], outcome: Ok(()), flushed: true, promise: Some(5) };
    assert_eq!(end(&mut storage), flush);
    disk.end(2, Some(libc::ENOSPC));
    let full = Err(IoError::NoSpace);
    let refused = Ended { whose: whose[2], outcome: full, flushed: false, promise: None };
    assert_eq!(end(&mut storage), refused);
    disk.end(0, None);
    disk.end(0, None);
    let done = exchange(&mut storage);
    let [StorageDone::Ended(write), StorageDone::Ended(read)] = done[..] else {
        panic!("two ends are reported: {done:?}")
    };
    assert_eq!((write.whose, write.outcome), (whose[0], Ok(())));
    assert_eq!((read.whose, read.outcome), (whose[1], Ok(())));
    assert!(back.bytes()[..512].iter().all(|&byte| byte == 7), "what was written is read");
    assert!(exchange(&mut storage).is_empty(), "an end is reported once");
}

/// A file has one path, which is always there; a path of an upstream without a session is down.
#[test]
fn paths_are_checked_without_a_kernel() {
    let mut storage = storage(&Disk::default(), &Memory::default(), 0);
    let [file, path] = [BackendId::new(9), BackendId::new(0)];
    storage.submit(StorageSubmit::Check(file, PathId::new(0)));
    let done = exchange(&mut storage);
    let checked =
        |one: &StorageDone| matches!(one, StorageDone::Input(Input::Checked(of, _)) if *of == file);
    assert!(done.len() == 1 && done.iter().all(checked), "{done:?}");
    storage.submit(StorageSubmit::Check(path, PathId::new(0)));
    let done = exchange(&mut storage);
    let down = |one: &StorageDone| matches!(one, StorageDone::Input(Input::PathDown(of, _)) if *of == path);
    assert!(done.len() == 1 && done.iter().all(down), "{done:?}");
}

/// A session with an upstream connects, logs in when the connection is made, and is tried again when the
/// portal closes it: at a time that the random bytes decide, so that equal bytes give equal runs.
#[test]
fn an_upstream_connects_over_any_network() {
    let retry = |random| {
        let network = Memory::default();
        let mut storage = storage(&Disk::default(), &network, random);
        storage.upstreams.tick();
        let (address, socket, wire) = network.begun.borrow()[0].clone();
        assert_eq!((address, socket), (PORTAL, 0));
        let writable = Readiness { readable: false, writable: true, ended: false };
        storage.upstreams.event(0, writable);
        assert!(wire.0.borrow().sent.is_empty(), "the connection is not made yet");
        wire.0.borrow_mut().established = true;
        storage.upstreams.event(0, writable);
        exchange(&mut storage);
        // RFC 7143 section 11.12: a Login Request is an immediate command with opcode 0x03.
        assert_eq!(wire.0.borrow().sent[0], 0x43);
        wire.0.borrow_mut().closed = true;
        storage.upstreams.event(0, Readiness { readable: true, writable: false, ended: true });
        assert_eq!(*network.forgotten.borrow(), 1, "the connection is closed");
        let at = storage.upstreams.next().expect("the path is tried again");
        storage.upstreams.set_now(at);
        storage.upstreams.tick();
        assert_eq!(network.begun.borrow().len(), 2);
        at
    };
    let at = retry(1);
    assert!(at > Instant::ZERO + Duration::from_secs(1));
    assert_eq!(at, retry(1));
    assert_ne!(at, retry(200));
}
