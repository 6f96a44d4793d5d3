//! The commands of one queue that have no complete response.

use super::pdu::Sqe;
use crate::outbox::Outbox;
use crate::slots::Slots;

use super::event::Completion;

/// A command that has no response yet.
#[derive(Debug)]
pub(super) struct Command {
    /// The host's name for it, which the response repeats.
    pub(super) cid: u16,
    /// Which of all commands of the connection it is.
    pub(super) number: u64,
    /// Whether the name belongs to this command: not if another one with it was there before.
    pub(super) owns_cid: bool,
    /// Data to the host, in bytes; zero without.
    pub(super) to_host: u32,
    /// Bytes of it that are in the outbox.
    pub(super) sent: u32,
    /// Data from the host that is asked for: in the capsule, or granted by an R2T. In bytes.
    pub(super) wanted: u32,
    /// Bytes of it that have come.
    pub(super) received: u32,
    /// An R2T was sent.
    pub(super) granted: bool,
    /// A PDU with its data has not been taken off the stream completely, digest included.
    pub(super) on_stream: bool,
    /// A data digest was wrong.
    pub(super) is_damaged: bool,
    /// The response, which waits until the data that the host still sends has come.
    pub(super) held: Option<Completion>,
    /// The data is collected.
    pub(super) gather: Option<Box<Gather>>,
}

/// Data that is collected for a command.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) sqe: Sqe,
    pub(super) data: Vec<u8>,
    /// Bytes that are kept; what the host sends beyond them is dropped.
    pub(super) limit: usize,
}

impl Command {
    pub(super) const fn new(cid: u16) -> Self {
        Self {
            cid,
            number: 0,
            owns_cid: true,
            to_host: 0,
            sent: 0,
            wanted: 0,
            received: 0,
            granted: false,
            on_stream: false,
            is_damaged: false,
            held: None,
            gather: None,
        }
    }

    /// Whether the host still sends data of this command.
    pub(super) const fn is_receiving(&self) -> bool {
        self.on_stream || self.granted && self.received < self.wanted
    }
}

/// The commands in their slots, and the command identifiers that are in use.
#[derive(Debug, Default)]
pub(super) struct Commands {
    slots: Slots<Command>,
    /// A bit for each command identifier that is in use; empty before the first command.
    cids: Vec<u64>,
    /// Commands that were taken so far.
    count: u64,
}

impl Commands {
    /// Whether a command can be taken, if the host may have `depth` unanswered ones. As many more may have
    /// responses that are not written.
    pub(super) fn has_room<P: AsRef<[u8]>>(&self, depth: u32, outbox: &Outbox<P>) -> bool {
        self.slots.outstanding() < depth && self.slots.has_room(2 * depth, outbox)
    }

    /// Puts a command into a slot. There must be room.
    pub(super) fn take<P: AsRef<[u8]>>(&mut self, mut command: Command, outbox: &Outbox<P>) -> u32 {
        if self.cids.is_empty() {
            self.cids = vec![0; CID_WORDS];
        }
        let (word, bit) = place(command.cid);
        self.count += 1;
        command.number = self.count;
        command.owns_cid = self.cids[word] & bit == 0;
        self.cids[word] |= bit;
        self.slots.take(command, outbox)
    }

    /// Ends the command in a slot, whose response must be put into the outbox at once.
    ///
    /// Panics if there is none.
    pub(super) fn end(&mut self, slot: u32) -> Command {
        let command = self.slots.end(slot);
        self.release(&command);
        command
    }

    /// Ends the command in a slot of a connection that sends no more responses.
    ///
    /// Panics if there is none.
    pub(super) fn forget(&mut self, slot: u32) {
        let command = self.slots.forget(slot);
        self.release(&command);
    }

    /// The identifier of a command can be used again.
    fn release(&mut self, command: &Command) {
        if command.owns_cid {
            let (word, bit) = place(command.cid);
            self.cids[word] &= !bit;
        }
    }

    /// The command in a slot, if there is one.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Command> {
        self.slots.get_mut(slot)
    }

    /// The command in a slot, if there is one.
    pub(super) fn get(&self, slot: u32) -> Option<&Command> {
        self.slots.get(slot)
    }

    /// The slots with a command, in ascending order.
    pub(super) fn taken(&self) -> impl Iterator<Item = (u32, &Command)> {
        self.slots.taken()
    }

    /// Commands that have no response yet.
    pub(super) const fn outstanding(&self) -> u32 {
        self.slots.outstanding()
    }
}

/// Word and bit of a command identifier.
const fn place(cid: u16) -> (usize, u64) {
    (cid as usize / 64, 1 << (cid % 64))
}

/// Words that hold a bit for each command identifier.
const CID_WORDS: usize = (1 << 16) / 64;
