//! Performs the work of the cache stage: copies, buffers and log-device I/O.

use super::super::bug::Bug;
use super::super::cleaning::has_copies;
use super::super::content::SECTOR;
use super::super::events::Event as Happening;
use super::{Asked, Effect, Fault, Io, Shell, sector};
use weir_flow::cache::Done;
use weir_flow::cache::stage::{Buffer, Copied, LogWrite, Work};
use weir_flow::cache::writeback::format::{PAGE, SUPERS, Super, crc32c};
use weir_flow::cache::writeback::{LocalId, Part, assemble};
use weir_flow::pipeline::Input;
use weir_flow::request::{Outcome, Tag};

/// Tags of the cache's own requests are above this, those of hosts below.
const OWN: u64 = 1 << 40;

impl Shell<'_> {
    pub(super) fn work(&mut self, work: Work) -> Result<(), Fault> {
        match work {
            Work::Copy(copied) => self.copy(copied),
            Work::Zero { tag, offset, length } => {
                self.memory.payload(tag, offset, length).fill(0);
            }
            Work::CopyBuffer { from, tag, offset, length, .. } => {
                self.memory.copy_buffer(from, tag, offset, length);
            }
            Work::Fetch { fetch, span, tag, offset, .. } => {
                if self.is(Bug::FetchAnsweredEarly) {
                    self.ios.push(Io::UnseenFetch { span, tag, offset });
                    let done = Done::Fetched { fetch, outcome: Ok(()) };
                    self.told.push_back(Input::Cache(done));
                } else {
                    self.ios.push(Io::Fetch { fetch, span, tag, offset });
                }
            }
            Work::Reserve { job, bytes, .. } => {
                self.lasting.own += 1;
                let tag = Tag(OWN + self.lasting.own);
                self.memory.reserve(tag, bytes);
                let done = Done::Reserved { job, tag };
                self.ios.push(Io::Answer(Input::Cache(done)));
            }
            Work::Release(tag) => self.memory.release(tag),
            Work::Log { write, .. } => return self.log(&write),
            Work::Sync { io, .. } => return self.sync(io),
            Work::ReleaseBatch { io, .. } => {
                self.memory.batches.remove(&io).expect("it is kept until now");
            }
            Work::Abandon(_) => {
                self.tell(|| "that the log is void is being remembered".to_owned());
                self.ios.push(Io::Abandon);
            }
            Work::KeepLost(_, ranges) => {
                self.keep_lost(ranges);
                return self.point();
            }
            Work::Closed(_) => self.closed = true,
        }
        Ok(())
    }

    fn copy(&mut self, copied: Copied) {
        let is_write = matches!(self.asked.get(&copied.tag), Some(Asked::Change { .. }));
        if !copied.keep {
            self.memory.read_frame(&copied);
        } else if !(is_write && self.is(Bug::WriteKeepsOldLines)) {
            let frame = self.memory.frame(&copied);
            let bytes =
                self.memory.payload(copied.tag, copied.offset, copied.length.into()).to_vec();
            if !is_write && self.is(Bug::FillLate) {
                self.ios.push(Io::UnseenFill { frame, bytes });
            } else {
                self.memory.fill_frame(frame, &bytes);
            }
        }
    }

    /// A write to the log device begins.
    fn log(&mut self, write: &LogWrite) -> Result<(), Fault> {
        let LogWrite { write, from } = write;
        let mut bytes = vec![0; write.bytes as usize];
        let mut parts = from.iter();
        let fill = |part: &Part, out: &mut [u8]| {
            let buffer = *parts.next().expect("each part has a place");
            out.copy_from_slice(self.memory.buffer(buffer, part.length));
        };
        assemble(write, crc32c, fill, &mut bytes);
        self.copies = has_copies(self.plan, &bytes);
        self.lasting.events[Happening::LogCopy] += u64::from(self.copies);
        if self.copies && self.is(Bug::CopyOfOtherData) {
            assemble(write, crc32c, |_, out| out.fill(0), &mut bytes);
        }
        if self.is(Bug::SegmentGivenUpEarly)
            && let Ok(block) = Super::decode(&bytes)
            && self.lasting.has_cleaned()
        {
            bytes = Super { oldest: block.oldest + 1, ..block }.encode();
        }
        if self.is(Bug::SuperBlockAhead)
            && let Ok(block) = Super::decode(&bytes)
        {
            bytes = Super { applied: block.durable, ..block }.encode();
        }
        let large = write.head.len() % 4096 > SECTOR;
        self.lasting.events[Happening::LargeBatch] += u64::from(large);
        self.lasting.events[Happening::LargeLogCopy] += u64::from(large && self.copies);
        let (bug, store) = (self.bug, &mut self.lasting.store);
        let mut contents: Vec<_> =
            bytes.as_chunks::<SECTOR>().0.iter().map(|bytes| store.name(bytes)).collect();
        if bug == Some(Bug::ShortLogWrite) {
            contents.truncate(contents.len() - contents.len() / 4);
        }
        let first = sector(write.at);
        let block = Super::decode(&bytes).ok().filter(|_| write.at < SUPERS);
        if self.is(Bug::OneSuperAnnounces)
            && block.is_some_and(|block| self.is_announced(PAGE - write.at, &block))
        {
            contents.clear();
        }
        if self.is(Bug::SupersAtOnce) && block.is_some() {
            let id = self.log_device.device.begin(sector(PAGE - write.at), contents.clone());
            self.ios.push(Io::Unseen { on_log: true, effect: Effect::Write(id) });
        }
        self.lasting.lost.rewritten(first..first + contents.len() as u32);
        let id = self.log_device.device.begin(first, contents);
        let (io, at, length) = (write.io, write.at, write.bytes);
        self.tell(|| format!("log write {} of {length} bytes at {at} begins", io.0));
        self.memory.batches.insert(io, bytes);
        self.ios.push(Io::Local { io, id });
        self.point()?;
        if self.is(Bug::AckBeforeCommit) {
            for from in from {
                let Buffer::Payload(tag, _) = from else { continue };
                self.tell_early(*tag)?;
            }
        }
        Ok(())
    }

    /// Whether a super block says what the other one, which is here, says already.
    fn is_announced(&self, other: u64, block: &Super) -> bool {
        let mut bytes = [0; SECTOR];
        self.lasting.store.read(self.log_device.device.visible(), other, &mut bytes);
        Super::decode(&bytes)
            .is_ok_and(|other| block.bypassed && other.bypassed && block.applied == other.applied)
    }

    fn sync(&mut self, io: LocalId) -> Result<(), Fault> {
        self.tell(|| format!("log flush {} begins", io.0));
        let flush = self.log_device.device.flush();
        if self.is(Bug::LogSyncDropped) {
            self.logged(io, Ok(()));
        } else if self.is(Bug::LogSyncAnsweredEarly)
            || (self.copies && self.is(Bug::CopiesVolatile))
        {
            self.ios.push(Io::Unseen { on_log: true, effect: Effect::Flush(flush) });
            self.logged(io, Ok(()));
        } else {
            self.ios.push(Io::LocalFlush { io, flush });
        }
        self.point()
    }

    /// Gives the log the outcome of an I/O of its device.
    pub(super) fn logged(&mut self, io: LocalId, outcome: Outcome) {
        let done = Done::Logged { volume: super::VOLUME, io, outcome };
        self.told.push_back(Input::Cache(done));
    }
}
