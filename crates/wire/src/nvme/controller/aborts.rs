//! Aborts that wait for the end of a command.

use crate::nvme::status::Status;

/// An Abort that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Slot of the Abort.
    abort: u32,
    /// Queue and slot of the command.
    command: (u16, u32),
}

/// The Aborts of a controller that wait.
#[derive(Debug, Default)]
pub(super) struct Aborts(Vec<Waiting>);

impl Aborts {
    /// Whether one more is refused with [`Status::ABORT_LIMIT`].
    pub(super) const fn is_full(&self) -> bool {
        self.0.len() >= ABORTS_MAX
    }

    pub(super) fn wait(&mut self, abort: u32, queue: u16, slot: u32) -> Result<(), Status> {
        if self.is_full() {
            return Err(Status::ABORT_LIMIT);
        }
        self.0.push(Waiting { abort, command: (queue, slot) });
        Ok(())
    }

    /// The Aborts that have waited for this command.
    pub(super) fn ended(&mut self, queue: u16, slot: u32) -> Vec<u32> {
        self.take(|waiting| waiting.command == (queue, slot))
    }

    /// The Aborts that have waited for a command of this queue.
    pub(super) fn queue_ended(&mut self, queue: u16) -> Vec<u32> {
        self.take(|waiting| waiting.command.0 == queue)
    }

    fn take(&mut self, is_over: impl Fn(&Waiting) -> bool) -> Vec<u32> {
        self.0.extract_if(.., |waiting| is_over(waiting)).map(|waiting| waiting.abort).collect()
    }
}

/// Aborts that may wait at once (ACL + 1).
pub(super) const ABORTS_MAX: usize = 4;
