//! A gateway's shell around one NBD connection, and the client that talks to it: acts on events,
//! takes what the connection sends, and checks what must hold whatever the client does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_wire::nbd::{
    BlockSize, Command, Connection, Error, Event, Export, Exports, Extent, Limits, NEEDED_MAX,
    PeerError, Refusal, Request, Tls,
};

use super::nbd_replies::{Answer, DISCONNECT, Ledger, Sent, WRITE, data_at, told_extents};

/// Bytes that an outbox may hold: 256 KiB of replies, the replies of 16 requests with
/// 1024 extents each, and the list of exports.
const OUTBOX_MAX: usize = (256 + 128 + 16) << 10;
/// Bytes of a request without its payload.
const REQUEST_LENGTH: usize = 28;
/// Bytes of a payload that come at once, if not all do.
const PAYLOAD_PART: usize = 301;
/// Exports by name; only the first two are admitted at once.
pub(crate) const NAMES: [&str; 4] = ["disk", "", "golden", "refused"];

/// What the shell does with the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Answers at once, writes before their data has come.
    AtOnce,
    /// Answers at once with an error.
    Fail,
    /// Leaves them for later.
    Late,
    /// Answers writes in the middle of their data, everything else at once.
    Halfway,
}

/// A request that the shell has not answered.
#[derive(Clone, Copy, Debug)]
struct Open {
    request: Request,
    cookie: Option<u64>,
    /// Write data that has come, in bytes.
    received: u32,
    /// Which request it was, counted from the first one.
    age: u64,
}

/// Client, shell and connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) connection: Connection<&'static [u8]>,
    limits: Limits,
    exports: Vec<Export>,
    /// Bytes are handed over one by one, or in pieces of what the connection needs, or all at once.
    pub(crate) cut: Cut,
    pub(crate) policy: Policy,
    /// What was sent is known request by request.
    pub(crate) is_tracked: bool,
    /// Size of the export in use, in bytes.
    pub(crate) size: u64,
    /// Bytes that have come.
    pending: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
    /// Everything that the connection sent.
    pub(crate) output: Vec<u8>,
    /// How much of it was looked at.
    read: usize,
    pub(crate) ledger: Ledger,
    /// Requests that were sent and of which nothing was heard.
    unheard: VecDeque<Sent>,
    open: BTreeMap<u32, Open>,
    /// Slots that were answered and not written.
    unwritten: BTreeSet<u32>,
    /// The slot of a write that was answered before its data was there.
    early: Option<u32>,
    /// Every request that the shell was asked.
    pub(crate) asked: Vec<Request>,
    is_starting_tls: bool,
    is_encrypted: bool,
    has_left: bool,
    pub(crate) error: Option<PeerError>,
}

/// How the stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Whole,
    AsNeeded,
    SingleBytes,
}

fn exports() -> Vec<Export> {
    let block_size = BlockSize { minimum: 512, preferred: 4096, maximum: 1 << 16 };
    let disk = Export {
        name: NAMES[0].to_owned(),
        description: "a disk".to_owned(),
        size: 1 << 20,
        trim: true,
        block_size,
        ..Export::default()
    };
    let unnamed = Export {
        size: 5000,
        fast_zero: true,
        block_size: BlockSize { minimum: 1, preferred: 512, maximum: 1 << 17 },
        ..Export::default()
    };
    let golden = Export { name: NAMES[2].to_owned(), read_only: true, ..disk.clone() };
    let refused = Export { name: NAMES[3].to_owned(), ..disk.clone() };
    vec![disk, unnamed, golden, refused]
}

impl Client {
    pub(crate) fn new(limits: Limits, cut: Cut) -> Self {
        let exports = exports();
        let shared = Arc::new(Exports::new(exports.clone()).expect("good exports"));
        Self {
            connection: Connection::new(shared, limits),
            limits,
            exports,
            cut,
            policy: Policy::AtOnce,
            is_tracked: true,
            size: 0,
            pending: Vec::new(),
            taken: 0,
            output: Vec::new(),
            read: 0,
            ledger: Ledger::default(),
            unheard: VecDeque::new(),
            open: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            early: None,
            asked: Vec::new(),
            is_starting_tls: false,
            is_encrypted: false,
            has_left: false,
            error: None,
        }
    }

    /// Notes a request that is about to be sent.
    pub(crate) fn expect(&mut self, sent: Sent) {
        if !self.has_left {
            self.unheard.push_back(sent);
            self.ledger.open.insert(sent.cookie, sent);
        }
    }

    /// Sends bytes. Returns whether there is a point in sending more.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let n = match self.cut {
                Cut::Whole => bytes.len(),
                // A payload comes in parts, each of which may reach into what is behind.
                _ if self.connection.needed() == 1 => PAYLOAD_PART,
                Cut::AsNeeded => self.connection.needed().saturating_sub(self.untaken()),
                Cut::SingleBytes => 1,
            };
            let (now, later) = bytes.split_at(n.clamp(1, bytes.len()));
            bytes = later;
            self.pending.drain(..std::mem::take(&mut self.taken));
            self.pending.extend_from_slice(now);
            if let Err(error) = self.pump() {
                assert!(!error.to_string().is_empty());
                assert!(self.connection.wants_close(), "no connection survives an error");
                self.error = Some(error);
                self.drain();
                return false;
            }
            if self.connection.wants_close() {
                return false;
            }
        }
        if std::mem::take(&mut self.is_starting_tls) {
            self.drain();
            self.connection.tls_started();
            self.is_encrypted = true;
            self.ledger.forget();
        }
        if !self.has_left {
            self.pass_refused(|_| false);
        }
        true
    }

    fn untaken(&self) -> usize {
        self.pending.len() - self.taken
    }

    /// Lets the connection take what has come.
    fn pump(&mut self) -> Result<(), PeerError> {
        loop {
            let was_waiting = self.connection.is_waiting() && !self.is_starting_tls;
            let pending = std::mem::take(&mut self.pending);
            let input = &pending[self.taken..];
            let received = self.connection.receive(input)?;
            let (consumed, is_event) = (received.consumed, received.event.is_some());
            assert!(consumed <= input.len(), "{consumed} of {} bytes taken", input.len());
            let is_idle = consumed == 0 && !is_event;
            assert!(is_idle || !was_waiting, "nothing is taken while the connection waits");
            if let Some(event) = received.event {
                self.act(&event);
            }
            self.pending = pending;
            self.taken += consumed;
            self.check();
            if !is_idle {
                continue;
            }
            let there = self.untaken();
            if there == 0 || !self.connection.is_waiting() {
                let needed = self.connection.needed();
                assert!(there == 0 || needed > there, "a step that is there must be taken");
                return Ok(());
            }
            self.make_room();
        }
    }

    /// What is kept is bounded.
    fn check(&mut self) {
        let needed = self.connection.needed();
        assert!(needed <= NEEDED_MAX, "{needed} bytes needed");
        assert!(!self.connection.is_transmission() || needed <= REQUEST_LENGTH);
        let outstanding = self.connection.outstanding();
        // A write that was answered early counts until all of its data has come.
        let most = self.open.len() + usize::from(self.early.is_some());
        assert!((self.open.len()..=most).contains(&(outstanding as usize)), "{outstanding}");
        let slots = self.open.len() + self.unwritten.len();
        assert!(slots <= self.limits.requests as usize, "{slots} slots are taken");
        let owned = self.connection.outbox().owned();
        assert!(owned <= OUTBOX_MAX, "{owned} bytes wait to be written");
    }

    /// Does what lets a connection proceed that waits.
    fn make_room(&mut self) {
        if !self.connection.outbox().is_empty() {
            self.drain();
            return;
        }
        assert!(self.finish_oldest(None), "it waits for no reply");
    }

    fn act(&mut self, event: &Event<'_>) {
        match *event {
            Event::StartTls => {
                assert_ne!(self.limits.tls, Tls::Off);
                self.is_starting_tls = true;
            }
            Event::ExportChosen { index } => {
                let is_open = self.is_encrypted || self.limits.tls != Tls::Required;
                assert!(is_open, "an export without the encryption that is required");
                self.drain();
                if index == 3 {
                    let refusals = [Refusal::Policy, Refusal::Unknown, Refusal::Shutdown];
                    self.connection.export_refused(refusals[self.output.len() % 3]);
                    // Asked for by `NBD_OPT_EXPORT_NAME`, which has no error reply.
                    if self.connection.wants_close() {
                        self.forget_unheard();
                    }
                    return;
                }
                assert_eq!(self.connection.export(), Some(index));
                self.size = self.exports[index].size;
                self.connection.export_admitted();
                assert!(self.connection.is_transmission());
                self.write(usize::MAX);
                self.look(true);
            }
            Event::Request(request) => self.take(request),
            Event::Data { slot, offset, bytes, complete } => {
                let open = self.open.get_mut(&slot).expect("data of a request without an answer");
                assert_eq!(offset, open.received, "data comes in order");
                assert!(!bytes.is_empty());
                if let Some(cookie) = open.cookie {
                    let sent = write_data(cookie, offset, bytes.len() as u32);
                    assert!(*bytes == *sent, "other data was written");
                }
                open.received += bytes.len() as u32;
                let Open { request, received, .. } = *open;
                assert_eq!(complete, received == request.length);
                if self.policy == Policy::Halfway && received > request.length / 2 {
                    self.finish(slot, None, complete);
                }
            }
            Event::Disconnect => {
                self.has_left = true;
                if self.ledger.agreed.is_transmission {
                    self.pass_refused(|sent| sent.kind == DISCONNECT);
                }
                self.forget_unheard();
            }
        }
    }

    /// The connection is about to end: nothing is heard of what comes behind.
    fn forget_unheard(&mut self) {
        for sent in std::mem::take(&mut self.unheard) {
            self.ledger.open.remove(&sent.cookie);
        }
    }

    /// Passes over requests that are refused without asking the shell, up to the first one that
    /// `is_it`; all others must be unsound.
    fn pass_refused(&mut self, is_it: impl Fn(&Sent) -> bool) {
        while self.is_tracked
            && let Some(&sent) = self.unheard.front()
            && !is_it(&sent)
        {
            self.unheard.pop_front();
            let own = self.connection.export().expect("requests come for an export");
            let is_sound = sent.is_sound(&self.exports[own], self.size, self.ledger.agreed, own);
            assert!(!is_sound, "{sent:?} was passed over");
        }
    }

    fn take(&mut self, request: Request) {
        let slot = request.slot;
        assert!(slot < self.limits.requests && !self.open.contains_key(&slot), "slot {slot}");
        assert!(!self.unwritten.contains(&slot), "slot {slot} has a reply that is not written");
        let own = self.connection.export().expect("requests come for an export");
        let cookie = if self.is_tracked {
            let (export, size, agreed) = (self.exports[own].clone(), self.size, self.ledger.agreed);
            self.pass_refused(|sent| sent.is_sound(&export, size, agreed, own));
            let sent = self.unheard.pop_front().expect("a request that was sent");
            assert!(sent.is(&request), "{sent:?} became {request:?}");
            Some(sent.cookie)
        } else {
            None
        };
        let export = &self.exports[own];
        let end = request.offset.checked_add(request.length.into());
        assert!(end.is_some_and(|end| end <= self.size));
        assert!(!(request.command.writes() && export.read_only));
        assert!(!request.fua || request.command.writes());
        let age = self.asked.len() as u64;
        self.asked.push(request);
        self.open.insert(slot, Open { request, cookie, received: 0, age });
        let is_write = request.command == Command::Write;
        match self.policy {
            Policy::AtOnce => self.finish(slot, None, !is_write),
            Policy::Fail => self.finish(slot, Some(Error::Eio), !is_write),
            Policy::Late => {}
            Policy::Halfway if is_write => {}
            Policy::Halfway => self.finish(slot, None, true),
        }
    }

    /// Answers the request in a slot. `is_complete` if all of its data has come.
    fn finish(&mut self, slot: u32, error: Option<Error>, is_complete: bool) {
        let Open { request, cookie, age, .. } = self.open.remove(&slot).expect("a request");
        let length = request.length as usize;
        self.unwritten.insert(slot);
        self.early = (!is_complete).then_some(slot).or(self.early);
        let answer = match (error, request.command) {
            (Some(error), _) => {
                self.connection.respond(slot, Err(error));
                Answer::Error(error as u32)
            }
            (None, Command::Read) => {
                // With some bytes in front that are not to be sent.
                let data = data_at(request.offset.wrapping_sub(3), request.length + 3);
                self.connection.respond_data(slot, data, 3..3 + length);
                Answer::Data(request.offset, request.length)
            }
            (None, Command::BlockStatus { .. }) => {
                let extents = extents(&request, age);
                self.connection.respond_status(slot, &extents);
                Answer::Status(told_extents(&request, &extents))
            }
            (None, _) => {
                self.connection.respond(slot, Ok(()));
                Answer::Done
            }
        };
        if let Some(cookie) = cookie {
            self.ledger.answers.insert(cookie, answer);
        }
    }

    /// Answers the oldest or the newest request. Returns whether there is one.
    fn finish_at(&mut self, error: Option<Error>, is_newest: bool) -> bool {
        let by_age = |one: &&Open| if is_newest { u64::MAX - one.age } else { one.age };
        let Some(&Open { request, received, .. }) = self.open.values().min_by_key(by_age) else {
            return false;
        };
        let is_complete = request.command != Command::Write || received == request.length;
        self.finish(request.slot, error, is_complete);
        self.check();
        true
    }

    pub(crate) fn finish_oldest(&mut self, error: Option<Error>) -> bool {
        self.finish_at(error, false)
    }

    pub(crate) fn finish_newest(&mut self) -> bool {
        self.finish_at(None, true)
    }

    /// Changes the size of the export in use.
    pub(crate) fn resize(&mut self, size: u64) {
        if self.connection.is_transmission() {
            self.size = size;
            self.connection.resize(size);
        }
    }

    /// Writes all that waits and looks at it.
    pub(crate) fn drain(&mut self) {
        self.write(usize::MAX);
        assert!(self.connection.outbox().is_empty() && self.connection.outbox().owned() == 0);
        self.look(false);
    }

    /// Writes `count` bytes of the outbox.
    pub(crate) fn write(&mut self, mut most: usize) {
        let outbox = self.connection.outbox();
        while most > 0 && !outbox.is_empty() {
            let slice = outbox.slices().next().expect("a slice, as something waits");
            assert!(!slice.is_empty());
            let n = slice.len().min(most);
            self.output.extend_from_slice(&slice[..n]);
            let (unwritten, early) = (&mut self.unwritten, &mut self.early);
            outbox.advance(n, |slot| {
                assert!(unwritten.remove(&slot), "slot {slot} was answered and not written");
                early.take_if(|early| *early == slot);
            });
            most -= n;
        }
    }

    /// Takes apart what was written, all of which has left the outbox.
    fn look(&mut self, is_admission: bool) {
        let said = std::mem::replace(&mut self.read, self.output.len());
        // Replies to unknown requests cannot be told apart.
        if self.is_tracked || !self.ledger.agreed.is_transmission {
            self.ledger.read(&self.output[said..], is_admission);
        }
    }

    /// Answers and writes everything. Each request that was sent completely has been answered then.
    pub(crate) fn end(&mut self) {
        while self.finish_oldest(None) {}
        self.drain();
        if self.error.is_none() && self.is_tracked && self.early.is_none() {
            assert!(self.ledger.open.is_empty(), "{:?}", self.ledger.open);
        }
        assert!(!self.has_left || self.connection.is_finished());
    }
}

/// The data of a write from a place on.
fn write_data(cookie: u64, at: u32, length: u32) -> &'static [u8] {
    data_at(cookie.wrapping_mul(31).wrapping_add(at.into()), length)
}

/// A request as bytes, without its payload.
pub(crate) fn encode(sent: &Sent) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&sent.flags.to_be_bytes());
    bytes.extend_from_slice(&sent.kind.to_be_bytes());
    bytes.extend_from_slice(&sent.cookie.to_be_bytes());
    bytes.extend_from_slice(&sent.offset.to_be_bytes());
    bytes.extend_from_slice(&sent.length.to_be_bytes());
    bytes
}

/// The payload of a request.
pub(crate) fn payload(sent: &Sent) -> &'static [u8] {
    write_data(sent.cookie, 0, if sent.kind == WRITE { sent.length } else { 0 })
}

/// What a shell finds out about a range: few extents or many, of one kind or of several, too short
/// or too long.
fn extents(request: &Request, age: u64) -> Vec<Extent> {
    let number = age % 4;
    let (count, length) =
        [(1, request.length), (3, 512), (1500, 16), (2, u32::MAX)][number as usize];
    let one = |at: u32| Extent { length, hole: at % 2 == 1, zero: number == 1 && at > 1 };
    (0..count).map(one).collect()
}
