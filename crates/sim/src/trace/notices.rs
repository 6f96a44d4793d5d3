//! The notices of a trace, such as its licence: lines that begin with `#`, and texts before the data.

/// Most bytes of notices that wait to be taken. Later ones are dropped and counted.
const MAX_WAITING: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: Vec<String>,
    bytes: usize,
    dropped: u64,
}

impl Notices {
    pub(super) fn keep(&mut self, notice: String) {
        // A short line costs what holds it.
        let bytes = self.bytes + notice.len() + size_of::<String>();
        if bytes > MAX_WAITING {
            self.dropped += 1;
            return;
        }
        self.bytes = bytes;
        self.waiting.push(notice);
    }

    /// Those that have come since the last call, in their order.
    pub(super) fn take(&mut self) -> Vec<String> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}
