//! Notices of reservations: which the host wants, and which it has not read.

use std::collections::{BTreeMap, VecDeque};

use super::events::Event;
use super::identify::{existing, find};
use super::{Action, Controller, View};
use crate::nvme::event::Completion;
use crate::nvme::namespace::NSID_ALL;
use crate::nvme::reservation::{NOTICES, Notice};
use crate::nvme::status::Status;

/// The notices of a controller.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// Number, kind and namespace of each that was not read, oldest first.
    unread: VecDeque<(u64, Notice, u32)>,
    /// The number of the one that the log page has shown last.
    shown: Option<u64>,
    /// How many there were.
    count: u64,
    /// Masked kinds of the namespaces of which some are.
    masks: BTreeMap<u32, u32>,
}

impl Notices {
    /// The log page, read from this offset: the oldest notice, and how many come after it. All zeroes without one.
    pub(super) fn page(&mut self, offset: u64) -> [u8; LENGTH] {
        let mut page = [0; LENGTH];
        if offset == 0 {
            self.shown = self.unread.front().map(|&(number, ..)| number);
        }
        if let Some(&(number, notice, nsid)) = self.unread.front() {
            page[..8].copy_from_slice(&number.to_le_bytes());
            page[8] = notice as u8;
            page[9] = (self.unread.len() - 1) as u8;
            page[12..16].copy_from_slice(&nsid.to_le_bytes());
        }
        page
    }

    /// The log page was read up to this byte. A host may read it in pieces: the notice is read with the last of them,
    /// and only the one that the first has shown. Returns whether there is one to be read.
    pub(super) fn read(&mut self, end: u64) -> bool {
        let front = self.unread.front().map(|&(number, ..)| number);
        if end >= LENGTH as u64 && front.is_some() && front == self.shown {
            self.unread.pop_front();
        }
        !self.unread.is_empty()
    }
}

impl Controller {
    /// A registration of the host, or the reservation of a namespace where it is registered, was changed by another
    /// host.
    pub fn reservation_notice(&mut self, nsid: u32, notice: Notice) {
        let notices = &mut self.notices;
        if notices.masks.get(&nsid).is_some_and(|mask| mask & notice.bit() != 0) {
            return;
        }
        notices.count += 1;
        if notices.unread.len() == UNREAD_MAX {
            notices.unread.pop_front();
        }
        notices.unread.push_back((notices.count, notice, nsid));
        self.events.raise(Event::ReservationNotice);
    }

    /// A reset: what was not read is forgotten, and nothing is masked.
    pub(super) fn forget_notices(&mut self) {
        self.notices = Notices::default();
        self.events.clear(Event::ReservationNotice.log_page());
    }

    /// The masked kinds of notices of a namespace.
    pub(super) fn masked_notices(&self, nsid: u32, view: &View<'_>) -> Result<u32, Status> {
        of_one(nsid, view)?;
        Ok(self.notices.masks.get(&nsid).copied().unwrap_or(0))
    }

    /// Masks kinds of notices of a namespace, or of all.
    pub(super) fn mask_notices(
        &mut self,
        nsid: u32,
        mask: u32,
        view: &View<'_>,
    ) -> Result<Action, Status> {
        if mask & !NOTICES != 0 {
            return Err(Status::INVALID_FIELD);
        }
        if nsid == NSID_ALL {
            self.notices.masks = view.namespaces.iter().map(|one| (one.nsid, mask)).collect();
        } else {
            of_one(nsid, view)?;
            self.notices.masks.insert(nsid, mask);
        }
        Ok(Action::Complete(Completion::SUCCESS))
    }
}

/// Refuses an identifier that is not that of one active namespace.
pub(super) fn of_one(nsid: u32, view: &View<'_>) -> Result<(), Status> {
    existing(nsid)?;
    find(nsid, view).map(|_| ()).ok_or(Status::INVALID_FIELD)
}

/// Most notices that are kept. One more drops the oldest, which the host sees in the numbers.
const UNREAD_MAX: usize = 64;
/// Length of the log page, in bytes.
const LENGTH: usize = 64;
