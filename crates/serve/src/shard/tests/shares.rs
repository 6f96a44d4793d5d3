//! Shares of hosts of different weights when the thread of the event loop is the bottleneck, on a virtual clock.

use super::*;
use crate::config::Tenant;
use weir_flow::dispatch::{Shares, Weight};

const US: Duration = Duration::from_micros(1);

/// Commands that each host keeps outstanding.
const DEPTH: usize = 32;

/// An NBD client that answers each reply by another read of 512 bytes.
struct Client {
    export: u8,
    stage: Stage,
    /// What it sends, and when that arrives.
    sends: VecDeque<(Instant, Vec<u8>)>,
    arrived: VecDeque<u8>,
    received: Vec<u8>,
    /// Its index among the connections of the gateway.
    index: Option<usize>,
    served: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeted,
    Choosing,
    Reading,
}

impl Client {
    fn new(export: u8) -> Self {
        Self {
            export,
            stage: Stage::Greeted,
            sends: VecDeque::new(),
            arrived: VecDeque::new(),
            received: Vec::new(),
            index: None,
            served: 0,
        }
    }

    /// Answers what it has received, 50 µs later.
    fn answer(&mut self, now: Instant) {
        let at = now + US * 50;
        let mut message = Vec::new();
        match self.stage {
            Stage::Greeted if self.received.len() >= GREETING => {
                self.received.clear();
                message.extend([0, 0, 0, 3]);
                message.extend(b"IHAVEOPT");
                message.extend([0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 1, self.export, 0, 0]);
                self.stage = Stage::Choosing;
            }
            Stage::Choosing if self.received.ends_with(&[0, 0, 0, ACK, 0, 0, 0, 0]) => {
                self.received.clear();
                (0..DEPTH).for_each(|_| message.extend(read()));
                self.stage = Stage::Reading;
            }
            Stage::Reading => {
                let replies = self.received.len() / REPLY;
                self.received.drain(..replies * REPLY);
                self.served += replies as u64;
                (0..replies).for_each(|_| message.extend(read()));
            }
            _ => {}
        }
        if !message.is_empty() {
            self.sends.push_back((at, message));
        }
    }
}

/// A read of the first block.
fn read() -> Vec<u8> {
    let mut read = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0];
    read.extend(COOKIE);
    read.extend(0_u64.to_be_bytes());
    read.extend(512_u32.to_be_bytes());
    read
}

/// A connection of a client. A system call on it takes 3 µs.
struct Wire {
    client: Rc<RefCell<Client>>,
    time: Time,
}

fn spend(time: &Time, duration: Duration) {
    time.set(time.get() + duration);
}

impl Stream for Wire {
    fn keep_alive(&self) -> Result<()> {
        Ok(())
    }

    fn limit_unsent(&self, _: u32) -> Result<()> {
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        spend(&self.time, US * 3);
        match self.client.borrow_mut().arrived.read(buffer)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.write_vectored(&[std::io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[std::io::IoSlice<'_>]) -> Result<usize> {
        spend(&self.time, US * 3);
        let mut client = self.client.borrow_mut();
        for slice in slices {
            client.received.extend(&**slice);
        }
        client.answer(self.time.get());
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A listener to which all clients connect.
struct Queue(RefCell<VecDeque<Wire>>);

impl crate::frontend::listener::Accept for Queue {
    type Stream = Wire;

    fn accept(&self) -> Result<Socket<Wire>> {
        let wire = self.0.borrow_mut().pop_front().ok_or(ErrorKind::WouldBlock)?;
        let peer = Peer::Tcp(SocketAddr::from(([192, 0, 2, 7], 40_000)));
        Ok(Socket::new(wire, peer, self.address().transpose()?))
    }

    fn address(&self) -> Option<Result<SocketAddr>> {
        Some(Ok(SocketAddr::from(([192, 0, 2, 1], 10_809))))
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

/// Asking for events takes 3 µs. Two signals come at the end.
struct Thread {
    time: Time,
    timer: Option<Instant>,
    end: Instant,
    clients: Vec<Rc<RefCell<Client>>>,
    watched: usize,
}

impl Thread {
    /// The events of bytes that have arrived.
    fn arrivals(&self, events: &mut Vec<Event>) {
        let now = self.time.get();
        for client in &self.clients {
            let client = &mut *client.borrow_mut();
            let Some(index) = client.index else { continue };
            let before = client.arrived.len();
            while let Some((_, message)) = client.sends.pop_front_if(|(at, _)| *at <= now) {
                client.arrived.extend(message);
            }
            if client.arrived.len() > before {
                let readiness = Readiness { readable: true, writable: false, ended: false };
                events.push(Event::Connection(index, readiness));
            }
        }
    }
}

impl Kernel for Thread {
    type Stream = Wire;
    type Listener = Queue;
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
        spend(&self.time, US * 3);
        self.arrivals(events);
        if let (Sleep::Until(at), true) = (sleep, events.is_empty()) {
            let sends =
                self.clients.iter().filter_map(|client| Some(client.borrow().sends.front()?.0));
            let wake =
                [at, self.timer.take(), Some(self.end)].into_iter().flatten().chain(sends).min();
            self.time.set(self.time.get().max(wake.expect("there is an end")));
            self.arrivals(events);
        }
        if self.time.get() >= self.end {
            events.push(Event::Stop(2));
        }
        Ok(())
    }

    fn watch(&mut self, _: &mut Socket<Wire>, index: usize) -> Result<()> {
        self.clients[self.watched].borrow_mut().index = Some(index);
        self.watched += 1;
        Ok(())
    }
}

/// A disk of which each operation takes 14 µs of the thread.
struct Costly {
    disk: Disk,
    time: Time,
}

impl Driver for Costly {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn submit(&mut self, file: RawFd, io: Io) {
        spend(&self.time, US * 14);
        self.disk.submit(file, io);
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> bool {
        self.disk.reap(done)
    }
}

/// Serves a client of each weight for `duration`. Returns how many requests of each were served.
fn serve_weights(test: &str, weights: &[u32], duration: Duration) -> Vec<u64> {
    let names: Vec<String> = (0..weights.len()).map(|n| format!("{n}")).collect();
    let file = |name: &String| FileStore {
        name: name.clone(),
        path: std::env::temp_dir().join(format!("weir-{test}-{name}-{}", std::process::id())),
        backend: None,
        size: Some(1 << 20),
        io: IoMode::Buffered,
    };
    let files: Vec<FileStore> = names.iter().map(file).collect();
    let mut config = config(vec![Where::File(files[0].clone())]);
    let volume = |(index, file): (usize, &FileStore)| {
        let mut volume = config.volumes[0].clone();
        volume.stores = vec![Where::File(file.clone())];
        (volume.name, volume.tenant) = (file.name.clone(), index);
        volume
    };
    config.volumes = files.iter().enumerate().map(volume).collect();
    config.tenants =
        names.iter().map(|name| Tenant { name: name.clone(), initiators: None }).collect();
    let weight = |&weight: &u32| Weight::from_1024ths(weight * 1_024).expect("not zero");
    config.shares = Shares { tenants: weights.iter().map(weight).collect(), ..Shares::default() };
    config.nbd.max_connections = 10;
    let export = |(volume, name): (usize, &String)| Export { name: name.clone(), volume };
    config.nbd.exports = names.iter().enumerate().map(export).collect();
    let open = |(volume, file): (&crate::config::Volume, &FileStore)| {
        let backing = Backing::open(volume, file).expect("a new file");
        std::fs::remove_file(&file.path).expect("it was just made");
        Store::File(backing)
    };
    let stores: Vec<Store> = config.volumes.iter().zip(&files).map(open).collect();
    let plan = plan::plan(&config, &stores);

    let time: Time = Rc::default();
    let clients: Vec<_> =
        (0..weights.len()).map(|n| Rc::new(RefCell::new(Client::new(b'0' + n as u8)))).collect();
    let wire = |client: &Rc<RefCell<Client>>| Wire { client: client.clone(), time: time.clone() };
    let queue = Queue(RefCell::new(clients.iter().map(wire).collect()));
    let kernel = Thread {
        time: time.clone(),
        timer: None,
        end: Instant::ZERO + duration,
        clients: clients.clone(),
        watched: 0,
    };
    let helpers: [Box<dyn Blocking>; 2] = [Box::new(NoCalls), Box::new(NoCalls)];
    let none = weights.iter().map(|_| None).collect();
    let cache = CacheMemory::new(&plan.cache, weights.iter().map(|_| None).collect(), none);
    let persisted = weights.iter().map(|_| PersistedState::default()).collect();
    let upstreams = Upstreams::new(&[], 0, NoNetwork, Box::new(Zeroes));
    let disk = Costly { disk: Disk::default(), time };
    let parts = Parts {
        kernel,
        listeners: vec![Listener::new(Protocol::Nbd, None, queue)],
        tls: None,
        control: None,
        http: None,
        isns: None,
        metrics: Arc::new(Metrics::new(0)),
        engine: CommandEngine::new(&config, stores, persisted, cache, helpers),
        storage: Storage::new(Box::new(disk), upstreams),
        random: Box::new(Zeroes),
        service: Service::none(),
    };
    let mut reader = crate::testing::NoReader;
    let mut gateway = Gateway::new(&config, parts, &mut reader);
    run(&mut Pipeline::new(&plan, ()), &mut gateway);
    drop(gateway);
    clients.iter().map(|client| client.borrow().served).collect()
}

/// Three hosts of weights 4, 2 and 1 get 57.1, 28.6 and 14.3 % of a thread that is the bottleneck, although their
/// commands wait in sockets; all together get at least 97 % of what three hosts of equal weights get.
#[test]
fn weights_hold_if_the_thread_is_the_bottleneck() {
    let second = Duration::from_secs(1);
    let served = serve_weights("weights", &[4, 2, 1], second);
    let all: u64 = served.iter().sum();
    for (served, wanted) in served.iter().zip([571, 286, 143]) {
        let share = served * 1_000 / all;
        assert!(share.abs_diff(wanted) <= 10, "{share} per mill, not {wanted}");
    }
    let equal = serve_weights("equal", &[1, 1, 1], second);
    let equal_all: u64 = equal.iter().sum();
    assert!(all * 100 >= equal_all * 97, "{all} of {equal_all}");
    for served in equal {
        assert!((served * 300).abs_diff(equal_all * 100) <= equal_all, "{served} of {equal_all}");
    }
}

/// Bytes of the greeting, and of a reply with its data.
const GREETING: usize = 18;
const REPLY: usize = 16 + 512;
