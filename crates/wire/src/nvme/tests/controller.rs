//! Tests of a controller: properties, features, keep alive, Abort.

use std::sync::Arc;
use std::time::Duration;

use super::harness::{HOST, SUBSYSTEM, Sgl, parsed, sqe};
use crate::nvme::controller::{Action, Property, PropertyValue, Subsystem, Transition, View};
use crate::nvme::{
    AnaState, Completion, Connect, Controller, Limits, Namespace, Status, Transfer, discovery,
};

/// What Linux writes to CC.
pub(super) const ENABLE: u64 = 0x0046_0001;

pub(super) fn namespace(nsid: u32) -> Namespace {
    Namespace {
        nsid,
        blocks: 2048,
        block_shift: 9,
        thin: true,
        read_only: false,
        persists_reservations: nsid != 2,
        physical_block_exponent: 3,
        unmap_granularity_blocks: 8,
        optimal_transfer_blocks: 0,
        fused_blocks: 8,
        nguid: [nsid as u8; 16],
        uuid: [0xa0; 16],
        ana: AnaState::Optimized,
    }
}

/// A gateway around a controller.
pub(super) struct Gateway {
    pub(super) controller: Controller,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) controllers: Vec<u16>,
    pub(super) page: Option<Arc<[u8]>>,
}

impl Gateway {
    pub(super) fn new(nqn: &str, kato_ms: u32) -> Self {
        let subsystem = Subsystem {
            nqn: nqn.to_owned(),
            serial: "0123456789abcdef0123".to_owned(),
            revision: "0.1.0".to_owned(),
            quiesce_ms: 1000,
        };
        let connect = Connect {
            queue: 0,
            depth: 32,
            kato_ms,
            controller: 0xffff,
            host_id: [7; 16],
            host: HOST.to_owned(),
            subsystem: nqn.to_owned(),
        };
        let now = Duration::from_secs(100);
        let controller = Controller::new(5, Arc::new(subsystem), Limits::default(), &connect, now);
        let namespaces = vec![namespace(1), namespace(2), namespace(9)];
        Self { controller, namespaces, controllers: vec![1, 5, 6], page: None }
    }

    /// One that is enabled.
    pub(super) fn enabled() -> Self {
        let mut gateway = Self::new(SUBSYSTEM, 15_000);
        assert_eq!(gateway.set(0x14, ENABLE), Ok((0, Some(Transition::Enabled))));
        gateway
    }

    pub(super) fn discovery() -> Self {
        let mut gateway = Self::new(discovery::NQN, 0);
        assert_eq!(gateway.set(0x14, ENABLE), Ok((0, Some(Transition::Enabled))));
        gateway
    }

    pub(super) fn set(
        &mut self,
        offset: u32,
        value: u64,
    ) -> Result<(u64, Option<Transition>), Status> {
        let value = PropertyValue::Set(value);
        self.controller.property(Property { offset, is_wide: false, value })
    }

    pub(super) fn get(&mut self, offset: u32) -> u64 {
        let value = PropertyValue::Get;
        let property = Property { offset, is_wide: offset == 0, value };
        self.controller.property(property).unwrap().0
    }

    /// Executes an admin command whose data has this length; from the host for odd opcodes.
    pub(super) fn admin(&mut self, opcode: u8, nsid: u32, cdws: &[u32], length: u32) -> Action {
        let transfer = match (opcode & 3, length) {
            (1, length) => Transfer::ByRequest(length),
            (2, length) => Transfer::ToHost(length),
            _ => Transfer::None,
        };
        self.admin_with(opcode, nsid, cdws, transfer)
    }

    pub(super) fn admin_with(
        &mut self,
        opcode: u8,
        nsid: u32,
        cdws: &[u32],
        transfer: Transfer,
    ) -> Action {
        let sqe = parsed(&sqe(opcode, 77, nsid, cdws, Sgl::Transport(0)));
        let view = View {
            namespaces: &self.namespaces,
            controllers: &self.controllers,
            discovery: self.page.as_ref(),
        };
        self.controller.admin(3, &sqe, transfer, &view)
    }

    /// The data of a command, as the host gets it.
    pub(super) fn data(&mut self, opcode: u8, nsid: u32, cdws: &[u32], length: u32) -> Vec<u8> {
        match self.admin(opcode, nsid, cdws, length) {
            Action::Data { data, from } => {
                let mut data = data[from..].to_vec();
                data.resize(length as usize, 0);
                data
            }
            other => panic!("{other:?} has no data"),
        }
    }

    /// Get Features, as a value.
    pub(super) fn feature(&mut self, id: u32) -> u32 {
        match self.admin(0x0a, 0, &[id], 0) {
            Action::Complete(Completion { status: Status::SUCCESS, dw0, .. }) => dw0,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn failed(status: Status) -> Action {
    Action::Complete(Completion::failed(status))
}

pub(super) fn value(dw0: u32) -> Action {
    Action::Complete(Completion::value(dw0))
}

/// Capabilities say what there is; properties have their size, and no other can be read or written.
#[test]
fn properties_are_as_specified() {
    let mut gateway = Gateway::new(SUBSYSTEM, 0);
    assert_eq!(gateway.get(0x00), 127 | 1 << 16 | 120 << 24 | 1 << 37);
    assert_eq!(gateway.get(0x08), 0x0001_0400);
    assert_eq!((gateway.get(0x14), gateway.get(0x1c)), (0, 0));
    for (offset, is_wide) in [(0, false), (8, true), (0x14, true), (0x20, false), (0x28, true)] {
        let property = Property { offset, is_wide, value: PropertyValue::Get };
        assert_eq!(
            gateway.controller.property(property),
            Err(Status::INVALID_FIELD),
            "{offset:#x}"
        );
    }
    for offset in [0x08, 0x1c, 0x20] {
        assert_eq!(gateway.set(offset, 1), Err(Status::INVALID_FIELD));
    }
}

/// A controller is enabled with the one configuration there is, and fails with others.
#[test]
fn controllers_are_enabled() {
    for (cc, status) in [
        (ENABLE, 0b01),
        (0x0046_0011, 0b10),
        (0x0046_0081, 0b10),
        (0x0046_0801, 0b10),
        (0x0045_0001, 0b10),
        (0x0036_0001, 0b10),
    ] {
        let mut gateway = Gateway::new(SUBSYSTEM, 0);
        assert_eq!(gateway.admin(0x06, 0, &[1], 4096), failed(Status::SEQUENCE_ERROR));
        gateway.set(0x14, cc).unwrap();
        assert_eq!((gateway.get(0x1c), gateway.get(0x14)), (status, cc), "{cc:#x}");
        assert_eq!(gateway.controller.is_enabled(), status == 1);
        if status != 1 {
            gateway.set(0x14, 0).unwrap();
            assert_eq!(gateway.set(0x14, ENABLE), Ok((0, Some(Transition::Enabled))));
        }
    }
}

/// A reset is ready only when the last task has left, and takes what the host has set.
#[test]
fn resets_wait_for_tasks() {
    let mut gateway = Gateway::enabled();
    gateway.admin(0x09, 0, &[0x0b, 1 << 8], 0);
    gateway.controller.namespace_changed(1);
    assert_eq!(gateway.set(0x14, ENABLE & !1), Ok((0, Some(Transition::Reset))));
    assert_eq!(gateway.get(0x1c), 1, "still ready");
    assert!(!gateway.controller.is_enabled());
    assert_eq!(gateway.set(0x14, ENABLE), Err(Status::SEQUENCE_ERROR));
    gateway.controller.quiesced();
    assert_eq!(gateway.get(0x1c), 0);
    gateway.set(0x14, ENABLE).unwrap();
    assert_eq!(gateway.feature(0x0b), 0);
    gateway.admin(0x0c, 0, &[], 0);
    assert_eq!(gateway.controller.take_event(), None, "the event is of another time");
}

/// A shutdown is complete only when the last task has left, and ends the keep alive timer; expiry is another thing.
#[test]
fn shutdowns_wait_for_tasks() {
    let mut gateway = Gateway::enabled();
    assert!(gateway.controller.deadline().is_some() && gateway.controller.takes_queues());
    assert_eq!(gateway.set(0x14, ENABLE | 1 << 14), Ok((0, Some(Transition::Shutdown))));
    assert_eq!(gateway.get(0x1c), 0b0101);
    assert!(!gateway.controller.takes_queues());
    assert_eq!(gateway.controller.deadline(), None);
    assert!(!gateway.controller.expires(Duration::from_secs(10_000)));
    assert!(!gateway.controller.is_expired());
    gateway.controller.quiesced();
    assert_eq!(gateway.get(0x1c), 0b1001);
    assert_eq!(gateway.set(0x14, ENABLE | 1 << 14), Ok((0, None)), "it is asked for once");
}

/// Any command keeps a controller alive; silence ends it, once, and is not a shutdown.
#[test]
fn silence_expires() {
    let mut gateway = Gateway::enabled();
    let at = Duration::from_secs;
    assert_eq!(gateway.controller.keep_alive(), Some(at(15)));
    assert_eq!(gateway.controller.deadline(), Some(at(115)));
    gateway.controller.heard(at(110));
    assert!(!gateway.controller.expires(at(124)));
    assert!(gateway.controller.expires(at(125)));
    assert!(!gateway.controller.expires(at(126)), "it is reported once");
    assert!(gateway.controller.is_expired());
    assert_eq!(gateway.get(0x1c), 0b0011, "failed, not shut down");
}

/// Timeouts are whole seconds up to ten minutes; a discovery controller always has one.
#[test]
fn keep_alive_timeouts_are_rounded() {
    let at = Duration::from_secs;
    for (ms, seconds) in [(1, 1), (1000, 1), (1001, 2), (15_000, 15), (u32::MAX, 600)] {
        let gateway = Gateway::new(SUBSYSTEM, ms);
        assert_eq!(gateway.controller.keep_alive(), Some(at(seconds)), "{ms} ms");
    }
    let mut gateway = Gateway::new(SUBSYSTEM, 0);
    assert_eq!(gateway.controller.deadline(), None);
    gateway.set(0x14, ENABLE).unwrap();
    assert_eq!(gateway.admin(0x18, 0, &[], 0), failed(Status::KEEP_ALIVE_INVALID));
    assert_eq!(gateway.admin(0x09, 0, &[0x0f, 2500], 0), value(0));
    assert_eq!(gateway.feature(0x0f), 3000);
    assert_eq!(gateway.admin(0x18, 0, &[], 0), value(0));
    let discovery = Gateway::discovery();
    assert_eq!(discovery.controller.keep_alive(), Some(at(120)));
    assert_eq!(Gateway::new(discovery::NQN, 30_000).controller.keep_alive(), Some(at(30)));
}

/// A host gets as many queues as it asks for, up to the limit; `FFFFh` asks for none.
#[test]
fn queues_are_granted() {
    let mut gateway = Gateway::enabled();
    for (asked, granted) in [(0x0001_0001, 0x0001_0001), (0x00ff_00ff, 0x0007_0007), (5, 0)] {
        assert_eq!(gateway.admin(0x09, 0, &[7, asked], 0), value(granted));
    }
    for wrong in [0xffff, 0xffff_0000] {
        assert_eq!(gateway.admin(0x09, 0, &[7, wrong], 0), failed(Status::INVALID_FIELD));
    }
    assert_eq!(gateway.feature(7), 0x0007_0007);
}

/// Features that there are not, that are fixed and that cannot be saved have each their status.
#[test]
fn features_are_checked() {
    let mut gateway = Gateway::enabled();
    let set = |gateway: &mut Gateway, id| gateway.admin(0x09, 0, &[id], 0);
    assert_eq!(set(&mut gateway, 0x55), failed(Status::INVALID_FIELD));
    assert_eq!(set(&mut gateway, 0x06), failed(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(set(&mut gateway, 0x02), failed(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(set(&mut gateway, 1 << 31 | 0x0b), failed(Status::FEATURE_NOT_SAVEABLE));
    assert_eq!(set(&mut gateway, 0x81), failed(Status::SEQUENCE_ERROR));
    assert_eq!(gateway.admin(0x0a, 0, &[0x55], 0), failed(Status::INVALID_FIELD));
    for id in [1, 2, 4, 5, 10, 0x0b] {
        assert_eq!(gateway.feature(id), 0, "{id:#x}");
    }
    assert_eq!(gateway.feature(6), 1);
    // A value has no data, either way.
    assert_eq!(gateway.admin(0x0a, 0, &[6], 4096), failed(Status::SGL_LENGTH_INVALID));
    assert_eq!(gateway.admin(0x09, 0, &[0x0b, 0], 512), failed(Status::SGL_LENGTH_INVALID));
    assert_eq!(gateway.admin(0x0a, 0, &[0x81, 0], 16), failed(Status::INVALID_FIELD));
    assert_eq!(gateway.data(0x0a, 0, &[0x81, 1], 16), [7; 16]);
    assert_eq!(gateway.admin(0x0a, 0, &[0x81, 1], 8), failed(Status::SGL_LENGTH_INVALID));
    let mut discovery = Gateway::discovery();
    assert_eq!(discovery.admin(0x09, 0, &[7, 0], 0), failed(Status::INVALID_FIELD));
    assert_eq!(discovery.admin(0x0a, 0, &[7], 0), failed(Status::INVALID_FIELD));
    assert_eq!(discovery.feature(0x0f), 120_000);
}

/// Host Behavior Support is gathered, kept, and taken back by a reset.
#[test]
fn host_behaviour_is_gathered() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.admin(0x09, 0, &[0x16], 500), failed(Status::SGL_LENGTH_INVALID));
    assert_eq!(gateway.admin(0x09, 0, &[0x16], 512), Action::Gather(512));
    let command = parsed(&sqe(0x09, 1, 0, &[0x16], Sgl::Transport(512)));
    let mut data = [0; 512];
    data[0] = 2;
    assert_eq!(gateway.controller.gathered(&command, &data), failed(Status::INVALID_FIELD));
    data[0] = 1;
    assert_eq!(gateway.controller.gathered(&command, &data), value(0));
    assert!(gateway.controller.retries_delayed());
    assert_eq!(gateway.data(0x0a, 0, &[0x16], 512)[..2], [1, 0]);
    gateway.set(0x14, 0).unwrap();
    assert!(!gateway.controller.retries_delayed());
}

/// An Abort of itself, and one too many, are answered at once; others wait for the end of their command.
#[test]
fn aborts_wait_for_their_command() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.admin(0x08, 0, &[77 << 16], 0), value(1), "not aborted");
    let abort = |gateway: &mut Gateway, queue: u32, cid: u32| {
        gateway.admin(0x08, 0, &[queue | cid << 16], 0)
    };
    assert_eq!(abort(&mut gateway, 1, 77), Action::Abort { queue: 1, cid: 77 });
    for slot in 10..14 {
        assert!(matches!(abort(&mut gateway, 2, 9), Action::Abort { queue: 2, cid: 9 }));
        gateway.controller.abort_waits(slot, 2, slot % 2).unwrap();
    }
    assert_eq!(abort(&mut gateway, 2, 9), failed(Status::ABORT_LIMIT));
    assert_eq!(gateway.controller.ended(1, 0), []);
    assert_eq!(gateway.controller.ended(2, 0), [10, 12]);
    assert_eq!(gateway.controller.ended(2, 0), []);
    assert_eq!(gateway.controller.queue_ended(2), [11, 13]);
    assert!(matches!(abort(&mut gateway, 2, 9), Action::Abort { .. }));
}

/// Unknown opcodes, fused commands and wrong descriptors are refused, in this order.
#[test]
fn admin_commands_are_checked() {
    let mut gateway = Gateway::enabled();
    let wrong = Transfer::Invalid(Status::SGL_TYPE_INVALID);
    for opcode in [0x00, 0x04, 0x0d, 0x10, 0x14, 0x38, 0x80, 0x84, 0xc0] {
        assert_eq!(gateway.admin_with(opcode, 0, &[], wrong), failed(Status::INVALID_OPCODE));
    }
    assert_eq!(gateway.admin_with(0x06, 0, &[1], wrong), failed(Status::SGL_TYPE_INVALID));
    let mut discovery = Gateway::discovery();
    assert_eq!(discovery.admin(0x08, 0, &[], 0), failed(Status::INVALID_OPCODE));
    let mut fused = sqe(0x06, 1, 0, &[1], Sgl::Transport(4096));
    fused[1] |= 1;
    let view = View { namespaces: &[], controllers: &[], discovery: None };
    let action = gateway.controller.admin(3, &parsed(&fused), wrong, &view);
    assert_eq!(action, failed(Status::INVALID_FIELD));
}
