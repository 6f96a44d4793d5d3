//! The tasks of one connection, with the data that each still has to send or receive.

use crate::iscsi::pdu::Itt;

/// Maximum outstanding R2Ts of one task, for any negotiated value.
pub(crate) const OUTSTANDING_R2T_MAX: usize = 8;

/// One solicited sequence of Data-Out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Burst {
    /// Tag that its PDUs carry.
    pub(crate) ttt: u32,
    /// First byte behind it, counted from the start of the command's data.
    pub(crate) end: u32,
}

/// The R2Ts of one task that are not yet answered, oldest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    ring: [Burst; OUTSTANDING_R2T_MAX],
    length: usize,
}

impl Bursts {
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn newest(&self) -> Option<Burst> {
        self.ring[..self.length].last().copied()
    }

    pub(crate) fn oldest(&self) -> Option<Burst> {
        self.ring[..self.length].first().copied()
    }

    pub(crate) fn push(&mut self, burst: Burst) {
        self.ring[self.length] = burst;
        self.length += 1;
    }

    pub(crate) fn pop(&mut self) {
        self.ring.copy_within(1.., 0);
        self.length -= 1;
    }
}

/// A SCSI command that has no response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) itt: Itt,
    pub(crate) lun: [u8; 8],
    /// Delivered at once and outside of the command window.
    pub(crate) immediate: bool,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// Expected data transfer length, zero without data.
    pub(crate) expected_length: u32,
    /// Write data that arrived.
    pub(crate) received: u32,
    /// More unsolicited Data-Out will arrive.
    pub(crate) unsolicited: bool,
    /// `DataSN` of the next Data-Out of the current sequence.
    pub(crate) data_sn: u32,
    /// All requested data has arrived: the command may be running, and later data is discarded.
    pub(crate) gathered: bool,
    /// The bytes that the shell requested, once it has.
    pub(crate) wanted: Option<u32>,
    pub(crate) bursts: Bursts,
    /// R2Ts sent.
    pub(crate) r2t_sn: u32,
    /// `DataSN` of the next Data-In.
    pub(crate) data_in_sn: u32,
    /// The transfer failed; further data is discarded until the shell has answered.
    pub(crate) broken: bool,
}

/// The tasks without a response. Their number is bounded by the command window and
/// [`IMMEDIATE_TASKS_MAX`](super::IMMEDIATE_TASKS_MAX), so a search through the tags is cheap and
/// nothing is allocated after warm-up.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tags: Vec<Itt>,
    entries: Vec<Task>,
    /// Tasks outside of the command window.
    immediate: usize,
}

impl Tasks {
    pub(crate) fn insert(&mut self, task: Task) {
        debug_assert!(!self.contains(task.itt), "a tag names one task");
        self.immediate += usize::from(task.immediate);
        self.tags.push(task.itt);
        self.entries.push(task);
    }

    pub(crate) fn contains(&self, itt: Itt) -> bool {
        self.tags.contains(&itt)
    }

    pub(crate) fn find(&mut self, itt: Itt) -> Option<&mut Task> {
        let index = self.tags.iter().position(|&tag| tag == itt)?;
        self.entries.get_mut(index)
    }

    pub(crate) fn remove(&mut self, itt: Itt) -> Option<Task> {
        let index = self.tags.iter().position(|&tag| tag == itt)?;
        self.tags.swap_remove(index);
        let task = self.entries.swap_remove(index);
        self.immediate -= usize::from(task.immediate);
        Some(task)
    }

    /// Tags of all tasks without a response, in no particular order.
    pub(crate) fn tags(&self) -> &[Itt] {
        &self.tags
    }

    /// The number of tasks in the command window.
    pub(crate) fn in_window(&self) -> usize {
        self.entries.len() - self.immediate
    }

    /// The number of tasks for immediate delivery.
    pub(crate) const fn immediate(&self) -> usize {
        self.immediate
    }
}
