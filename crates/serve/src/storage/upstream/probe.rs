//! Probes a logical unit on each new session: its kind, size, identity, limits and ALUA state.
//!
//! One question after another, each with a bounded answer. What a target cannot answer has a default that is
//! safe: a cache that must be flushed, no FUA, no thin provisioning, no limits.

use super::cdb::{self, Cdb};
use super::sense::{CHECK_CONDITION, Sense, Verdict, judge};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use thiserror::Error;
use weir_flow::path::Access;

/// What a logical unit is, as one of its paths says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes in a logical block.
    pub(crate) block_size: u32,
    /// Number of blocks.
    pub(crate) blocks: u64,
    /// Its worldwide name.
    pub(crate) identity: Option<Identity>,
    /// It has a volatile write cache.
    pub(crate) write_cache: bool,
    /// A write can be made durable by itself.
    pub(crate) fua: bool,
    /// It refuses writes.
    pub(crate) read_only: bool,
    /// Blocks that are given back read as zeroes.
    pub(crate) zeroes: bool,
    /// WRITE SAME (16) gives blocks back.
    pub(crate) unmaps_by_write_same: bool,
    /// UNMAP gives blocks back; the most blocks of one command.
    pub(crate) unmap_blocks: Option<u32>,
    /// UNMAP gives back whole multiples of the first number of blocks, counted from the second.
    pub(crate) granularity: (u32, u32),
    /// The most blocks of one READ or WRITE; 0: any.
    pub(crate) max_blocks: u32,
    /// The most blocks of one WRITE SAME; 0: any.
    pub(crate) max_write_same: u64,
    /// The ALUA state of the path.
    pub(crate) access: Access,
    /// Vendor and product, for the log.
    pub(crate) product: String,
    /// The target reports the ALUA state of its paths.
    pub(crate) tpgs: bool,
    /// The target port group of this path.
    pub(crate) port_group: Option<u16>,
}

impl Facts {
    /// A unit that has said nothing but its size.
    pub(super) const fn simple(block_size: u32, blocks: u64) -> Self {
        Self {
            block_size,
            blocks,
            identity: None,
            write_cache: true,
            fua: false,
            read_only: false,
            zeroes: false,
            unmaps_by_write_same: false,
            unmap_blocks: None,
            granularity: (1, 0),
            max_blocks: 0,
            max_write_same: 0,
            access: Access::Optimized,
            product: String::new(),
            tpgs: false,
            port_group: None,
        }
    }

    /// Bytes of the unit.
    pub(crate) const fn capacity(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size as u64)
    }

    /// Whether blocks can be given back, and read as zeroes then.
    pub(super) const fn is_thin(&self) -> bool {
        self.zeroes && (self.unmaps_by_write_same || self.unmap_blocks.is_some())
    }

    /// Compares what another path says with this: it must be the same unit, which may have grown. True if it has;
    /// what is different otherwise. `known`: where this is known from.
    pub(super) fn agree(&mut self, other: &Self, known: &str) -> Result<bool, String> {
        let name = |facts: &Self| {
            facts.identity.as_ref().map_or_else(|| String::from("no name"), ToString::to_string)
        };
        let different = |what, here: String, there: String| {
            Err(format!("its {what} is {here}, {known} {there}"))
        };
        if self.identity != other.identity {
            return different("name", name(other), name(self));
        }
        if self.block_size != other.block_size {
            let sizes = (other.block_size.to_string(), self.block_size.to_string());
            return different("block size", sizes.0, sizes.1);
        }
        if other.blocks < self.blocks || other.blocks > self.blocks && other.identity.is_none() {
            let sizes = (other.blocks.to_string(), self.blocks.to_string());
            return different("number of blocks", sizes.0, sizes.1);
        }
        let grown = other.blocks > self.blocks;
        self.blocks = other.blocks;
        Ok(grown)
    }
}

/// The worldwide name of a logical unit: the type and the bytes of a designator (SPC-4, 7.8.6).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    kind: u8,
    bytes: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            2 => "eui.",
            3 => "naa.",
            _ => {
                let text = String::from_utf8_lossy(&self.bytes);
                return write!(f, "`{}`", text.trim().escape_debug());
            }
        };
        f.write_str(prefix)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a session is of no use although its login was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unfit {
    /// The target does not have the unit.
    #[error("the target has no LUN {lun}; {}", has(.found))]
    NoUnit {
        /// The number that was asked for.
        lun: u64,
        /// Those that it has.
        found: Vec<u64>,
    },
    /// Not a disk.
    #[error("the unit is no disk: its device type is {0:#04x}")]
    NoDisk(u8),
    /// A question that every disk answers was refused.
    #[error("it does not answer {question}: {sense}")]
    Refused {
        /// What was asked.
        question: &'static str,
        /// What it said.
        sense: String,
    },
    /// An invalid answer.
    #[error("its response to {0} is invalid")]
    Nonsense(&'static str),
    /// It defers a question again and again.
    #[error("it is never ready: {0}")]
    NeverReady(String),
}

fn has(found: &[u64]) -> String {
    match found {
        [] => String::from("it shows this initiator none"),
        some => {
            let some: Vec<_> = some.iter().take(16).map(u64::to_string).collect();
            format!("it has {}", some.join(", "))
        }
    }
}

/// A question to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The unit that is asked; LUN 0 for what the target itself knows.
    pub(crate) of_unit: bool,
    /// The command.
    pub(crate) cdb: Cdb,
    /// The most bytes of the answer.
    pub(crate) room: u32,
}

/// The questions of one session.
#[derive(Debug)]
pub(crate) struct Probe {
    lun: u64,
    step: Step,
    facts: Facts,
    pages: Vec<u8>,
    /// Repetitions of the step.
    again: u32,
    /// Only what may change while a session lasts is asked.
    brief: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ready,
    Luns,
    Standard,
    Pages,
    Identity,
    Limits,
    Thin,
    Capacity,
    ShortCapacity,
    Caching,
    PortGroups,
    Done,
}

impl Probe {
    /// All questions about a unit.
    pub(crate) fn new(lun: u64) -> Self {
        let facts = Facts::simple(0, 0);
        Self { lun, step: Step::Ready, facts, pages: Vec::new(), again: 0, brief: false }
    }

    /// Asks again what may change while a session lasts: the size and the ALUA state.
    pub(crate) fn again(lun: u64, facts: &Facts) -> Self {
        let facts = Facts { access: Access::Optimized, ..facts.clone() };
        Self { lun, step: Step::Ready, facts, pages: Vec::new(), again: 0, brief: true }
    }

    /// What to ask next; `None` when all is known.
    pub(crate) fn question(&self) -> Option<Question> {
        let (of_unit, cdb, room) = match self.step {
            Step::Ready => (true, cdb::TEST_UNIT_READY, 0),
            Step::Luns => (false, cdb::report_luns(ROOM), ROOM),
            Step::Standard => (true, cdb::inquiry(None, 96), 96),
            Step::Pages => (true, cdb::inquiry(Some(0x00), 255), 255),
            Step::Identity => (true, cdb::inquiry(Some(0x83), ROOM as u16), ROOM),
            Step::Limits => (true, cdb::inquiry(Some(0xb0), 64), 64),
            Step::Thin => (true, cdb::inquiry(Some(0xb2), 64), 64),
            Step::Capacity => (true, cdb::read_capacity_16(32), 32),
            Step::ShortCapacity => (true, cdb::read_capacity_10(), 8),
            Step::Caching => (true, cdb::mode_sense_caching(64), 64),
            Step::PortGroups => (true, cdb::report_target_port_groups(ROOM), ROOM),
            Step::Done => return None,
        };
        Some(Question { of_unit, cdb, room })
    }

    /// What was found out.
    pub(crate) fn into_facts(self) -> Facts {
        self.facts
    }

    /// Takes the answer to the last question.
    pub(crate) fn answered(
        &mut self,
        status: u8,
        sense: Sense,
        answer: &[u8],
    ) -> Result<(), Unfit> {
        match judge(status, sense, false) {
            Verdict::Good => {
                self.again = 0;
                self.step = self.take(answer)?;
                Ok(())
            }
            Verdict::Again(_) | Verdict::Later => {
                self.again += 1;
                match self.again {
                    0..=AGAIN_MAX => Ok(()),
                    _ => Err(Unfit::NeverReady(sense.to_string())),
                }
            }
            // INQUIRY and its like are answered all the same (SPC-4, 5.15.2.4.4).
            Verdict::NotHere(access) => {
                self.facts.access = access;
                self.step = self.without(status, sense)?;
                Ok(())
            }
            Verdict::Failed(_) | Verdict::Lost => {
                self.again = 0;
                self.step = self.without(status, sense)?;
                Ok(())
            }
        }
    }

    /// What follows when a question was refused.
    fn without(&self, status: u8, sense: Sense) -> Result<Step, Unfit> {
        let refused = |question| {
            let sense = match status {
                CHECK_CONDITION => sense.to_string(),
                other => format!("status {other:#04x}"),
            };
            Err(Unfit::Refused { question, sense })
        };
        match self.step {
            // The next answers say better that a unit does not exist or is not ready.
            Step::Ready if sense.key == 5 || self.facts.access != Access::Optimized => {
                Ok(if self.brief { Step::Capacity } else { Step::Luns })
            }
            Step::Ready => refused("TEST UNIT READY"),
            Step::Luns => Ok(Step::Standard),
            Step::Standard => refused("INQUIRY"),
            Step::Pages => Ok(Step::Capacity),
            Step::Identity => Ok(self.after_page(0x83)),
            Step::Limits => Ok(self.after_page(0xb0)),
            Step::Thin => Ok(self.after_page(0xb2)),
            Step::Capacity => Ok(Step::ShortCapacity),
            Step::ShortCapacity => refused("READ CAPACITY"),
            Step::Caching => Ok(self.after_caching()),
            Step::PortGroups | Step::Done => Ok(Step::Done),
        }
    }

    /// The next page behind this one that the unit has.
    fn after_page(&self, page: u8) -> Step {
        let has = |wanted: u8| page < wanted && self.pages.contains(&wanted);
        if has(0x83) {
            Step::Identity
        } else if has(0xb0) {
            Step::Limits
        } else if has(0xb2) {
            Step::Thin
        } else {
            Step::Capacity
        }
    }

    const fn after_caching(&self) -> Step {
        if self.facts.tpgs && self.facts.port_group.is_some() {
            Step::PortGroups
        } else {
            Step::Done
        }
    }

    /// Takes what was answered; the next step.
    fn take(&mut self, answer: &[u8]) -> Result<Step, Unfit> {
        let facts = &mut self.facts;
        let word = |at: usize| be(answer, at, 4) as u32;
        match self.step {
            Step::Ready if self.brief => Ok(Step::Capacity),
            Step::Ready => Ok(Step::Luns),
            Step::Luns => {
                let length = (be(answer, 0, 4) as usize).min(answer.len().saturating_sub(8));
                let entries = answer.get(8..8 + length).unwrap_or(&[]).chunks_exact(8);
                let found: Vec<u64> = entries.map(lun_of).collect();
                // An answer that was cut off may have left it out.
                let whole = be(answer, 0, 4) as usize <= length;
                if whole && !found.contains(&self.lun) {
                    return Err(Unfit::NoUnit { lun: self.lun, found });
                }
                Ok(Step::Standard)
            }
            Step::Standard => {
                let [first, .., _] = *answer else { return Err(Unfit::Nonsense("INQUIRY")) };
                match (first >> 5, first & 0x1f) {
                    (0, 0) => {}
                    (0, kind) => return Err(Unfit::NoDisk(kind)),
                    _ => return Err(Unfit::NoUnit { lun: self.lun, found: Vec::new() }),
                }
                let text = |range: Range<usize>| {
                    answer.get(range).unwrap_or_default().escape_ascii().to_string()
                };
                facts.product = format!("{} {}", text(8..16).trim(), text(16..32).trim());
                facts.tpgs = answer.get(5).is_some_and(|byte| byte & 0x30 != 0);
                Ok(Step::Pages)
            }
            Step::Pages => {
                let length = be(answer, 2, 2) as usize;
                self.pages = answer.iter().skip(4).take(length).copied().collect();
                Ok(self.after_page(0))
            }
            Step::Identity => {
                (facts.identity, facts.port_group) = designators(answer);
                Ok(self.after_page(0x83))
            }
            Step::Limits => {
                facts.max_blocks = word(8);
                facts.unmap_blocks = Some(word(20)).filter(|&blocks| blocks > 0);
                let alignment = word(32);
                let alignment = if alignment >> 31 == 1 { alignment & 0x7fff_ffff } else { 0 };
                facts.granularity = (word(28).max(1), alignment);
                facts.max_write_same = be(answer, 36, 8);
                Ok(self.after_page(0xb0))
            }
            Step::Thin => {
                let flags = answer.get(5).copied().unwrap_or(0);
                facts.zeroes = flags & 0x04 != 0;
                facts.unmaps_by_write_same = flags & 0x40 != 0;
                if flags & 0x80 == 0 {
                    facts.unmap_blocks = None;
                }
                Ok(self.after_page(0xb2))
            }
            Step::Capacity => {
                let last = be(answer, 0, 8);
                self.measured(answer.len() >= 12, last, word(8))
            }
            Step::ShortCapacity => self.measured(answer.len() >= 8, be(answer, 0, 4), word(4)),
            Step::Caching => {
                let device = answer.get(2).copied().unwrap_or(0);
                facts.read_only = device & 0x80 != 0;
                let page = answer.get(4 + answer.get(3).map_or(0, |&n| usize::from(n))..);
                if let Some([code, _, flags, ..]) = page
                    && code & 0x3f == 0x08
                {
                    facts.write_cache = flags & 0x04 != 0;
                    facts.fua = device & 0x10 != 0;
                }
                Ok(self.after_caching())
            }
            Step::PortGroups => {
                if let Some(access) = facts.port_group.and_then(|own| access_of(answer, own)) {
                    facts.access = access;
                }
                Ok(Step::Done)
            }
            Step::Done => Ok(Step::Done),
        }
    }

    /// A size that the unit has reported.
    fn measured(&mut self, whole: bool, last: u64, block_size: u32) -> Result<Step, Unfit> {
        let nonsense = Err(Unfit::Nonsense("READ CAPACITY"));
        let sizes = BLOCK_MIN..=BLOCK_MAX;
        if !whole || !block_size.is_power_of_two() || !sizes.contains(&block_size) {
            return nonsense;
        }
        let Some(blocks) = last.checked_add(1) else { return nonsense };
        if blocks.checked_mul(block_size.into()).is_none() {
            return nonsense;
        }
        (self.facts.blocks, self.facts.block_size) = (blocks, block_size);
        Ok(Step::Caching)
    }
}

/// A big-endian number of an answer; what is cut off is zero.
fn be(answer: &[u8], at: usize, length: usize) -> u64 {
    let byte = |index| u64::from(answer.get(index).copied().unwrap_or(0));
    (at..at + length).fold(0, |number, index| number << 8 | byte(index))
}

/// The number of a unit, single level, peripheral or flat addressing (SAM-5, 4.7).
fn lun_of(entry: &[u8]) -> u64 {
    let number = be(entry, 0, 2);
    match (number >> 14, be(entry, 2, 6)) {
        (0 | 1, 0) => number & 0x3fff,
        _ => be(entry, 0, 8),
    }
}

/// The name of the unit and the port group of the path, in page 83h (SPC-4, 7.8.6).
fn designators(page: &[u8]) -> (Option<Identity>, Option<u16>) {
    let length = be(page, 2, 2) as usize;
    let mut rest = page.get(4..).unwrap_or(&[]);
    rest = &rest[..rest.len().min(length)];
    let (mut identity, mut group): (Option<Identity>, _) = (None, None);
    while let [_, kinds, _, length, ..] = *rest {
        let end = 4 + usize::from(length);
        let Some(bytes) = rest.get(4..end) else { break };
        match (kinds >> 4 & 3, kinds & 0xf) {
            (0, kind @ (1..=3 | 8)) => {
                let better = |known: &Identity| rank(kind) > rank(known.kind);
                if !bytes.is_empty() && identity.as_ref().is_none_or(better) {
                    identity = Some(Identity { kind, bytes: bytes.to_vec() });
                }
            }
            (1, 5) => group = Some(be(bytes, 2, 2) as u16),
            _ => {}
        }
        rest = &rest[end..];
    }
    (identity, group)
}

/// Which designator names a unit best.
const fn rank(kind: u8) -> u8 {
    match kind {
        3 => 4,
        2 => 3,
        8 => 2,
        _ => 1,
    }
}

/// How a port group may be used (SPC-4, 6.37).
fn access_of(answer: &[u8], own: u16) -> Option<Access> {
    let length = be(answer, 0, 4) as usize;
    let mut rest = answer.get(4..).unwrap_or(&[]);
    rest = &rest[..rest.len().min(length)];
    while let [state, _, high, low, _, _, _, ports, ..] = *rest {
        if u16::from_be_bytes([high, low]) == own {
            return Some(match state & 0xf {
                0x0 => Access::Optimized,
                0x1 => Access::NonOptimized,
                0x2 => Access::Standby,
                0xf => Access::Transitioning,
                _ => Access::Unavailable,
            });
        }
        rest = rest.get(8 + 4 * usize::from(ports)..)?;
    }
    None
}

/// Room for answers of variable length, in bytes: 500 LUNs, or many designators.
const ROOM: u32 = 4_096;

/// How often a question is asked again because of unit attentions: a target has a handful after a login.
const AGAIN_MAX: u32 = 16;

/// Block sizes that make sense.
const BLOCK_MIN: u32 = 512;
const BLOCK_MAX: u32 = 64 << 10;

#[cfg(test)]
mod tests;
