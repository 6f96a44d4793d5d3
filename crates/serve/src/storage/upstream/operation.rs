//! One operation on a path, as the SCSI commands that it needs.
//!
//! The commands of one operation are sent one after another: pieces of what one command may move, and a
//! SYNCHRONIZE CACHE behind a durable write where FUA is not to be had.

use super::cdb::{self, Cdb, Form};
use super::payload::Payload;
use super::probe::Facts;
use crate::buffer::Use;
use crate::storage::io::{Io, Work};
use std::ops::Range;

/// The commands that a unit takes, as far as is known: commands that it refuses are not sent again.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(super) facts: Facts,
    /// The form of READ and WRITE.
    form: Form,
    /// The form of SYNCHRONIZE CACHE.
    synchronize: Form,
    write_same: bool,
    /// A buffer that reads as zeroes.
    zeroes: Payload,
}

/// A command to be sent.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) cdb: Cdb,
    pub(super) data: Data,
}

/// The data of a command.
#[derive(Debug)]
pub(super) enum Data {
    None,
    /// This number of bytes is read.
    Read(u32),
    /// These bytes are written.
    Write(Payload, Range<usize>),
}

/// An operation on a path.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) io: Io,
    /// Bytes that are done.
    done: u64,
    /// Everything is written, and is to be made durable.
    flushes: bool,
    /// The command in flight, if there is one.
    kind: Kind,
    /// Bytes of it.
    piece: u64,
    /// Bytes that were received for it.
    pub(super) came: u32,
    /// How often the target has deferred the command.
    pub(super) deferrals: u32,
    /// Its bytes that an outbox may refer to.
    sent: Vec<Payload>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write { fua: bool },
    Synchronize,
    WriteSame { unmap: bool },
    Unmap,
    WriteZeroes,
}

impl Terms {
    pub(super) fn new(facts: Facts) -> Self {
        let zeroes = Payload::owned(vec![0; ZEROES].into());
        Self { facts, form: Form::Long, synchronize: Form::Long, write_same: true, zeroes }
    }

    /// Whether a volume that is served by these terms can be on the unit with these facts; what is different
    /// otherwise. The identity and the size are compared elsewhere.
    pub(super) fn can_become(&self, facts: &Facts) -> Result<(), String> {
        let start_again = "start the gateway again to use it so";
        if facts.write_cache && !self.facts.write_cache {
            return Err(format!(
                "its write cache is on, at the last start it was off; {start_again}"
            ));
        }
        let (most, before) = (Self::new(facts.clone()).max_transfer(), self.max_transfer());
        if most < before {
            let change = format!("takes {most} bytes in a command, at the last start {before}");
            return Err(format!("it {change}; {start_again}"));
        }
        Ok(())
    }

    /// SYNCHRONIZE CACHE in the form that the unit takes.
    pub(super) fn synchronize(&self) -> Cdb {
        cdb::synchronize(self.synchronize)
    }

    /// The most bytes of one READ or WRITE.
    pub(super) fn max_transfer(&self) -> u64 {
        let block = u64::from(self.facts.block_size);
        let blocks = match self.form {
            Form::Long => u64::from(u32::MAX),
            Form::Short => u64::from(u16::MAX),
        };
        let blocks = match self.facts.max_blocks {
            0 => blocks,
            most => blocks.min(most.into()),
        };
        (blocks * block).min(COMMAND_MAX)
    }
}

impl Operation {
    /// Takes an operation. Its buffer is lent to it until it is given back.
    pub(super) fn new(io: Io) -> Self {
        if let Work::Read { buffer, at } = &io.work {
            buffer.lend(*at, io.length as usize, Use::Fill);
        }
        let kind = Kind::Synchronize;
        Self {
            io,
            done: 0,
            flushes: false,
            kind,
            piece: 0,
            came: 0,
            deferrals: 0,
            sent: Vec::new(),
        }
    }

    /// Gives the buffer back.
    pub(super) fn into_io(self) -> Io {
        if let Work::Read { buffer, .. } = &self.io.work {
            buffer.take_back(Use::Fill);
        }
        self.io
    }

    /// Whether it changes what later reads find, so that it must not be taken for dead before it is.
    pub(super) const fn changes(&self) -> bool {
        !matches!(self.io.work, Work::Read { .. } | Work::Sync)
    }

    /// Notes bytes that are given to an outbox.
    pub(super) fn sends(&mut self, payload: Payload) {
        self.sent.retain(|payload| !payload.is_free());
        self.sent.push(payload);
    }

    /// Whether no outbox refers to its bytes any more. A target may answer before it has them all.
    pub(super) fn is_sent(&self) -> bool {
        self.sent.iter().all(Payload::is_free)
    }

    /// The next command; `None` when all is done.
    pub(super) fn next(&mut self, terms: &Terms) -> Option<Order> {
        let block = u64::from(terms.facts.block_size);
        let left = self.io.length - self.done;
        let lba = (self.io.offset + self.done) / block;
        self.came = 0;
        if left == 0 {
            let durable = match self.io.work {
                Work::Write { durable, .. } => durable && !terms.facts.fua,
                Work::Sync => true,
                Work::Read { .. } | Work::Discard | Work::Zero => false,
            };
            if !durable || self.flushes || !terms.facts.write_cache {
                return None;
            }
            (self.kind, self.piece) = (Kind::Synchronize, 0);
            return Some(Order { cdb: terms.synchronize(), data: Data::None });
        }
        let piece = left.min(terms.max_transfer());
        let blocks = (piece / block) as u32;
        let (kind, piece, cdb, data) = match &self.io.work {
            Work::Read { .. } => {
                let cdb = cdb::read(terms.form, lba, blocks);
                (Kind::Read, piece, cdb, Data::Read(piece as u32))
            }
            Work::Write { buffer, at, durable } => {
                let fua = *durable && terms.facts.fua && terms.facts.write_cache;
                let at = at + self.done as usize;
                let data = Data::Write(Payload::pooled(buffer.clone()), at..at + piece as usize);
                (Kind::Write { fua }, piece, cdb::write(terms.form, lba, blocks, fua), data)
            }
            Work::Discard => give_back(terms, lba, left / block),
            Work::Zero => zero(terms, lba, left / block),
            Work::Sync => unreachable!("it has no bytes"),
        };
        (self.kind, self.piece) = (kind, piece);
        Some(Order { cdb, data })
    }

    /// The bytes that a read has room for at `offset` of the command in flight; `None` if they are not
    /// what comes next.
    pub(super) fn fill(&mut self, offset: u32, bytes: &[u8]) -> Option<()> {
        let Work::Read { buffer, at } = &self.io.work else { return None };
        let end = u64::from(offset) + bytes.len() as u64;
        if self.kind != Kind::Read || offset != self.came || end > self.piece {
            return None;
        }
        buffer.fill(at + self.done as usize + offset as usize, bytes);
        self.came = end as u32;
        Some(())
    }

    /// Whether a read has all of its bytes.
    pub(super) fn is_whole(&self) -> bool {
        self.kind != Kind::Read || u64::from(self.came) == self.piece
    }

    /// The command in flight was executed.
    pub(super) const fn advance(&mut self) {
        self.deferrals = 0;
        self.done += self.piece;
        self.flushes |= matches!(self.kind, Kind::Synchronize);
        self.piece = 0;
    }

    /// The target does not know the command in flight: whether there is another form of it.
    pub(super) fn reword(&self, terms: &mut Terms) -> bool {
        let short = terms.facts.blocks <= 1 << 32;
        let change = |flag: &mut bool| std::mem::replace(flag, false);
        match self.kind {
            Kind::Write { fua: true } => change(&mut terms.facts.fua),
            Kind::Read | Kind::Write { fua: false } | Kind::WriteZeroes => {
                short && std::mem::replace(&mut terms.form, Form::Short) == Form::Long
            }
            Kind::Synchronize => {
                std::mem::replace(&mut terms.synchronize, Form::Short) == Form::Long
            }
            Kind::WriteSame { unmap: true } => change(&mut terms.facts.unmaps_by_write_same),
            Kind::WriteSame { unmap: false } => change(&mut terms.write_same),
            Kind::Unmap => terms.facts.unmap_blocks.take().is_some(),
        }
    }
}

type Worded = (Kind, u64, Cdb, Data);

/// Gives blocks back so that they read as zeroes, as far as the unit promises that they do; zeroes them
/// otherwise.
fn give_back(terms: &Terms, lba: u64, blocks: u64) -> Worded {
    let Facts { zeroes, unmaps_by_write_same, unmap_blocks, granularity, .. } = terms.facts;
    if zeroes && unmaps_by_write_same && terms.write_same {
        return same(terms, lba, blocks, true);
    }
    // What is less than the unit's own blocks it may leave as it is.
    let (grain, first) = (u64::from(granularity.0), u64::from(granularity.1));
    let whole = |lba: u64| lba % grain == first % grain;
    if let Some(most) = unmap_blocks.filter(|_| zeroes && whole(lba) && whole(lba + blocks)) {
        let most = u64::from(most).min(terms.facts.blocks);
        let most = if most > grain { most - most % grain } else { most };
        if whole(lba + blocks.min(most)) {
            let blocks = blocks.min(most) as u32;
            let list = Payload::owned(cdb::unmap_list(lba, blocks).into());
            let bytes = u64::from(blocks) * u64::from(terms.facts.block_size);
            return (Kind::Unmap, bytes, cdb::unmap(24), Data::Write(list, 0..24));
        }
    }
    zero(terms, lba, blocks)
}

/// Writes zeroes: one block many times, or all of them.
fn zero(terms: &Terms, lba: u64, blocks: u64) -> Worded {
    if terms.write_same {
        return same(terms, lba, blocks, false);
    }
    let block = u64::from(terms.facts.block_size);
    let bytes = (blocks * block).min(terms.max_transfer()).min(ZEROES as u64);
    let cdb = cdb::write(terms.form, lba, (bytes / block) as u32, false);
    (Kind::WriteZeroes, bytes, cdb, Data::Write(terms.zeroes.clone(), 0..bytes as usize))
}

fn same(terms: &Terms, lba: u64, blocks: u64, unmap: bool) -> Worded {
    let block = terms.facts.block_size;
    let most = match terms.facts.max_write_same {
        0 => SAME_MAX,
        most => most.min(SAME_MAX),
    };
    let blocks = blocks.min(most);
    let data = Data::Write(terms.zeroes.clone(), 0..block as usize);
    let bytes = blocks * u64::from(block);
    (Kind::WriteSame { unmap }, bytes, cdb::write_same(lba, blocks as u32, unmap), data)
}

/// The most bytes of one READ or WRITE, whatever the unit takes: what a transfer may be at most.
const COMMAND_MAX: u64 = 8 << 20;

/// The most blocks of one WRITE SAME where the unit names no limit.
const SAME_MAX: u64 = 65_535;

/// Zeroes that are sent at a time where the unit cannot repeat a block, in bytes; the largest block.
const ZEROES: usize = 64 << 10;

#[cfg(test)]
mod tests;
