//! One session under load: its connection and its outstanding commands.

use crate::link::Link;
use crate::process::now;
use crate::work::{Tally, Work, find_difference, pattern, read_write_16};
use mio::net::TcpStream;
use std::time::{Duration, Instant};
use weir_wire::iscsi::initiator::{Attribute, Command, Direction, Event, Residual};

/// One session.
pub(crate) struct Session {
    link: Link<TcpStream>,
    lun: u8,
    /// Outstanding commands by tag.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    think: Duration,
    /// The earliest time of the next command.
    thinks_until: Option<Instant>,
}

/// A command that is outstanding.
#[derive(Clone, Copy, Debug)]
struct Slot {
    made: Instant,
    /// Its offset in bytes.
    offset: u64,
}

impl Session {
    /// Takes a session over from the login.
    pub(crate) fn new(
        link: Link<std::net::TcpStream>,
        lun: u8,
        depth: u32,
        think: Duration,
    ) -> Result<Self, String> {
        link.socket
            .set_nonblocking(true)
            .map_err(|error| format!("cannot make a socket non-blocking: {error}"))?;
        let depth = depth as usize;
        let (slots, free) = (vec![None; depth], (0..depth).rev().collect());
        Ok(Self {
            link: link.over(TcpStream::from_std),
            lun,
            slots,
            free,
            think,
            thinks_until: None,
        })
    }

    /// The socket, to be registered.
    pub(crate) const fn socket(&mut self) -> &mut TcpStream {
        &mut self.link.socket
    }

    /// Whether no command is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        let initiator = &self.link.initiator;
        self.free.len() == self.slots.len() && (initiator.is_full_feature() || initiator.is_over())
    }

    /// The end of its think time.
    pub(crate) const fn thinks_until(&self) -> Option<Instant> {
        self.thinks_until
    }

    /// Makes as many commands as depth and command window allow.
    pub(crate) fn refill(&mut self, work: &mut Work, now: Instant) {
        if self.thinks_until.is_some_and(|until| until > now) {
            return;
        }
        self.thinks_until = None;
        while self.link.initiator.room() > 0
            && let Some(&tag) = self.free.last()
            && let Some(offset) = work.next()
        {
            self.free.pop();
            let (lba, blocks) = work.extent(offset);
            let data = if work.write {
                Direction::Write(pattern(offset, work.block as usize), 0..work.block as usize)
            } else {
                Direction::Read(work.block)
            };
            let cdb = read_write_16(work.write, lba, blocks);
            let (lun, attribute) = (self.lun.into(), Attribute::Simple);
            self.link.initiator.command(Command { lun, cdb, attribute, data, tag: tag as u64 });
            self.slots[tag] = Some(Slot { made: now, offset });
        }
    }

    /// Receives all available input and answers it.
    pub(crate) fn read(&mut self, work: &mut Work, tally: &mut Tally) -> Result<(), String> {
        loop {
            let (came, more) = self.link.fill()?;
            if came {
                let now = now();
                let Self { link, slots, free, .. } = self;
                let before = free.len();
                link.hear(|event| take(&event, slots, free, work, tally, now))?;
                if free.len() > before && !self.think.is_zero() {
                    self.thinks_until = Some(now + self.think);
                }
                self.refill(work, now);
                self.flush()?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Sends the outbox, as far as the socket accepts it.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        self.link.flush()
    }

    /// Sends a logout request.
    pub(crate) fn log_out(&mut self) {
        self.link.initiator.logout();
    }
}

/// Handles one event.
fn take(
    event: &Event<'_>,
    slots: &mut [Option<Slot>],
    free: &mut Vec<usize>,
    work: &Work,
    tally: &mut Tally,
    now: Instant,
) -> Result<(), String> {
    match *event {
        Event::Data { tag, offset, bytes, .. } => {
            let slot = slots[tag as usize].ok_or("data of nothing")?;
            if work.check
                && let Some(wrong) = find_difference(bytes, slot.offset + u64::from(offset))
            {
                tally.error(|| format!("wrong data at byte {wrong}"));
            }
        }
        Event::Done { tag, status, residual, .. } => {
            let slot = slots[tag as usize].take().ok_or("an end of nothing")?;
            free.push(tag as usize);
            if status != Some(0) || residual != Residual::None {
                let offset = slot.offset;
                tally.error(|| format!("byte {offset}: status {status:?}, {residual:?}"));
            }
            let nanos = now.saturating_duration_since(slot.made).as_nanos();
            tally.times.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
        Event::Asked(what) => return Err(format!("the target says {what:?}")),
        _ => {}
    }
    Ok(())
}
