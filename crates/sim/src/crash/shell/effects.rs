//! What the log asks for, and how it ends on the devices.

use super::super::bug::Bug;
use super::super::content::{Content, SECTOR};
use super::super::history::Broken;
use super::super::judge::spanned;
use super::super::loss::Loss;
use super::{Fault, Io, Shell, sector};
use weir_flow::cache::writeback::format::{Span, Super, assemble, crc32c};
use weir_flow::cache::writeback::{Effect, JobId, Memory, Notice, Part, Piece, Source, Write};
use weir_flow::error::IoError;
use weir_flow::request::Op;
use weir_flow::units::Extent;

impl Shell<'_> {
    pub(super) fn effect(&mut self, effect: Effect) -> Result<(), Fault> {
        match effect {
            Effect::Write(write) => return self.write(&write),
            Effect::Sync(io) => {
                self.tell(|| format!("log flush {} begins", io.0));
                let flush = self.near.flush();
                if self.is(Bug::LogSyncDropped) {
                    self.log.local(self.now, io, Ok(()));
                } else if self.is(Bug::LogSyncAnsweredEarly) {
                    self.ios.push(Io::UnseenFlush { near: true, flush });
                    self.log.local(self.now, io, Ok(()));
                } else {
                    self.ios.push(Io::LocalFlush { io, flush });
                }
                return self.point();
            }
            Effect::Release(io) => {
                self.batches.remove(&io);
            }
            Effect::Ack(key, outcome, _) => return self.told(key, outcome),
            Effect::Gather { job, bytes, pieces } => {
                self.ios.push(Io::Gather { job, bytes, pieces });
            }
            Effect::Upstream { job, op, extent } => return self.upstream(job, op, extent),
            Effect::Done(job) => {
                self.stale = self.buffers.remove(&job).unwrap_or_default();
            }
            Effect::Notice(notice) => {
                self.tell(|| format!("{notice:?}"));
                if let Notice::Blocked(blocked) = notice {
                    return Err(
                        Broken::Damaged(format!("write-back stops: {}", blocked.cause)).into()
                    );
                }
            }
            // At the start a flush of a host is one of the upstream.
            Effect::Through(key) => self.ios.push(Io::Passed { key, flush: self.far.flush() }),
            // Nobody has asked for these, and the log device never fails twice.
            Effect::Drained(_) | Effect::Abandon | Effect::Closed => {
                return Err(Broken::Stuck(format!("the log gives up: {effect:?}")).into());
            }
        }
        Ok(())
    }

    pub(super) fn memory(&self, part: &Part, out: &mut [u8]) {
        let (bytes, from) = match part.from {
            Memory::Request(key, from) => (self.payloads.get(&key), from),
            Memory::Batch(io, from) => (self.batches.get(&io), from),
        };
        let bytes = bytes.expect("memory that the log names is kept");
        out.copy_from_slice(&bytes[from as usize..][..part.length as usize]);
    }

    pub(super) fn write(&mut self, write: &Write) -> Result<(), Fault> {
        let mut bytes = vec![0; write.bytes as usize];
        assemble(write, crc32c, |part, out| self.memory(part, out), &mut bytes);
        if self.is(Bug::SuperBlockAhead)
            && let Ok(block) = Super::decode(&bytes)
        {
            bytes = Super { applied: block.durable, ..block }.encode();
        }
        let store = &mut self.lasting.store;
        let contents = bytes.as_chunks::<SECTOR>().0.iter().map(|bytes| store.name(bytes));
        let contents: Vec<_> = contents.collect();
        let id = self.near.begin(sector(write.at), contents);
        let (io, at, length) = (write.io, write.at, write.bytes);
        self.tell(|| format!("log write {} of {length} bytes at {at} begins", io.0));
        self.batches.insert(io, bytes);
        self.ios.push(Io::Local { io, id });
        self.point()?;
        if self.is(Bug::AckBeforeCommit) {
            for part in &write.payload {
                let Memory::Request(key, _) = part.from else { continue };
                self.tell_early(key)?;
            }
        }
        Ok(())
    }

    pub(super) fn upstream(&mut self, job: JobId, op: Op, extent: Extent) -> Result<(), Fault> {
        let (first, count) = (sector(extent.offset), sector(extent.length));
        self.tell(|| format!("upstream {op:?} {} of {first}..{} begins", job.0, first + count));
        let id = match op {
            Op::Flush => {
                let flush = self.far.flush();
                if self.is(Bug::UpstreamFlushDropped) {
                    self.log.applied(self.now, job, Ok(()));
                } else if self.is(Bug::UpstreamFlushAnsweredEarly) {
                    self.ios.push(Io::UnseenFlush { near: false, flush });
                    self.log.applied(self.now, job, Ok(()));
                } else {
                    self.ios.push(Io::UpstreamFlush { job, flush });
                }
                return self.point();
            }
            Op::Write => {
                let bytes = &self.buffers[&job];
                let wrong = self.is(Bug::StaleBuffer) && self.stale.len() >= bytes.len();
                let bytes = if wrong { &self.stale } else { bytes };
                let store = &mut self.lasting.store;
                let sectors = bytes.as_chunks::<SECTOR>().0.iter().take(count as usize);
                let contents: Vec<_> = sectors.map(|bytes| store.name(bytes)).collect();
                self.far.begin(first, contents)
            }
            _ if self.is(Bug::DiscardDropped) && op == Op::Discard => {
                self.log.applied(self.now, job, Ok(()));
                return Ok(());
            }
            _ => self.far.begin(first, (0..count).map(|_| Content::default())),
        };
        if self.is(Bug::UpstreamAnsweredEarly) {
            self.ios.push(Io::Unseen { id });
            self.log.applied(self.now, job, Ok(()));
        } else {
            self.ios.push(Io::Upstream { job, id });
        }
        self.point()
    }

    /// Something that had begun ends.
    pub(super) fn end(&mut self, io: Io) -> Result<(), Fault> {
        match io {
            Io::Local { io, id } => {
                let fails = self.local_fails();
                self.tell(|| {
                    format!("log write {} ends{}", io.0, if fails { ", failed" } else { "" })
                });
                if fails {
                    self.near.fail(id, &mut self.rng);
                } else {
                    self.near.end(id);
                }
                let hidden = self.is(Bug::LogErrorHidden);
                let gone = if fails && !hidden { Err(IoError::Medium) } else { Ok(()) };
                self.log.local(self.now, io, gone);
            }
            Io::LocalFlush { io, flush } => {
                let fails = self.local_fails();
                self.tell(|| {
                    format!("log flush {} ends{}", io.0, if fails { ", failed" } else { "" })
                });
                if fails {
                    self.near.fail_flush(&flush, &mut self.rng);
                } else {
                    self.near.settle(&flush);
                    self.faulty = false;
                }
                let hidden = self.is(Bug::LogSyncErrorHidden);
                let gone = if fails && !hidden { Err(IoError::Medium) } else { Ok(()) };
                self.log.local(self.now, io, gone);
            }
            Io::Gather { job, bytes, pieces } => {
                let gathered = self.gather(bytes, &pieces)?;
                self.buffers.insert(job, gathered);
                self.log.gathered(self.now, job, Ok(()));
                return Ok(());
            }
            Io::Upstream { job, id } => {
                let fails = self.rng.below(100) < self.plan.upstream_faults;
                self.tell(|| {
                    format!("upstream {} ends{}", job.0, if fails { ", failed" } else { "" })
                });
                if fails {
                    self.far.fail(id, &mut self.rng);
                } else {
                    self.far.end(id);
                }
                let hidden = self.is(Bug::UpstreamErrorHidden);
                let gone = if fails && !hidden { Err(IoError::PathFailed) } else { Ok(()) };
                self.log.applied(self.now, job, gone);
            }
            Io::UpstreamFlush { job, flush } => {
                self.tell(|| format!("upstream flush {} ends", job.0));
                self.far.settle(&flush);
                self.log.applied(self.now, job, Ok(()));
            }
            Io::Passed { key, flush } => {
                self.far.settle(&flush);
                self.log.passed(self.now, key, Ok(()));
                return self.told(key, Ok(()));
            }
            Io::Read { key, pin, parts, fill } => return self.returns(key, pin, &parts, fill),
            Io::Unseen { id } => self.far.end(id),
            Io::UnseenFlush { near: true, flush } => self.near.settle(&flush),
            Io::UnseenFlush { near: false, flush } => self.far.settle(&flush),
        }
        self.point()
    }

    /// Whether the log device fails now: never before it has worked since it failed last.
    pub(super) fn local_fails(&mut self) -> bool {
        let fails = !self.faulty && self.rng.below(100) < self.plan.local_faults;
        self.faulty |= fails;
        fails
    }

    pub(super) fn gather(&self, bytes: u64, pieces: &[Piece]) -> Result<Vec<u8>, Fault> {
        let mut buffer = vec![0; bytes as usize];
        for piece in pieces {
            let out = &mut buffer[piece.offset as usize..];
            match piece.source {
                Source::Zeroes(length) => out[..length as usize].fill(0),
                Source::Memory(part) => self.memory(&part, &mut out[..part.length as usize]),
                Source::Log(span) => {
                    let data = self.logged(span)?;
                    out[..data.len()].copy_from_slice(&data);
                }
            }
        }
        Ok(buffer)
    }

    pub(super) fn logged(&self, span: Span) -> Result<Vec<u8>, Broken> {
        let store = &self.lasting.store;
        spanned(span, |at, out| store.read(self.near.visible(), at, out))
    }

    /// The upstream loses its cache, and what is on its way there.
    pub(super) fn reset(&mut self) -> Result<(), Fault> {
        if !self.plan.settings.upstream_flush {
            return Ok(());
        }
        let loss = Loss::ALL[self.rng.below(7) as usize];
        self.far.lose_cache(loss, &mut self.rng);
        self.tell(|| format!("the upstream loses its cache: {}", loss.name()));
        if self.is(Bug::UpstreamResetUntold) {
            return self.point();
        }
        self.log.upstream_reset();
        for io in std::mem::take(&mut self.ios) {
            match io {
                Io::Upstream { job, id } => {
                    self.far.fail(id, &mut self.rng);
                    self.log.applied(self.now, job, Err(IoError::PathFailed));
                }
                Io::UpstreamFlush { job, .. } => {
                    self.log.applied(self.now, job, Err(IoError::PathFailed));
                }
                _ => self.ios.push(io),
            }
        }
        self.point()
    }
}
