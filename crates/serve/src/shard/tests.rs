//! The event loop without a kernel: a host, a clock and a disk in memory, and the real pipeline.

mod memory;
mod nvme;
mod shares;

use super::*;
use crate::config::{self, Export, FileStore, IoMode, Where};
use crate::frontend::socket::{Peer, Socket, Stream};
use crate::service::Service;
use crate::storage::blocking::{Blocking, BlockingCall, BlockingResult};
use crate::storage::file::Driver;
use crate::storage::file::backing::Backing;
use crate::storage::io::{Done, Io, Work};
use crate::storage::log_device;
use crate::storage::random::Random;
use crate::storage::store::Store;
use crate::storage::upstream::network::{self, Network, Readiness};
use crate::storage::upstream::testing::{Silence, remembered, upstream};
use crate::storage::upstream::{Owner, Upstreams};
use crate::tasks::CacheMemory;
use crate::testing::config;
use crate::volume::{PersistedState, Volume};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::RawFd;
use std::path::Path;
use std::rc::Rc;
use weir_flow::stage::run;

/// A virtual clock.
type Time = Rc<Cell<Instant>>;

/// The other end of a connection. It sends its next message when it has received something.
#[derive(Default)]
struct Host {
    messages: VecDeque<Vec<u8>>,
    /// Bytes on their way to the gateway.
    sent: VecDeque<u8>,
    received: Vec<u8>,
    has_news: bool,
    closed: Option<Instant>,
}

/// A connection to the host.
struct Connection {
    host: Rc<RefCell<Host>>,
    time: Time,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.host.borrow_mut().closed = Some(self.time.get());
    }
}

impl Stream for Connection {
    fn keep_alive(&self) -> Result<()> {
        Ok(())
    }

    fn limit_unsent(&self, _: u32) -> Result<()> {
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match self.host.borrow_mut().sent.read(buffer)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut host = self.host.borrow_mut();
        host.has_news = true;
        host.received.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A listener to which one host connects.
struct Connects(Cell<Option<Connection>>);

impl crate::frontend::listener::Accept for Connects {
    type Stream = Connection;

    fn accept(&self) -> Result<Socket<Connection>> {
        let connection = self.0.take().ok_or(ErrorKind::WouldBlock)?;
        let peer = Peer::Tcp(SocketAddr::from(([192, 0, 2, 7], 40_000)));
        Ok(Socket::new(connection, peer, self.address().transpose()?))
    }

    fn address(&self) -> Option<Result<SocketAddr>> {
        Some(Ok(SocketAddr::from(([192, 0, 2, 1], 10_809))))
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

/// No upstream is connected to.
struct NoNetwork;

enum NoStream {}

impl Network for NoNetwork {
    type Stream = NoStream;

    fn connect(&mut self, _: SocketAddr, _: usize) -> Result<NoStream> {
        Err(ErrorKind::NetworkUnreachable.into())
    }

    fn forget(&mut self, stream: &mut NoStream) {
        match *stream {}
    }
}

impl network::Stream for NoStream {
    fn is_established(&self) -> Result<bool> {
        match *self {}
    }

    fn reset_on_close(&self) {
        match *self {}
    }
}

impl Read for NoStream {
    fn read(&mut self, _: &mut [u8]) -> Result<usize> {
        match *self {}
    }
}

impl Write for NoStream {
    fn write(&mut self, _: &[u8]) -> Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> Result<()> {
        match *self {}
    }
}

/// Sleeping moves the clock, and two signals come at the end.
struct Virtual {
    time: Time,
    timer: Option<Instant>,
    end: Instant,
    host: Rc<RefCell<Host>>,
    /// The connection of the host.
    watched: Option<usize>,
    waits: Rc<Cell<Waits>>,
}

/// How often the event loop looked at its sockets.
#[derive(Clone, Copy, Default)]
struct Waits {
    /// And slept.
    sleeps: u32,
    /// And had other work.
    polls: u32,
}

impl Kernel for Virtual {
    type Stream = Connection;
    type Listener = Connects;
    type Network = NoNetwork;

    fn now(&self) -> Instant {
        self.time.get()
    }

    fn wake_by(&mut self, at: Instant) -> Result<()> {
        self.timer = Some(at);
        Ok(())
    }

    fn lead(&self) -> Duration {
        Duration::ZERO
    }

    fn wait(&mut self, sleep: Sleep, events: &mut Vec<Event>) -> Result<()> {
        let host = &mut *self.host.borrow_mut();
        let Waits { mut sleeps, mut polls } = self.waits.get();
        if let Some(index) = self.watched
            && std::mem::take(&mut host.has_news)
            && let Some(message) = host.messages.pop_front()
        {
            host.sent.extend(message);
            let readiness = Readiness { readable: true, writable: true, ended: false };
            events.push(Event::Connection(index, readiness));
        } else if let Sleep::Until(at) = sleep {
            sleeps += 1;
            let wake = [at, self.timer.take(), Some(self.end)].into_iter().flatten().min();
            self.time.set(self.time.get().max(wake.expect("there is an end")));
        } else {
            polls += 1;
        }
        self.waits.set(Waits { sleeps, polls });
        if self.time.get() >= self.end {
            events.push(Event::Stop(2));
        }
        Ok(())
    }

    fn watch(&mut self, _: &mut Socket<Connection>, index: usize) -> Result<()> {
        self.watched = Some(index);
        Ok(())
    }
}

/// A disk with what was written to it, and the same byte everywhere else. All I/O ends at once.
#[derive(Default)]
struct Disk {
    /// By the number of the sector.
    written: BTreeMap<u64, Vec<u8>>,
    done: Vec<Done>,
}

impl Driver for Disk {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn submit(&mut self, _: RawFd, io: Io) {
        let Io { whose, work, offset, length, promise } = io;
        let sectors = offset / SECTOR..(offset + length) / SECTOR;
        match &work {
            Work::Read { buffer, at } => {
                buffer.lend(*at, length as usize, crate::buffer::Use::Fill);
                let sector = |number| self.written.get(&number).cloned();
                let bytes = sectors.flat_map(|n| sector(n).unwrap_or(vec![BYTE; SECTOR as usize]));
                buffer.fill(*at, &bytes.collect::<Vec<_>>());
                buffer.take_back(crate::buffer::Use::Fill);
            }
            Work::Write { buffer, at, .. } => {
                let bytes = buffer.bytes()[*at..][..length as usize].chunks(SECTOR as usize);
                self.written.extend(sectors.zip(bytes.map(<[u8]>::to_vec)));
            }
            _ => {}
        }
        let flushed = matches!(work, Work::Sync);
        self.done.push(Done { whose, result: Ok(()), flushed, promise });
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> bool {
        done.append(&mut self.done);
        false
    }
}

/// Nothing is saved and nothing is mapped.
struct NoCalls;

impl Blocking for NoCalls {
    fn submit(&mut self, call: BlockingCall) {
        panic!("{call:?} is not needed");
    }

    fn reap(&mut self, _: &mut Vec<BlockingResult>) {}
}

struct Zeroes;

impl Random for Zeroes {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        Ok(())
    }
}

/// Serves one NBD export on a file until `end`, to a host with these messages. Returns the host, and how
/// often the event loop looked at its sockets.
fn serve(test: &str, messages: &[Vec<u8>], end: Duration) -> (Host, Waits) {
    serve_prepared(test, messages, end, |_| {})
}

/// The same; `prepare` changes the volume first.
fn serve_prepared(
    test: &str,
    messages: &[Vec<u8>],
    end: Duration,
    prepare: impl FnOnce(&mut Volume),
) -> (Host, Waits) {
    let path = std::env::temp_dir().join(format!("weir-shard-{test}-{}", std::process::id()));
    let file = FileStore {
        name: String::from("s"),
        path: path.clone(),
        backend: None,
        size: Some(1 << 20),
        io: IoMode::Buffered,
    };
    let config = config(vec![Where::File(file.clone())]);
    // Only opening a file is not behind a trait. Nothing is read from it.
    let backing = Backing::open(&config.volumes[0], &file).expect("a new file");
    std::fs::remove_file(&path).expect("it was just made");
    let upstreams = Upstreams::new(&[], 0, NoNetwork, Box::new(Zeroes));
    run_gateway(config, Protocol::Nbd, Store::File(backing), upstreams, messages, end, prepare)
}

/// Serves one NBD export on this store, or what else the configuration has, to a host of this protocol.
fn run_gateway(
    mut config: Config,
    protocol: Protocol,
    store: Store,
    upstreams: Upstreams<NoNetwork>,
    messages: &[Vec<u8>],
    end: Duration,
    prepare: impl FnOnce(&mut Volume),
) -> (Host, Waits) {
    config.nbd.max_connections = 1;
    config.nbd.exports = vec![Export { name: String::from("v"), volume: 0 }];
    let stores = vec![store];
    let plan = plan::plan(&config, &stores);
    let logs = log_device::open(&config, &plan.cache, &mut Zeroes).expect("a new log");

    let time: Time = Rc::default();
    // A server of NBD speaks first.
    let has_news = protocol != Protocol::Nbd;
    let host = Host { messages: messages.to_vec().into(), has_news, ..Host::default() };
    let host = Rc::new(RefCell::new(host));
    let waits = Rc::<Cell<Waits>>::default();
    let kernel = Virtual {
        time: time.clone(),
        timer: None,
        end: Instant::ZERO + end,
        host: host.clone(),
        watched: None,
        waits: waits.clone(),
    };
    let connects = Connects(Cell::new(Some(Connection { host: host.clone(), time })));
    let helpers: [Box<dyn Blocking>; 2] = [Box::new(NoCalls), Box::new(NoCalls)];
    let cache = CacheMemory::new(&plan.cache, logs.logs, logs.lost);
    let persisted = vec![PersistedState::default()];
    let mut engine = CommandEngine::new(&config, stores, persisted, cache, helpers);
    engine.set.inputs.extend(logs.found.into_iter().map(Input::Cache));
    prepare(&mut engine.catalog.volumes[0]);
    let parts = Parts {
        kernel,
        listeners: vec![Listener::new(protocol, None, connects)],
        tls: None,
        control: None,
        http: None,
        isns: None,
        metrics: Arc::new(Metrics::new(0)),
        engine,
        storage: Storage::new(Box::new(Disk::default()), upstreams),
        random: Box::new(Zeroes),
        service: Service::none(),
    };
    let mut reader = crate::testing::NoReader;
    let mut gateway = Gateway::new(&config, parts, &mut reader);
    run(&mut Pipeline::new(&plan, ()), &mut gateway);
    drop(gateway);
    (host.take(), waits.get())
}

/// The payload of an option reply of this kind to `NBD_OPT_GO`, and the bytes behind it.
fn reply(bytes: &[u8], kind: u8) -> (&[u8], &[u8]) {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let head = [&magic[..], &[0, 0, 0, 7, 0, 0, 0, kind, 0, 0, 0]].concat();
    let rest = bytes.strip_prefix(&head[..]).expect("a reply of this kind comes next");
    rest[1..].split_at(rest[0].into())
}

/// A host connects, chooses the export and reads a block: it receives the greeting, the export's size and the
/// bytes of the disk. No kernel takes part.
#[test]
fn a_host_is_served_without_a_kernel() {
    let (host, _) = serve("read", &[choose(), read()], Duration::from_secs(3));

    let greeting = &b"NBDMAGICIHAVEOPT\0\x03"[..];
    let rest = host.received.strip_prefix(greeting).expect("the greeting comes first");
    let (export, rest) = reply(rest, INFO);
    assert_eq!(export[..2], [0, 0], "the kind of information is the export's size");
    assert_eq!(export[2..10], (1_u64 << 20).to_be_bytes());
    let (_block_sizes, rest) = reply(rest, INFO);
    let (_, rest) = reply(rest, ACK);
    let simple = [&SIMPLE_REPLY[..], &[0; 4], &COOKIE].concat();
    let data = rest.strip_prefix(&simple[..]).expect("the read has ended well");
    assert_eq!(data, [BYTE; 512]);
}

/// A host that connects and says nothing is closed when 15 s have passed on the virtual clock, and the event
/// loop sleeps in between.
#[test]
fn a_silent_host_is_closed_in_virtual_time() {
    let (host, Waits { sleeps, .. }) = serve("silent", &[], Duration::from_secs(20));
    let closed = host.closed.expect("it was connected");
    assert!(closed >= Instant::ZERO + Duration::from_secs(15), "{closed:?}");
    assert!(closed <= Instant::ZERO + Duration::from_secs(16), "{closed:?}");
    assert!(sleeps < 100, "{sleeps} sleeps for 20 ticks");
}

/// A host of a volume that is withdrawn gets an error for each read, and repeats the read at once: it gets a burst of
/// errors and then 20 a second, and the event loop sleeps in between.
#[test]
fn a_host_that_repeats_refused_reads_is_delayed() {
    let messages: Vec<_> = [choose()].into_iter().chain((0..5_000).map(|_| read())).collect();
    let (host, Waits { sleeps, .. }) =
        serve_prepared("brake", &messages, Duration::from_secs(10), |volume| {
            volume.unit.withdraw();
        });
    let error = [&SIMPLE_REPLY[..], &[0, 0, 0, 5], &COOKIE].concat();
    let errors = host.received.windows(error.len()).filter(|bytes| *bytes == error).count();
    assert!((200..=240).contains(&errors), "{errors} errors in 10 s");
    assert!(sleeps < 400, "{sleeps} sleeps");
}

/// A gateway has started without its upstream, whose unit it remembers: it acknowledges a write, answers the read of
/// what is in the log, and the read of what only the upstream has waits.
#[test]
fn a_gateway_without_its_upstream_logs_writes() {
    let path = std::env::temp_dir().join(format!("weir-shard-alone-{}.log", std::process::id()));
    let mut config = config(vec![Where::Upstream { index: 0, size: None }]);
    config.upstreams = vec![upstream(1, SocketAddr::from(([192, 0, 2, 9], 3260)))];
    config.volumes[0].log = Some(config::Log {
        path: path.clone(),
        size: Some(16 << 20),
        io: IoMode::Buffered,
        ack: config::Ack::Log,
        sync: config::Sync::Local,
        order: config::Order::Auto,
    });
    let begin = Instant::ZERO;
    let mut upstreams = Upstreams::new(&config.upstreams, 0, NoNetwork, Box::new(Zeroes));
    upstreams.connect(&mut Silence(begin), vec![Some(remembered())]).expect("it is remembered");
    let owners = vec![Some(Owner::new(1, false, Vec::new()))];
    upstreams.claim(&mut Silence(begin), &config, owners).expect("the claim waits");
    let store = Store::Upstream(upstreams.unit(0));
    let write = [request(1, 8192), vec![0xab; 512]].concat();
    let messages = [choose(), write, request(0, 8192), read()];
    let end = Duration::from_secs(5);
    let nbd = Protocol::Nbd;
    let (host, _) = run_gateway(config, nbd, store, upstreams, &messages, end, |_| {});
    std::fs::remove_file(path).expect("it was made");

    let reply = [&SIMPLE_REPLY[..], &[0; 4], &COOKIE].concat();
    let expected = [&reply[..], &reply, &[0xab; 512]].concat();
    assert!(
        host.received.ends_with(&expected),
        "{:x?}",
        &host.received[host.received.len() - 64..]
    );
}

/// The client's flags and the choice of the export.
fn choose() -> Vec<u8> {
    let go = [&b"IHAVEOPT"[..], &[0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 1, b'v', 0, 0]].concat();
    [&[0, 0, 0, 3][..], &go].concat()
}

/// A read of a block.
fn read() -> Vec<u8> {
    request(0, 4096)
}

/// A read (0) or a write (1) of a block at this byte.
fn request(kind: u8, at: u64) -> Vec<u8> {
    let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, kind];
    request.extend(COOKIE);
    request.extend(at.to_be_bytes());
    request.extend(512_u32.to_be_bytes());
    request
}

/// The magic number of a simple reply; the error and the cookie follow.
const SIMPLE_REPLY: [u8; 4] = [0x67, 0x44, 0x66, 0x98];

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// `NBD_REP_ACK` and `NBD_REP_INFO`.
const ACK: u8 = 1;
const INFO: u8 = 3;

/// Every byte of the disk.
const BYTE: u8 = 0x5a;

/// The client's name for its read.
const COOKIE: [u8; 8] = *b"a cookie";
