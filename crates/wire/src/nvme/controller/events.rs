//! Asynchronous events, and the requests that are held for them.

use std::collections::VecDeque;

use crate::nvme::status::Status;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A namespace has another size, has come, or has left.
    NamespaceAttribute,
    /// An ANA state has changed.
    AnaChange,
    /// The discovery page has changed.
    DiscoveryChange,
    /// There are notices of reservations.
    ReservationNotice,
}

impl Event {
    /// The bit in OAES and in the feature that selects events. Zero: notices of reservations have a feature for
    /// themselves.
    pub(super) const fn bit(self) -> u32 {
        match self {
            Self::ReservationNotice => 0,
            Self::NamespaceAttribute => 1 << 8,
            Self::AnaChange => 1 << 11,
            Self::DiscoveryChange => 1 << 31,
        }
    }

    /// Dword 0: the type "notice", or that of the command set, what it is about, and the log page that tells more.
    pub(super) const fn dw0(self) -> u32 {
        let (kind, info) = match self {
            Self::NamespaceAttribute => (0x2, 0x00),
            Self::AnaChange => (0x2, 0x03),
            Self::DiscoveryChange => (0x2, 0xf0),
            Self::ReservationNotice => (0x6, 0x00),
        };
        kind | info << 8 | (self.log_page() as u32) << 16
    }

    /// The log page whose reading clears the event.
    pub(super) const fn log_page(self) -> u8 {
        match self {
            Self::NamespaceAttribute => 0x04,
            Self::AnaChange => 0x0c,
            Self::DiscoveryChange => 0x70,
            Self::ReservationNotice => 0x80,
        }
    }
}

/// State of an event. One of each kind is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// It waits for a request.
    Pending,
    /// It was reported, and is masked until the host has read its log page.
    Reported,
}

/// The events of a controller.
#[derive(Debug, Default)]
pub(super) struct Events {
    states: [State; ALL.len()],
    /// Slots of the held requests, oldest first.
    held: VecDeque<u32>,
}

impl Events {
    /// Holds a request until there is an event.
    pub(super) fn hold(&mut self, slot: u32) -> Result<(), Status> {
        if self.held.len() >= REQUESTS_MAX {
            return Err(Status::EVENT_REQUEST_LIMIT);
        }
        self.held.push_back(slot);
        Ok(())
    }

    /// Forgets a held request, and returns whether there was one.
    pub(super) fn withdraw(&mut self, slot: u32) -> bool {
        let place = self.held.iter().position(|&held| held == slot);
        place.and_then(|place| self.held.remove(place)).is_some()
    }

    pub(super) fn raise(&mut self, event: Event) {
        let state = self.state(event);
        if *state == State::Idle {
            *state = State::Pending;
        }
    }

    /// The host has read this log page, and wants to hear of the next change.
    pub(super) fn clear(&mut self, log_page: u8) {
        for event in ALL {
            if event.log_page() == log_page {
                *self.state(event) = State::Idle;
            }
        }
    }

    /// Drops the events that wait and whose bits are not in `mask`.
    pub(super) fn keep(&mut self, mask: u32) {
        for event in ALL {
            if event.bit() != 0 && event.bit() & mask == 0 {
                *self.state(event) = State::Idle;
            }
        }
    }

    /// The next event, and the request that it answers.
    pub(super) fn take(&mut self) -> Option<(u32, u32)> {
        let event = ALL.into_iter().find(|&event| *self.state(event) == State::Pending)?;
        let slot = self.held.pop_front()?;
        *self.state(event) = State::Reported;
        Some((slot, event.dw0()))
    }

    const fn state(&mut self, event: Event) -> &mut State {
        &mut self.states[event as usize]
    }
}

/// All events, in the order in which they are reported.
const ALL: [Event; 4] =
    [Event::NamespaceAttribute, Event::AnaChange, Event::DiscoveryChange, Event::ReservationNotice];
/// Requests that are held at once (AERL + 1).
pub(super) const REQUESTS_MAX: usize = 4;
