//! Completes I/Os of the log device and the upstream.

use super::super::bug::Bug;
use super::super::events::Event as Happening;
use super::super::recovery::{raw, spanned};
use super::{Effect, Fault, Io, Shell, VOLUME};
use weir_flow::cache::Done;
use weir_flow::cache::writeback::format::Span;
use weir_flow::error::IoError;
use weir_flow::pipeline::Input;
use weir_flow::request::Tag;

impl Shell<'_> {
    pub(super) fn end(&mut self, io: Io) -> Result<(), Fault> {
        match io {
            Io::Local { io, id } => {
                let fails = self.log_device.fails(self.plan, &mut self.rng);
                self.lasting.events[Happening::LogFault] += u64::from(fails);
                self.tell(|| format!("log write {} {}", io.0, how(fails)));
                if fails {
                    self.log_device.device.fail(id, &mut self.rng);
                } else {
                    self.log_device.device.end(id);
                    if self.is(Bug::MemoryUsedAgain)
                        && let Some(batch) = self.memory.batches.get_mut(&io)
                    {
                        batch.fill(0xbb);
                    }
                }
                let hidden = self.is(Bug::LogErrorHidden);
                self.logged(io, if fails && !hidden { Err(IoError::Medium) } else { Ok(()) });
            }
            Io::LocalFlush { io, flush } => {
                let fails = self.log_device.fails(self.plan, &mut self.rng);
                self.lasting.events[Happening::LogFault] += u64::from(fails);
                self.tell(|| format!("log flush {} {}", io.0, how(fails)));
                if fails {
                    self.log_device.device.fail_flush(&flush, &mut self.rng);
                } else {
                    self.log_device.device.settle(&flush);
                    self.lasting.history.settle();
                    self.log_device.worked();
                }
                let hidden = self.is(Bug::LogSyncErrorHidden);
                self.logged(io, if fails && !hidden { Err(IoError::Medium) } else { Ok(()) });
            }
            Io::Fetch { fetch, span, tag, offset } => {
                let spoiled = self.lasting.lost.spoils(span);
                let outcome = if spoiled && !self.is(Bug::RottenWrittenBack) {
                    Err(IoError::Medium)
                } else {
                    self.fetch(span, tag, offset)?;
                    Ok(())
                };
                let done = Done::Fetched { fetch, outcome };
                self.told.push_back(Input::Cache(done));
                return Ok(());
            }
            Io::UnseenFetch { span, tag, offset } => {
                // Whose memory it was may be gone.
                if self.memory.payloads.contains_key(&tag) {
                    self.fetch(span, tag, offset)?;
                }
                return Ok(());
            }
            Io::UnseenFill { frame, bytes } => {
                self.memory.fill_frame(frame, &bytes);
                return Ok(());
            }
            Io::Store(io, effect) => return self.end_store(io, effect),
            Io::Other(io) => {
                self.end_other(&io);
                return Ok(());
            }
            Io::Answer(input) => {
                self.told.push_back(input);
                return Ok(());
            }
            Io::Abandon => {
                self.tell(|| "it is remembered that the log is void".to_owned());
                self.lasting.void = !self.is(Bug::VoidForgotten);
                self.told.push_back(Input::Cache(Done::Abandoned(VOLUME, Ok(()))));
            }
            Io::CopyOn(tag) => return self.copy_on(tag),
            Io::Keep { told } => self.lost_kept(told),
            Io::Journal(io) => {
                self.lasting.journal.end();
                return self.journaled(io);
            }
            Io::Unseen { on_log, effect } => {
                let device =
                    if on_log { &mut self.log_device.device } else { &mut self.target.device };
                match effect {
                    Effect::Write(id) => device.end(id),
                    Effect::Flush(flush) => device.settle(&flush),
                    Effect::Read(_) | Effect::Conflict | Effect::Nothing => {}
                }
            }
        }
        self.point()
    }

    fn fetch(&mut self, span: Span, tag: Tag, offset: u64) -> Result<(), Fault> {
        let (store, image) = (&self.lasting.store, self.log_device.device.visible());
        let read = |at, out: &mut [u8]| store.read(image, at, out);
        let unchecked = self.is(Bug::RottenWrittenBack);
        let bytes = if unchecked { raw(span, read) } else { spanned(span, read)? };
        self.memory.payload(tag, offset, bytes.len() as u64).copy_from_slice(&bytes);
        Ok(())
    }
}

const fn how(fails: bool) -> &'static str {
    if fails { "has failed" } else { "ends" }
}
