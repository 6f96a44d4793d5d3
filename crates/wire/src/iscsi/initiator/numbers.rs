//! The sequence numbers of one session: command window and status numbers, as the initiator sees
//! them.

use super::fault::{Fault, PduKind, Wanted};
use crate::iscsi::serial::before;

/// Command and status numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Of the next command.
    pub(super) cmd_sn: u32,
    /// The last command number that the target takes.
    max_cmd_sn: u32,
    /// Of the next status; `None` before the first one, which the target chooses.
    status: Option<u32>,
}

impl Numbers {
    /// The window is closed until the target opens it.
    pub(super) const fn new(cmd_sn: u32) -> Self {
        Self { cmd_sn, max_cmd_sn: cmd_sn.wrapping_sub(1), status: None }
    }

    /// `ExpStatSN`.
    pub(super) fn exp_stat_sn(&self) -> u32 {
        self.status.unwrap_or(0)
    }

    /// Commands that the target takes now.
    pub(super) const fn room(&self) -> u32 {
        if before(self.max_cmd_sn, self.cmd_sn) {
            0
        } else {
            self.max_cmd_sn.wrapping_sub(self.cmd_sn).saturating_add(1)
        }
    }

    /// Gives out the number of a command.
    pub(super) const fn next(&mut self) -> u32 {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.wrapping_add(1);
        cmd_sn
    }

    /// Takes the command numbers of one PDU.
    // RFC 7143 section 4.2.2.1: numbers that contradict each other are ignored, and the window never
    // shrinks. A command that is due though it was never sent is let pass: some targets count the
    // immediate requests, and nothing here depends on it.
    pub(super) const fn hear(&mut self, exp: u32, max: u32) {
        let fits = !before(max, exp.wrapping_sub(1));
        if fits && before(self.max_cmd_sn, max) {
            self.max_cmd_sn = max;
        }
    }

    /// Takes the status number of one PDU.
    // RFC 7143 section 4.2.2.2: consecutive; what is missing was lost, which error recovery level 0
    // does not survive.
    pub(super) fn status(&mut self, pdu: PduKind, stat_sn: u32) -> Result<(), Fault> {
        let due = self.status.unwrap_or(stat_sn);
        if due != stat_sn {
            return Err(Fault::Field {
                pdu,
                field: "StatSN",
                value: stat_sn,
                wanted: Wanted::Exactly(due),
                rule: "RFC 7143 section 4.2.2.2",
            });
        }
        self.status = Some(due.wrapping_add(1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PDU: PduKind = PduKind(0x21);

    /// The window opens, never shrinks, ignores nonsense and survives the wrap.
    #[test]
    fn the_window_opens_and_stays() {
        let mut numbers = Numbers::new(u32::MAX);
        assert_eq!(numbers.room(), 0);
        numbers.hear(u32::MAX, 1);
        assert_eq!(numbers.room(), 3);
        numbers.hear(u32::MAX, u32::MAX);
        assert_eq!(numbers.room(), 3, "what was granted stays");
        assert_eq!((numbers.next(), numbers.next(), numbers.room()), (u32::MAX, 0, 1));
        numbers.hear(1, 0x7fff_ffff);
        assert_eq!(numbers.room(), 0x7fff_ffff);
        numbers.hear(1, 0xffff_0000);
        assert_eq!(numbers.room(), 0x7fff_ffff, "less than what is due is no window");
    }

    /// A target that counts immediate requests still opens the window.
    #[test]
    fn what_was_never_sent_may_be_due() {
        let mut numbers = Numbers::new(5);
        numbers.hear(7, 9);
        assert_eq!(numbers.room(), 5);
    }

    /// The target chooses the first status number; the others follow it.
    #[test]
    fn status_numbers_follow_each_other() {
        let mut numbers = Numbers::new(1);
        numbers.status(PDU, u32::MAX).unwrap();
        assert_eq!(numbers.exp_stat_sn(), 0);
        numbers.status(PDU, 0).unwrap();
        for wrong in [0, 2, u32::MAX] {
            assert!(numbers.status(PDU, wrong).is_err());
        }
        numbers.status(PDU, 1).unwrap();
    }
}
