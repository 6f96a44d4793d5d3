//! The sequence numbers of one connection: command window and status numbers.

use crate::iscsi::serial::before;

/// The order of a non-immediate command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The expected command.
    Due,
    /// Outside of the window or seen before.
    Ignored,
    /// In the window, but others before it are missing.
    Gap,
}

/// Command and status numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) exp_cmd_sn: u32,
    /// The last `MaxCmdSN` that was sent to the initiator.
    advertised: u32,
    pub(crate) stat_sn: u32,
    /// Commands that may be outstanding.
    pub(crate) size: u32,
}

impl Window {
    pub(crate) const fn new(size: u32) -> Self {
        Self { exp_cmd_sn: 0, advertised: u32::MAX, stat_sn: 0, size }
    }

    /// Starts from the numbers of the first login request.
    // RFC 7143 section 11.12.8: a login request is immediate, so its CmdSN is the next one due.
    pub(crate) const fn start(&mut self, cmd_sn: u32, stat_sn: u32) {
        self.exp_cmd_sn = cmd_sn;
        self.advertised = cmd_sn.wrapping_sub(1);
        self.stat_sn = stat_sn;
    }

    /// Checks the number of a non-immediate command and consumes it if it is expected.
    // RFC 7143 section 4.2.2.1: commands outside of the window and duplicates are silently ignored. The window is
    // that last sent to the initiator, not the one that would be sent next.
    pub(crate) fn arrive(&mut self, cmd_sn: u32) -> Arrival {
        if before(cmd_sn, self.exp_cmd_sn) || before(self.advertised, cmd_sn) {
            Arrival::Ignored
        } else if cmd_sn == self.exp_cmd_sn {
            self.exp_cmd_sn = cmd_sn.wrapping_add(1);
            Arrival::Due
        } else {
            Arrival::Gap
        }
    }

    fn candidate(&self, outstanding: usize) -> u32 {
        let free = self.size.saturating_sub(u32::try_from(outstanding).unwrap_or(u32::MAX));
        self.exp_cmd_sn.wrapping_add(free).wrapping_sub(1)
    }

    /// `MaxCmdSN` to put into the PDU that is being built.
    // RFC 7143 section 4.2.2.1: MaxCmdSN never moves backwards.
    pub(crate) fn advertise(&mut self, outstanding: usize) -> u32 {
        let candidate = self.candidate(outstanding);
        if before(self.advertised, candidate) {
            self.advertised = candidate;
        }
        self.advertised
    }

    /// Whether the initiator's view of the window is closed, although it is open.
    pub(crate) fn is_stuck(&self, outstanding: usize) -> bool {
        let told_closed = self.advertised == self.exp_cmd_sn.wrapping_sub(1);
        told_closed && before(self.advertised, self.candidate(outstanding))
    }

    /// The status number of a response; the next one follows.
    pub(crate) const fn next_stat_sn(&mut self) -> u32 {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        stat_sn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window opens by the number of free slots, does not move back when it shrinks, and survives the wrap.
    #[test]
    fn the_window_never_moves_backwards() {
        let mut window = Window::new(4);
        window.start(u32::MAX, 1);
        assert_eq!(window.advertise(0), 2);
        assert_eq!(window.arrive(u32::MAX), Arrival::Due);
        assert_eq!(window.arrive(0), Arrival::Due);
        assert_eq!(window.advertise(2), 2);
        window.size = 1;
        assert_eq!(window.advertise(2), 2);
        assert_eq!(window.advertise(0), 2);
        assert_eq!(window.arrive(1), Arrival::Due);
        assert_eq!(window.arrive(2), Arrival::Due);
        assert_eq!(window.arrive(3), Arrival::Ignored);
        assert_eq!(window.advertise(0), 3);
    }

    /// Duplicates and numbers beyond the sent window are ignored; a gap is reported.
    #[test]
    fn numbers_outside_are_ignored() {
        let mut window = Window::new(4);
        window.start(10, 0);
        assert_eq!(window.arrive(10), Arrival::Ignored, "nothing was advertised yet");
        window.advertise(0);
        assert_eq!(window.arrive(9), Arrival::Ignored);
        assert_eq!(window.arrive(14), Arrival::Ignored);
        assert_eq!(window.arrive(12), Arrival::Gap);
        assert_eq!(window.arrive(10), Arrival::Due);
        assert_eq!(window.arrive(10), Arrival::Ignored);
    }

    /// An initiator with a closed window is stuck when the window opens, until it is sent.
    #[test]
    fn a_closed_window_that_could_open_is_seen() {
        let mut window = Window::new(1);
        window.start(0, 0);
        window.advertise(0);
        window.arrive(0);
        assert_eq!(window.advertise(1), 0);
        assert!(!window.is_stuck(1));
        window.size = 2;
        assert!(window.is_stuck(1));
    }
}
