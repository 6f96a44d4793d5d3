//! The log device of a life, and when it fails.

use super::super::device::Device;
use super::super::plan::Plan;
use weir_flow::rng::Rng;

pub(super) struct LogDevice {
    pub(super) device: Device,
    /// It has failed and not worked since.
    faulty: bool,
    /// It works no more.
    dead: bool,
}

impl LogDevice {
    /// It works once before it can fail.
    pub(super) const fn new(device: Device) -> Self {
        Self { device, faulty: true, dead: false }
    }

    /// Whether it fails now. A device that may die does not work again; another has worked before it fails once
    /// more.
    pub(super) fn fails(&mut self, plan: &Plan, rng: &mut Rng) -> bool {
        let fails = self.dead || (!self.faulty && rng.below(100) < plan.local_faults);
        self.dead |= fails && plan.dies;
        self.faulty |= fails;
        fails
    }

    /// It has flushed.
    pub(super) const fn worked(&mut self) {
        self.faulty = false;
    }
}
