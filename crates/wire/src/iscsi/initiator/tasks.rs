//! Requests without a response yet, by initiator task tag.

use std::ops::Range;

use super::command::Direction;
use crate::iscsi::pdu::Itt;

/// Bits of a tag that say where its entry is. The others count how often that place was used, so
/// that a response that comes after its request has ended matches none.
const INDEX_BITS: u32 = 11;

/// A command that has no status yet.
#[derive(Clone, Debug)]
pub(super) struct Task<P> {
    pub(super) lun: [u8; 8],
    pub(super) cmd_sn: u32,
    pub(super) data: Direction<P>,
    /// Bytes received; of a write, bytes that are in the outbox or were sent.
    pub(super) moved: u32,
    /// Number of the next Data-In or R2T.
    pub(super) next_sn: u32,
    /// Sequences of Data-Out whose last PDU has not left the outbox.
    pub(super) bursts: u16,
    /// The oldest of them is unsolicited.
    pub(super) unsolicited: bool,
    /// The task management function that will end it.
    pub(super) doomed_by: Option<Itt>,
}

impl<P> Task<P> {
    /// Expected data transfer length, in bytes.
    pub(super) fn expected(&self) -> u32 {
        match &self.data {
            Direction::None => 0,
            Direction::Read(length) => *length,
            Direction::Write(_, Range { start, end }) => (end - start) as u32,
        }
    }
}

/// A request to the target.
#[derive(Clone, Debug)]
pub(super) enum Request<P> {
    Command(Task<P>),
    /// A task management function; whether it is about a single task.
    Managing {
        one_task: bool,
    },
    Ping,
    Text,
    Logout,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Entry<P> {
    pub(super) tag: u64,
    /// Its PDU has left the outbox completely.
    pub(super) sent: bool,
    /// The shell does not wait for it any more.
    pub(super) forgotten: bool,
    pub(super) request: Request<P>,
}

/// A request that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The command.
    pub itt: Itt,
    /// The shell's name for it.
    pub tag: u64,
    /// Its PDU was written completely, so that the target may have it. Without that the command is
    /// dead once the connection is.
    pub sent: bool,
    /// The shell wants to hear nothing of it.
    pub forgotten: bool,
}

#[derive(Clone, Debug)]
struct Slot<P> {
    /// The tag of what is or was last in it.
    itt: u32,
    entry: Option<Entry<P>>,
}

/// All requests without an answer. Their number is bounded by
/// [`commands_max`](super::Settings::commands_max) and [`IMMEDIATE_MAX`](super::IMMEDIATE_MAX), and
/// nothing is allocated after warm-up.
#[derive(Debug)]
pub(super) struct Tasks<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    commands: u32,
    others: usize,
}

impl<P> Tasks<P> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), commands: 0, others: 0 }
    }

    /// The number of commands.
    pub(super) const fn commands(&self) -> u32 {
        self.commands
    }

    /// The number of requests other than commands.
    pub(super) const fn others(&self) -> usize {
        self.others
    }

    /// The tag that the next request will have; never the reserved one, whose index no place has.
    pub(super) fn insert(&mut self, tag: u64, request: Request<P>) -> Itt {
        match request {
            Request::Command(_) => self.commands += 1,
            _ => self.others += 1,
        }
        let entry = Some(Entry { tag, sent: false, forgotten: false, request });
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.itt = slot.itt.wrapping_add(1 << INDEX_BITS);
            slot.entry = entry;
            return Itt(slot.itt);
        }
        let itt = self.slots.len() as u32;
        assert!(itt < (1 << INDEX_BITS) - 1, "the number of requests is bounded");
        self.slots.push(Slot { itt, entry });
        Itt(itt)
    }

    pub(super) fn find(&mut self, itt: Itt) -> Option<&mut Entry<P>> {
        let slot = self.slots.get_mut(index(itt))?;
        if slot.itt == itt.0 { slot.entry.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, itt: Itt) -> Option<Entry<P>> {
        let slot = self.slots.get_mut(index(itt)).filter(|slot| slot.itt == itt.0)?;
        let entry = slot.entry.take()?;
        self.free.push(index(itt) as u32);
        match entry.request {
            Request::Command(_) => self.commands -= 1,
            _ => self.others -= 1,
        }
        Some(entry)
    }

    /// Notes that a PDU that was marked with this tag has left: first the request, then its
    /// sequences of Data-Out. The answer may have come meanwhile.
    pub(super) fn left(&mut self, itt: Itt) {
        let Some(entry) = self.find(itt) else { return };
        match &mut entry.request {
            Request::Command(task) if entry.sent => {
                task.bursts -= 1;
                task.unsolicited = false;
            }
            _ => entry.sent = true,
        }
    }

    /// All commands.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Itt, &mut Task<P>)> {
        self.slots.iter_mut().filter_map(|slot| match slot.entry.as_mut()?.request {
            Request::Command(ref mut task) => Some((Itt(slot.itt), task)),
            _ => None,
        })
    }

    /// All commands, in no particular order.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = Outstanding> {
        self.slots.iter().filter_map(|slot| {
            let entry = slot.entry.as_ref()?;
            matches!(entry.request, Request::Command(_)).then_some(Outstanding {
                itt: Itt(slot.itt),
                tag: entry.tag,
                sent: entry.sent,
                forgotten: entry.forgotten,
            })
        })
    }
}

const fn index(itt: Itt) -> usize {
    (itt.0 & ((1 << INDEX_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place is used again, its tag is not.
    #[test]
    fn tags_are_not_used_again() {
        let mut tasks = Tasks::<()>::new();
        let mut seen = Vec::new();
        for turn in 0..100 {
            let itt = tasks.insert(turn, Request::Ping);
            assert!(!seen.contains(&itt));
            seen.push(itt);
            let one = tasks.insert(1000 + turn, Request::Text);
            assert_eq!(tasks.find(itt).unwrap().tag, turn);
            assert_eq!(tasks.remove(itt).unwrap().tag, turn);
            assert!(tasks.find(itt).is_none() && tasks.remove(itt).is_none());
            tasks.remove(one).unwrap();
            assert_eq!(tasks.slots.len(), 2);
        }
        assert_eq!((tasks.commands(), tasks.others()), (0, 0));
    }
}
