//! Tests of reservation commands, their features, and the notices that they lead to.

use super::controller::{Gateway, failed, value};
use super::harness::{Sgl, parsed, sqe};
use super::io::{judge, judge_in, namespaces};
use crate::nvme::controller::Action;
use crate::nvme::io::Io;
use crate::nvme::reservation::{Notice, keys};
use crate::nvme::{AnaState, Status, Transfer};
use crate::scsi::reservation::{HostAction, HostOut};
use crate::scsi::sense::Sense;

const REGISTER: u8 = 0x0d;
const REPORT: u8 = 0x0e;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const IGNORE_KEY: u32 = 1 << 3;

fn reserve(opcode: u8, dword: u32) -> Result<HostOut, Status> {
    match judge(opcode, &[dword], Transfer::InCapsule(16))? {
        Io::Reserve(out) => Ok(out),
        other => panic!("{other:?}"),
    }
}

/// Every action is read as what it is; others, types that do not exist, a key that must not be ignored, and the reserved
/// persistence are wrong fields.
#[test]
fn commands_are_read() {
    for (opcode, actions) in [
        (REGISTER, &[HostAction::Register, HostAction::Unregister, HostAction::Replace][..]),
        (ACQUIRE, &[HostAction::Acquire, HostAction::Preempt, HostAction::PreemptAndAbort]),
        (RELEASE, &[HostAction::Release, HostAction::Clear]),
    ] {
        for number in 0..8 {
            let read = reserve(opcode, number | 6 << 8);
            match actions.get(number as usize) {
                Some(&action) => {
                    let out = HostOut { action, rtype: 6, ignores_key: false, persistence: None };
                    assert_eq!(read, Ok(out));
                }
                None => assert_eq!(read, Err(Status::INVALID_FIELD), "{opcode:x}h, {number}"),
            }
        }
    }
    for (dword, persistence) in [(0, None), (2 << 30, Some(false)), (3 << 30, Some(true))] {
        assert_eq!(reserve(REGISTER, dword).map(|out| out.persistence), Ok(persistence));
    }
    assert_eq!(reserve(REGISTER, 1 << 30), Err(Status::INVALID_FIELD));
    assert_eq!(reserve(ACQUIRE, 1 << 8 | 3 << 30).map(|out| out.persistence), Ok(None));
    assert_eq!(reserve(REGISTER, 1 | IGNORE_KEY).map(|out| out.ignores_key), Ok(true));
    for (opcode, dword) in [(ACQUIRE, 1 << 8 | IGNORE_KEY), (RELEASE, 1 << 8 | IGNORE_KEY)] {
        assert_eq!(reserve(opcode, dword), Err(Status::INVALID_FIELD));
    }
    for rtype in [0, 7, 255] {
        assert_eq!(reserve(ACQUIRE, rtype << 8), Err(Status::INVALID_FIELD));
    }
}

/// Keys are little-endian; a list may be longer than its keys, and not shorter.
#[test]
fn lists_have_keys() {
    let list: Vec<u8> = (1..=16).collect();
    assert_eq!(keys(&list), [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09]);
    assert_eq!(keys(&list[..8]), [0x0807_0605_0403_0201, 0]);
    for (opcode, dword, due) in [(REGISTER, 0, 16), (ACQUIRE, 1 << 8, 16), (RELEASE, 0, 8)] {
        for (length, fits) in [(due - 4, false), (due, true), (4096, true)] {
            let read = judge(opcode, &[dword], Transfer::ByRequest(length));
            assert_eq!(read.is_ok(), fits, "{opcode:x}h, {length} bytes");
            assert!(read.is_ok_and(|io| io.list_length() == due) || !fits);
        }
        assert_eq!(judge(opcode, &[dword], Transfer::None), Err(Status::SGL_LENGTH_INVALID));
    }
}

/// A report is in the extended format, for exactly the room that the host has, within the limit of a transfer.
#[test]
fn reports_are_checked() {
    let report = |dwords: u32, extended, room| {
        judge(REPORT, &[dwords - 1, extended], Transfer::ToHost(room))
    };
    assert_eq!(report(16, 1, 64), Ok(Io::ReservationReport { dwords: 16 }));
    assert_eq!(report(16, 0, 64), Err(Status::HOST_ID_INCONSISTENT));
    assert_eq!(report(16, 1, 68), Err(Status::SGL_LENGTH_INVALID));
    assert_eq!(report(16 << 10, 1, 64 << 10), Ok(Io::ReservationReport { dwords: 16 << 10 }));
    assert_eq!(report((16 << 10) + 1, 1, (64 << 10) + 4), Err(Status::INVALID_FIELD));
    let endless = judge(REPORT, &[u32::MAX, 1], Transfer::ToHost(0));
    assert_eq!(endless, Err(Status::INVALID_FIELD));
}

/// The checks before the fields are those of every command: FUSE and descriptor; the namespace comes after them.
#[test]
fn checks_are_in_order() {
    let wrong_type = Transfer::Invalid(Status::SGL_TYPE_INVALID);
    assert_eq!(judge(REGISTER, &[7], wrong_type), Err(Status::SGL_TYPE_INVALID));
    assert_eq!(judge(REPORT, &[0, 0], wrong_type), Err(Status::SGL_TYPE_INVALID));
    let room = Transfer::InCapsule(16);
    let everywhere = judge_in(&namespaces(), REGISTER, 0xffff_ffff, &[0], room);
    assert_eq!(everywhere, Err(Status::INVALID_NAMESPACE));
    assert_eq!(judge_in(&namespaces(), REGISTER, 3, &[0], room), Err(Status::INVALID_FIELD));
    let mut away = namespaces();
    away[1].ana = AnaState::Inaccessible;
    assert_eq!(judge_in(&away, REGISTER, 9, &[0], room), Err(Status::ANA_INACCESSIBLE));
    let mut fused = sqe(REGISTER, 1, 9, &[0], Sgl::Capsule(16));
    fused[1] |= 1;
    let read = crate::nvme::io::decode(&parsed(&fused), room, &namespaces());
    assert_eq!(read, Err(Status::INVALID_FIELD));
}

impl Gateway {
    fn notice(&mut self, nsid: u32, notice: Notice) {
        self.controller.reservation_notice(nsid, notice);
    }

    /// Reads the log page of notices: number, kind, how many follow, namespace.
    fn next_notice(&mut self, retain: bool) -> (u64, u8, u8, u32) {
        let id = 0x80 | u32::from(retain) << 15 | 15 << 16;
        let page = self.data(0x02, 0xffff_ffff, &[id], 64);
        assert!(page[16..].iter().all(|&byte| byte == 0));
        let number = u64::from_le_bytes(*page.first_chunk().unwrap());
        (number, page[8], page[9], u32::from_le_bytes(*page[12..].first_chunk().unwrap()))
    }
}

/// The event that there are notices, as dword 0 tells it.
const EVENT: Option<(u32, u32)> = Some((3, 0x0080_0006));

/// Notices come one by one, oldest first, with an event when there is one to read; an event needs no feature.
#[test]
fn notices_are_read_one_by_one() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.next_notice(false), (0, 0, 0, 0));
    assert_eq!(gateway.admin(0x0c, 0, &[], 0), Action::Hold);
    gateway.notice(2, Notice::RegistrationPreempted);
    gateway.notice(9, Notice::ReservationReleased);
    assert_eq!(gateway.controller.take_event(), EVENT);
    gateway.admin(0x0c, 0, &[], 0);
    assert_eq!(gateway.controller.take_event(), None, "it was told");
    assert_eq!(gateway.next_notice(true), (1, 1, 1, 2), "retained");
    assert_eq!(gateway.controller.take_event(), None);
    assert_eq!(gateway.next_notice(false), (1, 1, 1, 2));
    assert_eq!(gateway.controller.take_event(), EVENT, "there is another one");
    assert_eq!(gateway.admin(0x09, 0, &[0x0b, 0], 0), value(0));
    assert_eq!(gateway.next_notice(false), (2, 2, 0, 9));
    gateway.admin(0x0c, 0, &[], 0);
    assert_eq!(gateway.controller.take_event(), None, "that was the last");
    gateway.notice(1, Notice::ReservationPreempted);
    // What hosts ask to be told in general is another matter.
    assert_eq!(gateway.admin(0x09, 0, &[0x0b, 0], 0), value(0));
    assert_eq!(gateway.controller.take_event(), EVENT);
    assert_eq!(gateway.next_notice(false), (3, 3, 0, 1));
}

/// The page may be read in pieces: a notice is read with the last piece, if the first has shown it.
#[test]
fn a_notice_is_read_to_its_end() {
    let mut gateway = Gateway::enabled();
    gateway.notice(2, Notice::RegistrationPreempted);
    gateway.notice(9, Notice::ReservationReleased);
    let piece = |gateway: &mut Gateway, offset: u32, length: u32| {
        let page =
            gateway.data(0x02, 0xffff_ffff, &[0x80 | (length / 4 - 1) << 16, 0, offset], length);
        u32::from_le_bytes(*page.first_chunk().unwrap())
    };
    // Its end alone shows no notice.
    assert_eq!(piece(&mut gateway, 16, 48), 0);
    assert_eq!(gateway.next_notice(true).0, 1);
    assert_eq!(piece(&mut gateway, 0, 16), 1);
    gateway.admin(0x0c, 0, &[], 0);
    assert_eq!(gateway.controller.take_event(), EVENT, "it is still to be read");
    assert_eq!(gateway.next_notice(true).0, 1);
    assert_eq!(piece(&mut gateway, 12, 4), 2);
    assert_eq!(piece(&mut gateway, 16, 48), 0);
    assert_eq!(piece(&mut gateway, 16, 48), 0, "once more");
    assert_eq!(gateway.next_notice(true), (2, 2, 0, 9));
    // The one that was shown has left for newer ones: another one is not taken for it.
    (0..64).for_each(|_| gateway.notice(1, Notice::ReservationReleased));
    assert_eq!(piece(&mut gateway, 16, 48), 0);
    assert_eq!(gateway.next_notice(false), (3, 2, 63, 1));
}

/// 64 notices are kept; the oldest leave, which shows in their numbers. A reset forgets them.
#[test]
fn notices_are_bounded() {
    let mut gateway = Gateway::enabled();
    (0..70).for_each(|_| gateway.notice(1, Notice::ReservationReleased));
    assert_eq!(gateway.next_notice(false), (7, 2, 63, 1));
    assert_eq!(gateway.next_notice(false), (8, 2, 62, 1));
    assert_eq!(gateway.admin(0x09, 1, &[0x82, 0b1110], 0), value(0));
    gateway.set(0x14, 0x0046_0000).unwrap();
    gateway.controller.quiesced();
    gateway.set(0x14, 0x0046_0001).unwrap();
    assert_eq!(gateway.next_notice(false), (0, 0, 0, 0));
    gateway.admin(0x0c, 0, &[], 0);
    assert_eq!(gateway.controller.take_event(), None);
    gateway.notice(1, Notice::ReservationReleased);
    assert_eq!(gateway.controller.take_event(), EVENT, "nothing is masked");
    assert_eq!(gateway.next_notice(false).0, 1);
}

/// Kinds of notices are masked for one namespace or for all.
#[test]
fn notices_are_masked() {
    let mut gateway = Gateway::enabled();
    assert_eq!(gateway.admin(0x09, 2, &[0x82, 1 << 1], 0), value(0));
    assert_eq!((masks(&mut gateway, 2), masks(&mut gateway, 1)), (2, 0));
    gateway.notice(2, Notice::RegistrationPreempted);
    assert_eq!(gateway.next_notice(false).0, 0);
    gateway.notice(2, Notice::ReservationReleased);
    gateway.notice(1, Notice::RegistrationPreempted);
    assert_eq!(gateway.next_notice(false), (1, 2, 1, 2));
    assert_eq!(gateway.next_notice(false), (2, 1, 0, 1));
    assert_eq!(gateway.admin(0x09, 0xffff_ffff, &[0x82, 0b1110], 0), value(0));
    for nsid in [1, 2, 9] {
        assert_eq!(masks(&mut gateway, nsid), 0b1110);
        for notice in [Notice::RegistrationPreempted, Notice::ReservationReleased] {
            gateway.notice(nsid, notice);
        }
        gateway.notice(nsid, Notice::ReservationPreempted);
    }
    assert_eq!(gateway.next_notice(false).0, 0);
    for mask in [1, 1 << 4, u32::MAX] {
        assert_eq!(gateway.admin(0x09, 1, &[0x82, mask], 0), failed(Status::INVALID_FIELD));
    }
}

fn masks(gateway: &mut Gateway, nsid: u32) -> u32 {
    match gateway.admin(0x0a, nsid, &[0x82], 0) {
        Action::Complete(completion) => completion.dw0,
        other => panic!("{other:?}"),
    }
}

/// Persistence is set and asked for one namespace that is there; both features are of namespaces.
#[test]
fn persistence_is_of_a_namespace() {
    let mut gateway = Gateway::enabled();
    let persistence = |set| Action::Persistence { nsid: 9, set };
    assert_eq!(gateway.admin(0x0a, 9, &[0x83], 0), persistence(None));
    assert_eq!(gateway.admin(0x09, 9, &[0x83, 1], 0), persistence(Some(true)));
    assert_eq!(gateway.admin(0x09, 9, &[0x83, 0], 0), persistence(Some(false)));
    for (nsid, status) in [
        (0, Status::INVALID_NAMESPACE),
        (3, Status::INVALID_FIELD),
        (257, Status::INVALID_NAMESPACE),
        (0xffff_ffff, Status::INVALID_NAMESPACE),
    ] {
        for opcode in [0x09, 0x0a] {
            assert_eq!(gateway.admin(opcode, nsid, &[0x83, 1], 0), failed(status), "{nsid}");
        }
        assert_eq!(gateway.admin(0x0a, nsid, &[0x82], 0), failed(status));
    }
    let saved = gateway.admin(0x09, 9, &[0x83 | 1 << 31, 1], 0);
    assert_eq!(saved, failed(Status::FEATURE_NOT_SAVEABLE));
    let mut discovery = Gateway::discovery();
    for feature in [0x82, 0x83] {
        assert_eq!(discovery.admin(0x0a, 1, &[feature], 0), failed(Status::INVALID_FIELD));
        assert_eq!(discovery.admin(0x09, 1, &[feature, 0], 0), failed(Status::INVALID_FIELD));
    }
}

/// A host learns what a SCSI nexus gets as a unit attention, and nothing of other attentions.
#[test]
fn attentions_are_notices() {
    let of = |sense| Notice::of(sense);
    assert_eq!(of(Sense::REGISTRATIONS_PREEMPTED), Some(Notice::RegistrationPreempted));
    assert_eq!(of(Sense::RESERVATIONS_RELEASED), Some(Notice::ReservationReleased));
    assert_eq!(of(Sense::RESERVATIONS_PREEMPTED), Some(Notice::ReservationPreempted));
    assert_eq!(of(Sense::CAPACITY_CHANGED), None);
}
