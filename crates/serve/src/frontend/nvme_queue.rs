//! One NVMe queue: its state machine, the namespaces that its host sees, and the commands that it holds back.

use crate::buffer::Payload;
use crate::frontend::nvme_fused::Fused;
use crate::frontend::nvme_namespaces::Namespaces;
use crate::frontend::nvme_part::Part;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_flow::clock::{Duration, Instant};
use weir_flow::dispatch::{Member, Weight};
use weir_flow::request::TenantId;
use weir_wire::nvme::{Connect, Connection, Limits, Status};
use weir_wire::scsi::nexus::HostId;

/// The state machine of a queue, sending pooled buffers.
pub(crate) type Wire = Connection<Payload>;

/// A queue: one connection.
pub(crate) struct Queue {
    pub(crate) wire: Wire,
    /// Where its host can reach the gateway, for discovery.
    pub(super) portals: Vec<SocketAddr>,
    /// The address that its host came to.
    pub(super) local: Option<SocketAddr>,
    /// Its controller, from Connect on.
    pub(crate) controller: Option<u16>,
    /// NQN of the host.
    pub(crate) host: String,
    /// Identifier of the host, under which it is registered.
    pub(super) host_id: HostId,
    /// NQN of the subsystem.
    pub(crate) subsystem: String,
    /// The tenant that claims the host by its name.
    pub(crate) claim: Option<TenantId>,
    pub(super) namespaces: Rc<Namespaces>,
    /// When a command was taken last.
    pub(super) heard: Instant,
    /// The discovery page of its host, and the generation of that.
    pub(super) page: Option<(u64, Arc<[u8]>)>,
    /// Since when the front of a PDU waits for its rest.
    pub(super) partial: Option<Instant>,
    /// The oldest command whose data has not come whole, and since when that is known.
    receiving: Option<(u64, Instant)>,
    /// A Connect that waits for the end of an older connection of the same queue, and until when.
    pub(super) connecting: Option<(Box<Connect>, Instant)>,
    /// Commands for which there is no memory yet, in order. At most as many as the queue has places.
    pub(super) waiting: VecDeque<Waiting>,
    /// What is left of commands that are done in parts, by their slots; or how they end instead.
    pub(super) rest: BTreeMap<u32, Result<VecDeque<Part>, Status>>,
    /// Its pairs of Compare and Write.
    pub(super) fused: Fused,
    /// The slot of a Disconnect, which is answered last.
    pub(super) leaving: Option<u32>,
    /// The stream within its tenant that it is, or is a part of, and the weight of that.
    pub(crate) stream: Option<(Member, Weight)>,
    /// Memory that is set aside for data in capsules, in bytes.
    pub(super) reserved: u64,
}

/// A queue that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(super) controller: Option<u16>,
    pub(super) number: u16,
    pub(super) reserved: u64,
    /// The stream within its tenant that it was a part of.
    pub(super) stream: Option<Member>,
}

/// A command for which there is no memory yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) slot: u32,
    pub(super) part: Part,
    pub(super) data: Data,
}

/// The data that the host has for a command.
#[derive(Debug)]
pub(super) enum Data {
    /// None.
    None,
    /// To be asked for; the length in bytes.
    ByRequest(u32),
    /// In the capsule; the length in bytes, and what has come while the command waits.
    InCapsule { length: u32, bytes: Vec<u8>, complete: bool },
}

impl Data {
    /// Its length in bytes.
    pub(super) const fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::ByRequest(length) | Self::InCapsule { length, .. } => *length,
        }
    }
}

impl Queue {
    /// The queue of a new connection, whose host can reach the gateway at `portals` and has come to `local`.
    pub(crate) fn new(limits: Limits, portals: Vec<SocketAddr>, local: Option<SocketAddr>) -> Self {
        Self {
            wire: Wire::new(limits),
            portals,
            local,
            controller: None,
            host: String::new(),
            host_id: HostId::default(),
            subsystem: String::new(),
            claim: None,
            namespaces: Rc::default(),
            heard: Instant::ZERO,
            page: None,
            partial: None,
            receiving: None,
            connecting: None,
            waiting: VecDeque::new(),
            rest: BTreeMap::new(),
            fused: Fused::default(),
            leaving: None,
            stream: None,
            reserved: 0,
        }
    }

    /// What its controller must know of its end.
    pub(crate) fn ended(self) -> Ended {
        let Self { controller, wire, reserved, stream, .. } = self;
        let (number, stream) = (wire.queue().unwrap_or(0), stream.map(|(member, _)| member));
        Ended { controller, number, reserved, stream }
    }

    /// The volumes behind the namespaces that its host sees.
    pub(crate) fn volumes(&self) -> &[usize] {
        &self.namespaces.volumes
    }

    /// The first namespace of this volume that its host sees.
    pub(crate) fn nsid_of(&self, volume: usize) -> Option<u32> {
        self.namespaces.nsid_of(volume)
    }

    /// Whether its Connect, or a Compare of a pair, has waited for too long.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.connecting.as_ref().is_some_and(|(_, until)| *until <= now) || self.fused.is_late(now)
    }

    /// Once a second: takes note of data that does not come.
    pub(crate) fn watch(&mut self, now: Instant) {
        let oldest = self.wire.oldest_receiving();
        if self.receiving.map(|(command, _)| command) != oldest {
            self.receiving = oldest.map(|command| (command, now));
        }
    }

    /// Whether its host has begun a PDU, or the data of a command, and not gone on within `limit`.
    pub(crate) fn stalls(&self, now: Instant, limit: Duration) -> bool {
        let data = self.receiving.map(|(_, since)| since);
        [self.partial, data].into_iter().flatten().any(|since| now.saturating_since(since) >= limit)
    }

    /// Whether commands wait for memory.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The command in this slot, if it waits for memory.
    pub(super) fn waiting_in(&mut self, slot: u32) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|waiting| waiting.slot == slot)
    }
}
