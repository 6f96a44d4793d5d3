//! Tests of PDUs other than commands: pings, task management, messages of the target, logout; and what the shell
//! may forget.

use std::sync::Arc;

use zerocopy::FromZeros;

use super::harness::{Alone, Pair, Said, command, good, settings};
use crate::iscsi::initiator::{
    AsyncEvent, Direction, Fault, IMMEDIATE_MAX, Itt, PduKind, Settings, TaskFunction, TmfResponse,
};
use crate::iscsi::pdu::{
    AsyncMessage, DataIn, LogoutResponse, NopIn, Reject, TaskManagementResponse, opcode,
};
use crate::iscsi::target_role::Limits;

fn managed(itt: Itt, response: u8) -> TaskManagementResponse {
    let mut pdu = TaskManagementResponse::new_zeroed();
    (pdu.opcode, pdu.flags) = (opcode::TASK_MANAGEMENT_RESPONSE, 0x80);
    (pdu.itt, pdu.response) = (itt.0.into(), response);
    pdu
}

/// Each side hears the other's answer; a ping does not need the window.
#[test]
fn pings_are_answered_both_ways() {
    let limits = Limits { command_window: 1, ..Limits::default() };
    let mut pair = Pair::logged_in(settings(), limits);
    pair.stalled = true;
    pair.initiator.command(command(1, 0, Direction::None));
    pair.run().unwrap();
    assert_eq!(pair.initiator.room(), 0);
    pair.initiator.ping(8).unwrap();
    pair.initiator.ping(9).unwrap();
    pair.target.ping();
    assert_eq!(pair.run().unwrap(), [Said::Pong(8), Said::Pong(9)]);
}

/// A ping of the target is answered under its tag; one without a tag only carries numbers.
#[test]
fn pings_of_the_target_are_answered() {
    let mut alone = Alone::logged_in(settings(), &[]);
    let mut ping = NopIn::new_zeroed();
    (ping.opcode, ping.flags, ping.lun) = (opcode::NOP_IN, 0x80, [0, 5, 0, 0, 0, 0, 0, 0]);
    (ping.itt, ping.ttt) = (u32::MAX.into(), 77.into());
    assert_eq!(alone.answer(&ping, &[]).unwrap(), []);
    let [answer] = &alone.sent()[..] else { panic!() };
    assert_eq!(
        (answer.header.opcode, answer.header.flags, answer.header.lun),
        (0x40, 0x80, ping.lun)
    );
    assert_eq!((answer.word(16), answer.word(20)), (u32::MAX, 77));
    ping.ttt = u32::MAX.into();
    alone.max_cmd_sn = 40;
    assert_eq!(alone.answer(&ping, &[]).unwrap(), []);
    assert!(alone.sent().is_empty());
    assert_eq!(alone.initiator.room(), 40);
}

/// A window that the target takes back stays open, and one that contradicts itself is ignored.
#[test]
fn the_window_never_shrinks() {
    let mut alone = Alone::logged_in(settings(), &[]);
    let mut ping = NopIn::new_zeroed();
    (ping.opcode, ping.itt, ping.ttt) = (opcode::NOP_IN, u32::MAX.into(), u32::MAX.into());
    for max in [0, 5, u32::MAX] {
        alone.max_cmd_sn = max;
        alone.answer(&ping, &[]).unwrap();
        assert_eq!(alone.initiator.room(), 16);
    }
}

/// A task that is aborted has no other end; the others continue.
#[test]
fn an_aborted_task_is_over() {
    for response in [0, 1] {
        let mut alone = Alone::logged_in(settings(), &[]);
        let (first, _) = alone.command(1, Direction::Read(512));
        let (other, _) = alone.command(2, Direction::Read(512));
        let itt = alone.initiator.manage(TaskFunction::AbortTask, 3, Some(first), 10).unwrap();
        let [sent] = &alone.sent()[..] else { panic!() };
        assert_eq!((sent.header.opcode, sent.header.flags), (0x42, 0x81));
        assert_eq!((sent.word(16), sent.word(20), sent.word(32)), (itt.0, first.0, 1));
        let complete =
            if response == 0 { TmfResponse::Complete } else { TmfResponse::TaskDoesNotExist };
        let said = alone.answer(&managed(itt, response), &[]).unwrap();
        assert_eq!(said, [Said::Aborted(1), Said::Managed(10, complete)]);
        let left: Vec<Itt> = alone.initiator.outstanding().map(|one| one.itt).collect();
        assert_eq!(left, [other]);
        let fault = alone.answer(&good(first), &[]).unwrap_err();
        assert!(matches!(fault, Fault::UnknownTag { .. }), "{fault}");
    }
}

/// A function that the target refuses ends nothing, and one on a unit only what was there before.
#[test]
fn functions_end_what_they_concern() {
    let mut alone = Alone::logged_in(settings(), &[]);
    let (first, _) = alone.command(1, Direction::None);
    let refused = alone.initiator.manage(TaskFunction::AbortTaskSet, 3, None, 10).unwrap();
    alone.sent();
    let said = alone.answer(&managed(refused, 5), &[]).unwrap();
    assert_eq!(said, [Said::Managed(10, TmfResponse::NotSupported)]);
    let elsewhere = alone.initiator.manage(TaskFunction::LogicalUnitReset, 4, None, 11).unwrap();
    alone.sent();
    let said = alone.answer(&managed(elsewhere, 0), &[]).unwrap();
    assert_eq!(said, [Said::Managed(11, TmfResponse::Complete)]);
    let reset = alone.initiator.manage(TaskFunction::LogicalUnitReset, 3, None, 12).unwrap();
    let (later, _) = alone.command(2, Direction::None);
    let said = alone.answer(&managed(reset, 0), &[]).unwrap();
    assert_eq!(said, [Said::Aborted(1), Said::Managed(12, TmfResponse::Complete)]);
    assert_eq!(alone.initiator.manage(TaskFunction::AbortTask, 3, Some(first), 13), None);
    assert!(matches!(alone.answer(&good(later), &[]).unwrap()[..], [Said::Done { tag: 2, .. }]));
}

/// So it is with our own target, also with commands that are forgotten.
#[test]
fn our_own_target_ends_tasks() {
    let mut pair = Pair::logged_in(settings(), Limits::default());
    pair.stalled = true;
    let payload: Arc<[u8]> = vec![1; 4096].into();
    pair.initiator.command(command(1, 0, Direction::Write(payload, 0..4096)));
    let forgotten = pair.initiator.command(command(2, 0, Direction::Read(512)));
    pair.initiator.forget(forgotten);
    assert_eq!(pair.run().unwrap(), []);
    pair.initiator.manage(TaskFunction::LogicalUnitReset, 3, None, 7).unwrap();
    assert_eq!(pair.run().unwrap(), [Said::Aborted(1), Said::Managed(7, TmfResponse::Complete)]);
    assert_eq!(pair.initiator.outstanding().count(), 0);
}

/// A forgotten command reports nothing, but its tag and its place stay taken until it has ended.
#[test]
fn what_is_forgotten_is_not_heard() {
    let mut alone = Alone::logged_in(Settings { commands_max: 1, ..settings() }, &[]);
    let (itt, _) = alone.command(1, Direction::Read(8));
    alone.initiator.forget(itt);
    let mut data = DataIn::new_zeroed();
    (data.opcode, data.itt) = (opcode::DATA_IN, itt.0.into());
    assert_eq!(alone.answer(&data, &[1; 4]).unwrap(), []);
    let left: Vec<_> = alone.initiator.outstanding().collect();
    assert!(left.len() == 1 && left[0].forgotten && alone.initiator.room() == 0);
    (data.flags, data.data_sn, data.buffer_offset) = (0x81, 1.into(), 4.into());
    assert_eq!(alone.answer(&data, &[2; 4]).unwrap(), []);
    assert_eq!((alone.initiator.outstanding().count(), alone.initiator.room()), (0, 1));
    assert!(alone.reads.is_empty());
}

/// A command is known to be sent once its PDU is written completely, and not before.
#[test]
fn what_was_sent_is_known() {
    let mut alone = Alone::logged_in(settings(), &["ImmediateData=Yes", "InitialR2T=No"]);
    let payload: Arc<[u8]> = vec![1; 100_000].into();
    let itt = alone.initiator.command(command(1, 0, Direction::Write(payload, 0..100_000)));
    let sent = |alone: &Alone| alone.initiator.outstanding().all(|one| one.sent);
    assert!(!sent(&alone));
    // The PDU with its immediate data: as much as the target takes in one segment.
    alone.initiator.written(48 + 8191);
    assert!(!sent(&alone));
    alone.initiator.written(1);
    assert!(sent(&alone));
    assert_eq!(alone.initiator.outstanding().map(|one| one.itt).collect::<Vec<_>>(), [itt]);
}

/// Asynchronous messages of the target.
#[test]
fn messages_are_told() {
    let mut pair = Pair::logged_in(settings(), Limits::default());
    pair.target.request_logout(12);
    pair.target.announce_drop(3, 0);
    let asked = |what| Said::Asked(what);
    assert_eq!(
        pair.run().unwrap(),
        [asked(AsyncEvent::Logout { seconds: 12 }), asked(AsyncEvent::Drop { time2wait: 3 })]
    );
    let mut alone = Alone::logged_in(settings(), &[]);
    for (event, told) in [
        (0, AsyncEvent::Unit { lun: 5 }),
        (2, AsyncEvent::Drop { time2wait: 2 }),
        (4, AsyncEvent::Renegotiate { seconds: 3 }),
        (5, AsyncEvent::Other { code: 5 }),
        (255, AsyncEvent::Other { code: 255 }),
    ] {
        let mut message = AsyncMessage::new_zeroed();
        (message.opcode, message.event, message.lun[1]) = (opcode::ASYNC_MESSAGE, event, 5);
        (message.itt, message.parameter1) = (u32::MAX.into(), 1.into());
        (message.parameter2, message.parameter3) = (2.into(), 3.into());
        assert_eq!(alone.answer(&message, &[]).unwrap(), [asked(told)]);
    }
}

/// A Reject ends the session and says what was refused.
#[test]
fn a_reject_is_a_fault() {
    let mut alone = Alone::logged_in(settings(), &[]);
    let (_, sent) = alone.command(1, Direction::None);
    let mut reject = Reject::new_zeroed();
    (reject.opcode, reject.reason, reject.itt) = (opcode::REJECT, 9, u32::MAX.into());
    let header = zerocopy::IntoBytes::as_bytes(&sent[0].header).to_vec();
    let fault = alone.answer(&reject, &header).unwrap_err();
    assert_eq!(fault, Fault::Rejected { pdu: PduKind(opcode::SCSI_COMMAND), reason: 9 });
    assert_eq!(
        fault.to_string(),
        "the target rejected a SCSI Command, reason 0x09 (RFC 7143 section 11.17.1)"
    );
}

/// After the logout nothing is sent or taken; commands may still end before it.
#[test]
fn a_logout_ends_the_session() {
    let mut alone = Alone::logged_in(settings(), &[]);
    let (itt, _) = alone.command(1, Direction::None);
    alone.initiator.logout();
    alone.initiator.logout();
    let [sent] = &alone.sent()[..] else { panic!() };
    assert_eq!((sent.header.opcode, sent.header.flags), (0x46, 0x80));
    assert_eq!((alone.initiator.room(), alone.initiator.ping(1)), (0, None));
    assert!(matches!(alone.answer(&good(itt), &[]).unwrap()[..], [Said::Done { .. }]));
    let mut response = LogoutResponse::new_zeroed();
    (response.opcode, response.itt) = (opcode::LOGOUT_RESPONSE, sent.header.itt);
    assert_eq!(alone.answer(&response, &[]).unwrap(), [Said::LoggedOut]);
    assert!(alone.initiator.is_over());
    assert_eq!(alone.receive(b"whatever").unwrap(), []);

    let mut alone = Alone::logged_in(settings(), &[]);
    alone.initiator.logout();
    (response.itt, response.response) = (alone.sent()[0].header.itt, 1);
    let fault = alone.answer(&response, &[]).unwrap_err();
    assert_eq!(fault, Fault::LogoutRefused { response: 1 });
}

/// No more requests wait than are bounded.
#[test]
fn requests_are_bounded() {
    let mut alone = Alone::logged_in(settings(), &[]);
    for tag in 0..IMMEDIATE_MAX as u64 {
        alone.initiator.ping(tag).unwrap();
    }
    assert_eq!(alone.initiator.ping(99), None);
    assert_eq!(alone.initiator.manage(TaskFunction::LogicalUnitReset, 3, None, 99), None);
    assert!(!alone.initiator.send_targets());
}
