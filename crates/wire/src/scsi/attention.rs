//! Unit attentions: conditions reported before an initiator's next command runs (SAM-5 section
//! 5.14).

use super::sense::Sense;

/// Most conditions that wait for one initiator. When one more comes, they give way to a single
/// power-on condition, which tells the initiator to look at everything anew.
pub const CONDITIONS_MAX: usize = 4;

/// The conditions that wait for one initiator at one logical unit. The shell owns one for each pair
/// of session and logical unit; a new one holds the power-on condition.
#[derive(Clone, Debug)]
pub struct UnitAttention {
    waiting: [Option<Sense>; CONDITIONS_MAX],
}

impl Default for UnitAttention {
    fn default() -> Self {
        Self::new()
    }
}

impl UnitAttention {
    /// For a new nexus: power-on waits (SPC-4 section 5.12.5).
    pub const fn new() -> Self {
        let mut waiting = [None; CONDITIONS_MAX];
        waiting[0] = Some(Sense::POWER_ON_OR_RESET);
        Self { waiting }
    }

    /// Adds a condition. One that already waits is not added again.
    pub fn raise(&mut self, sense: Sense) {
        if self.waiting.contains(&Some(sense)) {
            return;
        }
        match self.waiting.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(sense),
            None => *self = Self::new(),
        }
    }

    /// Takes the oldest condition.
    pub(crate) fn take(&mut self) -> Option<Sense> {
        let sense = self.waiting[0].take();
        self.waiting.rotate_left(1);
        sense
    }

    /// The condition with which a command with this opcode must be answered instead of being run. The condition is
    /// over then.
    // SPC-4 section 5.12 and SAM-5 section 5.14: INQUIRY and REPORT LUNS run all the same and
    // REQUEST SENSE reports the condition itself.
    pub(crate) fn intercept(&mut self, opcode: u8) -> Option<Sense> {
        if matches!(opcode, 0x03 | 0x12 | 0xa0) { None } else { self.take() }
    }

    /// Forgets that the list of logical units changed, once it was reported.
    // SPC-4 section 6.33: REPORT LUNS ends this condition.
    pub(crate) fn luns_reported(&mut self) {
        for slot in &mut self.waiting {
            if *slot == Some(Sense::REPORTED_LUNS_CHANGED) {
                *slot = None;
            }
        }
        self.waiting.sort_by_key(Option::is_none);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conditions come out once, in order, and spare three commands.
    #[test]
    fn conditions_come_out_once() {
        let mut attention = UnitAttention::new();
        attention.raise(Sense::CAPACITY_CHANGED);
        attention.raise(Sense::CAPACITY_CHANGED);
        for opcode in [0x03, 0x12, 0xa0] {
            assert_eq!(attention.intercept(opcode), None);
        }
        assert_eq!(attention.intercept(0x00), Some(Sense::POWER_ON_OR_RESET));
        assert_eq!(attention.intercept(0x28), Some(Sense::CAPACITY_CHANGED));
        assert_eq!(attention.intercept(0x28), None);
        assert_eq!(attention.take(), None);
    }

    /// Too many conditions become one; a reported list is no news.
    #[test]
    fn too_many_become_one() {
        let mut attention = UnitAttention::new();
        attention.raise(Sense::REPORTED_LUNS_CHANGED);
        attention.raise(Sense::CAPACITY_CHANGED);
        attention.luns_reported();
        assert_eq!(attention.take(), Some(Sense::POWER_ON_OR_RESET));
        assert_eq!(attention.take(), Some(Sense::CAPACITY_CHANGED));
        for ascq in 0..4 {
            attention.raise(Sense::new(crate::scsi::sense::SenseKey::UnitAttention, 0x2a, ascq));
        }
        attention.raise(Sense::NEXUS_LOSS);
        assert_eq!(attention.take(), Some(Sense::POWER_ON_OR_RESET));
        assert_eq!(attention.take(), None);
    }
}
