//! The notices of a trace, such as its licence: lines that begin with `#`, and texts before the data.
//!
//! Each stays before the request that it stood before, however far its reader is ahead.

use std::collections::VecDeque;

/// Most bytes of notices between two requests of the file. Later ones are dropped and counted.
const MAX_GAP: usize = 1 << 20;

/// Most bytes of notices that wait for their requests to be given. Later ones are dropped and counted.
const MAX_WAITING: usize = 1 << 26;

#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Each with its line.
    waiting: VecDeque<(u64, String)>,
    /// Bytes of those that wait, and of those since the last request.
    bytes: usize,
    gap: usize,
    dropped: u64,
}

/// What a notice counts: a short line costs what holds it.
const fn bytes(notice: &str) -> usize {
    notice.len() + size_of::<(u64, String)>()
}

impl Notices {
    /// Keeps a notice of this line.
    pub(super) fn keep(&mut self, line: u64, notice: String) {
        let bytes = bytes(&notice);
        if self.gap + bytes > MAX_GAP || self.bytes + bytes > MAX_WAITING {
            self.dropped += 1;
            return;
        }
        self.gap += bytes;
        self.bytes += bytes;
        self.waiting.push_back((line, notice));
    }

    /// A request was read.
    pub(super) const fn request(&mut self) {
        self.gap = 0;
    }

    /// Those of lines before `line` that have not been taken, in their order.
    pub(super) fn take(&mut self, line: u64) -> Vec<String> {
        let due = self.waiting.partition_point(|(at, _)| *at < line);
        let taken: Vec<String> = self.waiting.drain(..due).map(|(_, notice)| notice).collect();
        self.bytes -= taken.iter().map(|notice| bytes(notice)).sum::<usize>();
        taken
    }

    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gap has a limit, and so has all that waits; what is beyond is counted, and what is taken makes room.
    #[test]
    fn what_waits_has_limits() {
        let mut notices = Notices::default();
        let long = "x".repeat(4_096 - size_of::<(u64, String)>());
        let (gap, gaps) = (MAX_GAP / 4_096, MAX_WAITING / MAX_GAP);
        for line in 1..=gap as u64 + 1 {
            notices.keep(line, long.clone());
        }
        assert_eq!(notices.dropped(), 1);
        for _ in 1..=gaps {
            notices.request();
            (0..gap).for_each(|_| notices.keep(1_000, long.clone()));
        }
        assert_eq!(notices.dropped(), 1 + gap as u64);
        assert_eq!(notices.take(1_000).len(), gap);
        notices.request();
        notices.keep(1_001, long);
        assert_eq!(
            (notices.dropped(), notices.take(u64::MAX).len()),
            (1 + gap as u64, gap * (gaps - 1) + 1)
        );
        assert_eq!(notices.bytes, 0);
    }
}
