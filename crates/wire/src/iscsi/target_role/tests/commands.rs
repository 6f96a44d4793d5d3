//! Commands, read data, task management, echoes, logout and the window.

use std::sync::Arc;

use super::harness::Peer;
use crate::iscsi::pdu::{
    FINAL, Header, IMMEDIATE, Itt, LogoutRequest, NopOut, RESERVED_TAG, ScsiCommand,
    TaskManagementRequest, opcode,
};
use crate::iscsi::target_role::{
    Attribute, Event, IMMEDIATE_TASKS_MAX, Limits, LogoutReason, PeerError, RejectReason,
    TaskFunction, TmfResponse,
};
use crate::scsi::{ScsiStatus, Sense};

/// F and R, simple.
const READS: u8 = 0xc1;

fn peer(keys: &[&str]) -> Peer {
    Peer::logged_in(Limits::default(), keys)
}

fn payload(length: usize) -> Arc<[u8]> {
    (0..length).map(|n| n as u8).collect()
}

/// Everything about a command reaches the shell.
#[test]
fn a_command_is_delivered_whole() {
    let mut peer = peer(&[]);
    let mut header = peer.command_header(5, 0xc2, 4096);
    header.cdb = *b"0123456789abcdef";
    let Some(Event::Command(command)) = peer.send(&header, &[]).unwrap() else {
        panic!("a command is an event");
    };
    assert_eq!((command.itt, command.lun, &command.cdb), (Itt(5), 1, b"0123456789abcdef"));
    assert_eq!(command.attribute, Attribute::Ordered);
    assert!(command.reads && !command.writes && !command.unsolicited && !command.is_immediate);
    assert_eq!((command.expected_length, command.immediate.len()), (4096, 0));
    assert_eq!(peer.connection.outstanding_tasks(), [Itt(5)]);
}

/// Without R and W there is no data, whatever the length says.
#[test]
fn no_direction_means_no_data() {
    let mut peer = peer(&[]);
    let Some(Event::Command(command)) = peer.command(5, 0x81, 4096, &[]) else {
        panic!("a command is an event");
    };
    assert_eq!(command.expected_length, 0);
    peer.connection.respond(Itt(5), ScsiStatus::Good, None, 0);
    let answer = peer.answer();
    assert_eq!((answer.byte(1), answer.word(44)), (0x80, 0));
}

/// Data-In is cut at the segment length and at the burst; F ends each burst, and the last one
/// carries the status.
#[test]
fn read_data_is_cut_into_bursts() {
    let mut peer = peer(&["MaxRecvDataSegmentLength=1024", "MaxBurstLength=2560"]);
    peer.command(5, READS, 6000, &[]);
    let data = payload(6003);
    peer.connection.respond_data(Itt(5), Arc::clone(&data), 3..6003, 6000);
    let answers = peer.answers();
    let shape: Vec<_> = answers
        .iter()
        .map(|one| (one.byte(1), one.data.len(), one.word(36), one.word(40)))
        .collect();
    assert_eq!(
        shape,
        [
            (0x00, 1024, 0, 0),
            (0x00, 1024, 1, 1024),
            (0x80, 512, 2, 2048),
            (0x00, 1024, 3, 2560),
            (0x00, 1024, 4, 3584),
            (0x80, 512, 5, 4608),
            (0x81, 880, 6, 5120),
        ]
    );
    let whole: Vec<u8> = answers.iter().flat_map(|one| one.data.clone()).collect();
    assert_eq!(whole, data[3..]);
    assert!(answers.iter().all(|one| one.header.kind() == opcode::DATA_IN));
    assert!(answers.iter().all(|one| one.word(20) == RESERVED_TAG));
    // The login took status number 50.
    assert_eq!((answers[0].word(24), answers[6].word(24)), (0, 51));
    assert_eq!(peer.done, [5]);
    assert!(peer.connection.outstanding_tasks().is_empty());
}

/// Read data may come in parts, with those of another command between them: the PDUs of each command are
/// numbered and placed as if it were alone, F ends bursts and not parts, each part leaves with a mark, and
/// the status comes with the last.
#[test]
fn read_data_comes_in_parts() {
    let mut peer = peer(&["MaxRecvDataSegmentLength=1024", "MaxBurstLength=2560"]);
    peer.command(5, READS, 4000, &[]);
    peer.command(6, READS, 512, &[]);
    let data = payload(4003);
    let part = |peer: &mut Peer, part| {
        peer.connection.respond_part(Itt(5), Arc::clone(&data), 3..4003, part, 4000)
    };
    assert!(part(&mut peer, 0..2048));
    peer.connection.respond_data(Itt(6), payload(512), 0..512, 512);
    assert!(peer.connection.outstanding_tasks().contains(&Itt(5)));
    assert!(part(&mut peer, 2048..3000));
    assert!(part(&mut peer, 3000..4000));
    let answers = peer.answers();
    let shape: Vec<_> = answers
        .iter()
        .map(|one| (one.word(16), one.byte(1), one.data.len(), one.word(36), one.word(40)))
        .collect();
    assert_eq!(
        shape,
        [
            (5, 0x00, 1024, 0, 0),
            (5, 0x00, 1024, 1, 1024),
            (6, 0x81, 512, 0, 0),
            (5, 0x80, 512, 2, 2048),
            (5, 0x00, 440, 3, 2560),
            (5, 0x81, 1000, 4, 3000),
        ]
    );
    let of_5 = answers.iter().filter(|one| one.word(16) == 5);
    let whole: Vec<u8> = of_5.flat_map(|one| one.data.clone()).collect();
    assert_eq!(whole, data[3..]);
    assert_eq!(peer.done, [5, 6, 5, 5]);
    assert!(peer.connection.outstanding_tasks().is_empty());
    assert!(!part(&mut peer, 0..10), "the command is over");
}

/// An initiator that expects less gets its status with the last byte that it expects, and the parts behind
/// that are not queued.
#[test]
fn parts_that_nobody_expects_are_not_sent() {
    let mut peer = peer(&[]);
    peer.command(5, READS, 1000, &[]);
    let data = payload(3000);
    let mut part = |part| {
        let connection = &mut peer.connection;
        connection.respond_part(Itt(5), Arc::clone(&data), 0..3000, part, 3000)
    };
    assert_eq!([part(0..512), part(512..2000), part(2000..3000)], [true, true, false]);
    let answers = peer.answers();
    let shape: Vec<_> =
        answers.iter().map(|one| (one.byte(1), one.data.len(), one.word(44))).collect();
    assert_eq!(shape, [(0x00, 512, 0), (0x85, 488, 2000)]);
}

/// Residuals of reads: too little room, too much room, none.
#[test]
fn read_residuals_are_counted() {
    // Expected, read, moved by the command's own account; then flags, sent, residual.
    for (expected, read, length, flags, sent, residual) in [
        (512, 512, 512, 0x81, 512, 0),
        (512, 36, 36, 0x83, 36, 476),
        (200, 512, 512, 0x85, 200, 312),
        (200, 200, 512, 0x85, 200, 312),
    ] {
        let mut peer = peer(&[]);
        peer.command(5, READS, expected, &[]);
        peer.connection.respond_data(Itt(5), payload(read), 0..read, length);
        let answer = peer.answer();
        assert_eq!((answer.byte(1), answer.data.len(), answer.word(44)), (flags, sent, residual));
    }
    // With nothing to send there is a response instead.
    for (flags, expected, kind, residual) in [(READS, 0, 0x84, 512), (0x81, 9, 0x84, 512)] {
        let mut peer = peer(&[]);
        peer.command(5, flags, expected, &[]);
        peer.connection.respond_data(Itt(5), payload(512), 0..512, 512);
        let answer = peer.answer();
        assert_eq!(answer.header.kind(), opcode::SCSI_RESPONSE);
        assert_eq!((answer.byte(1), answer.byte(3), answer.word(44)), (kind, 0, residual));
    }
}

/// CHECK CONDITION carries its sense data with a length, and the residual is everything.
#[test]
fn an_error_carries_sense() {
    let mut peer = peer(&[]);
    peer.command(5, READS, 512, &[]);
    peer.connection.respond(Itt(5), ScsiStatus::CheckCondition, Some(&Sense::LBA_OUT_OF_RANGE), 0);
    let answer = peer.answer();
    assert_eq!((answer.header.kind(), answer.byte(1), answer.byte(3)), (0x21, 0x82, 2));
    assert_eq!(answer.word(44), 512);
    assert_eq!(answer.data.len(), 20);
    assert_eq!(answer.data[..5], [0, 18, 0x70, 0, 5]);
    assert_eq!(answer.data[14..16], [0x21, 0]);
    assert_eq!(peer.done, [5]);
}

/// Answers to tasks that do not exist any more are passed over.
#[test]
fn late_answers_are_passed_over() {
    let mut peer = peer(&[]);
    peer.command(5, READS, 512, &[]);
    assert!(peer.connection.abandon(Itt(5)));
    assert!(!peer.connection.abandon(Itt(5)));
    peer.connection.respond(Itt(5), ScsiStatus::Good, None, 0);
    peer.connection.respond_data(Itt(5), payload(4), 0..4, 4);
    peer.connection.task_management_response(Itt(5), TmfResponse::Complete);
    peer.connection.logout_response(Itt(5));
    assert!(peer.output().is_empty());
}

/// A tag in use, a reserved attribute, a command without F, and opcodes that do not exist here.
#[test]
fn wrong_requests_are_rejected() {
    let mut peer = peer(&[]);
    peer.command(5, READS, 512, &[]);
    let mut check = |header: &Header, reason: RejectReason| {
        let event = peer.send(header, &[]).unwrap();
        assert!(
            matches!(event, Some(Event::Rejected { reason: r, .. }) if r == reason),
            "{event:?}, {reason:?} expected"
        );
        let answer = peer.answer();
        assert_eq!((answer.header.kind(), answer.byte(2)), (opcode::REJECT, reason as u8));
        assert_eq!(answer.data.len(), 48);
        assert_eq!(answer.data[16..20], zerocopy::IntoBytes::as_bytes(header)[16..20]);
    };
    let header = |cmd_sn: u32, itt: u32, flags: u8| -> Header {
        zerocopy::transmute!(ScsiCommand {
            opcode: opcode::SCSI_COMMAND,
            flags,
            itt: itt.into(),
            cmd_sn: cmd_sn.into(),
            ..ScsiCommand::default()
        })
    };
    check(&header(101, 5, READS), RejectReason::TaskInProgress);
    check(&header(102, 6, 0xc5), RejectReason::InvalidPduField);
    check(&header(103, 6, 0x41), RejectReason::InvalidPduField);
    check(&header(104, RESERVED_TAG, READS), RejectReason::InvalidPduField);
    let with_opcode = |opcode| Header { opcode, itt: 9.into(), ..Header::default() };
    check(&with_opcode(opcode::SNACK), RejectReason::CommandNotSupported);
    check(&with_opcode(0x1f), RejectReason::CommandNotSupported);
    check(&with_opcode(opcode::SCSI_RESPONSE), RejectReason::CommandNotSupported);
    check(&with_opcode(opcode::LOGIN_REQUEST | IMMEDIATE), RejectReason::ProtocolError);
    assert!(!peer.connection.wants_close());
    assert_eq!(peer.connection.outstanding_tasks(), [Itt(5)]);
}

/// Commands outside of the window are ignored without a trace; a skipped number is the end.
#[test]
fn the_window_is_kept() {
    let limits = Limits { command_window: 2, ..Limits::default() };
    let mut peer = Peer::logged_in(limits, &[]);
    let send = |peer: &mut Peer, cmd_sn: u32, itt: u32| {
        peer.cmd_sn = cmd_sn;
        let header = peer.command_header(itt, READS, 512);
        peer.send(&header, &[])
    };
    assert!(send(&mut peer, 99, 1).unwrap().is_none(), "too low");
    assert!(send(&mut peer, 102, 1).unwrap().is_none(), "too high");
    assert!(send(&mut peer, 100, 1).unwrap().is_some());
    assert!(send(&mut peer, 100, 2).unwrap().is_none(), "again");
    assert!(send(&mut peer, 101, 2).unwrap().is_some());
    assert!(send(&mut peer, 102, 3).unwrap().is_none(), "the window is full");
    assert!(peer.output().is_empty());
    peer.connection.respond(Itt(1), ScsiStatus::Good, None, 512);
    let answer = peer.answer();
    assert_eq!((answer.word(28), answer.word(32)), (102, 102));
    assert!(send(&mut peer, 102, 3).unwrap().is_some());
    peer.connection.respond(Itt(3), ScsiStatus::Good, None, 512);
    peer.connection.respond(Itt(2), ScsiStatus::Good, None, 512);
    assert_eq!(peer.answers()[1].word(32), 104);
    let error = send(&mut peer, 104, 4).unwrap_err();
    assert_eq!(error, PeerError::CommandGap { expected: 103, got: 104 });
    assert!(peer.connection.wants_close());
}

/// A window that opens while the initiator waits is announced by a NOP-In that asks for nothing.
#[test]
fn an_opened_window_is_told() {
    let limits = Limits { command_window: 1, ..Limits::default() };
    let mut peer = Peer::logged_in(limits, &[]);
    peer.command(1, READS, 512, &[]);
    peer.connection.set_window(4);
    let answer = peer.answer();
    assert_eq!((answer.header.kind(), answer.word(16)), (opcode::NOP_IN, RESERVED_TAG));
    assert_eq!((answer.word(20), answer.word(32)), (RESERVED_TAG, 103));
    peer.connection.set_window(8);
    assert!(peer.output().is_empty(), "the initiator is not stuck, so it can wait for an answer");
}

/// Immediate commands do not take a number, and there is a limit to them.
#[test]
fn immediate_commands_stand_outside() {
    let mut peer = peer(&[]);
    let count = IMMEDIATE_TASKS_MAX as u32;
    for itt in 0..=count {
        let mut header = peer.command_header(itt, READS, 0);
        header.opcode |= IMMEDIATE;
        peer.cmd_sn -= 1;
        let event = peer.send(&header, &[]).unwrap();
        if itt < count {
            assert!(matches!(event, Some(Event::Command(command)) if command.is_immediate));
        } else {
            let reason = RejectReason::ImmediateCommandReject;
            assert!(matches!(event, Some(Event::Rejected { reason: r, .. }) if r == reason));
        }
    }
    let answer = peer.answer();
    assert_eq!((answer.word(28), answer.word(32)), (100, 227));
}

/// An extended CDB reaches the shell; a malformed one ends the connection.
#[test]
fn additional_headers_are_read() {
    let mut peer = peer(&[]);
    let mut header = peer.command_header(5, READS, 0);
    header.ahs_words = 2;
    let mut pdu = zerocopy::IntoBytes::as_bytes(&header).to_vec();
    pdu.extend_from_slice(&[0, 5, 1, 0, 1, 2, 3, 4]);
    let Some(Event::Command(command)) = peer.send_bytes(pdu.clone()).unwrap() else {
        panic!("a command is an event");
    };
    assert_eq!(command.cdb_rest, [1, 2, 3, 4]);
    pdu[27] += 1;
    pdu[19] = 6;
    pdu[49] = 99;
    assert_eq!(peer.send_bytes(pdu).unwrap_err(), PeerError::MalformedAhs);
}

/// No supported command moves data both ways.
#[test]
fn both_ways_is_refused() {
    let mut peer = peer(&[]);
    assert!(peer.command(5, 0xe1, 512, &[]).is_none());
    let answer = peer.answer();
    assert_eq!((answer.byte(3), answer.data[14]), (2, 0x24));
}

/// An echo comes back with its data, cut to what the initiator takes; the tag asks for it.
#[test]
fn echoes_come_back() {
    let mut peer = peer(&["MaxRecvDataSegmentLength=512"]);
    let mut nop = NopOut {
        opcode: opcode::NOP_OUT | IMMEDIATE,
        flags: FINAL,
        itt: 9.into(),
        ttt: RESERVED_TAG.into(),
        ..NopOut::default()
    };
    peer.send(&nop, b"ping").unwrap();
    let answer = peer.answer();
    assert_eq!((answer.header.kind(), answer.word(16), answer.word(20)), (0x20, 9, RESERVED_TAG));
    assert_eq!((&*answer.data, answer.word(24)), (&b"ping"[..], 51));
    peer.send(&nop, &[1; 600]).unwrap();
    assert_eq!(peer.answer().data.len(), 512);
    nop.itt = RESERVED_TAG.into();
    assert!(peer.send(&nop, b"quiet").unwrap().is_none());
    assert!(peer.output().is_empty());
}

/// A ping is counted until it is answered; an answer to nothing is rejected.
#[test]
fn pings_are_counted() {
    let mut peer = peer(&[]);
    assert_eq!((peer.connection.ping(), peer.connection.ping()), (1, 2));
    let answers = peer.answers();
    assert_eq!((answers[0].word(16), answers[0].word(24)), (RESERVED_TAG, 51));
    assert_eq!(answers[1].word(24), 51, "status numbers do not advance");
    let nop = |ttt: u32| NopOut {
        opcode: opcode::NOP_OUT | IMMEDIATE,
        flags: FINAL,
        itt: RESERVED_TAG.into(),
        ttt: ttt.into(),
        ..NopOut::default()
    };
    let event = peer.send(&nop(answers[1].word(20)), &[]).unwrap();
    assert!(matches!(event, Some(Event::Pong)));
    assert_eq!(peer.connection.ping(), 2);
    let event = peer.send(&nop(77), &[]).unwrap();
    assert!(matches!(event, Some(Event::Rejected { .. })));
    for _ in 0..100 {
        peer.connection.ping();
    }
    assert_eq!(peer.connection.ping(), 16);
}

/// Task management goes to the shell and back; moving tasks is refused on the spot.
#[test]
fn task_management_goes_to_the_shell() {
    let mut peer = peer(&[]);
    let request = |function: u8, itt: u32| TaskManagementRequest {
        opcode: opcode::TASK_MANAGEMENT_REQUEST | IMMEDIATE,
        function: FINAL | function,
        lun: [0x40, 2, 0, 0, 0, 0, 0, 0],
        itt: itt.into(),
        referenced_itt: 5.into(),
        ref_cmd_sn: 100.into(),
        ..TaskManagementRequest::default()
    };
    let event = peer.send(&request(1, 8), &[]).unwrap();
    let Some(Event::TaskManagement { itt, function, lun, referenced_itt, ref_cmd_sn }) = event
    else {
        panic!("{event:?}");
    };
    assert_eq!((itt, function, lun), (Itt(8), TaskFunction::AbortTask, 2));
    assert_eq!((referenced_itt, ref_cmd_sn), (Itt(5), 100));
    let event = peer.send(&request(2, 8), &[]).unwrap();
    assert!(matches!(event, Some(Event::Rejected { reason: RejectReason::TaskInProgress, .. })));
    peer.output();
    peer.connection.task_management_response(Itt(8), TmfResponse::TaskDoesNotExist);
    let answer = peer.answer();
    assert_eq!((answer.header.kind(), answer.word(16), answer.byte(2)), (0x22, 8, 1));
    for (function, result) in [(8, 4), (9, 5), (12, 5)] {
        assert!(peer.send(&request(function, 9), &[]).unwrap().is_none());
        assert_eq!(peer.answer().byte(2), result, "function {function}");
    }
    for function in [0, 13] {
        let event = peer.send(&request(function, 9), &[]).unwrap();
        let reason = RejectReason::InvalidPduField;
        assert!(matches!(event, Some(Event::Rejected { reason: r, .. }) if r == reason));
    }
    let event = peer.send(&request(99, 9), &[]).unwrap();
    assert!(matches!(event, Some(Event::Rejected { reason: RejectReason::InvalidPduField, .. })));
}

/// Logout of this connection or session ends it; of others it is answered and forgotten.
#[test]
fn logout_ends_the_connection() {
    let mut peer = peer(&[]);
    let request = |reason: u8, cid: u16| LogoutRequest {
        opcode: opcode::LOGOUT_REQUEST | IMMEDIATE,
        reason: FINAL | reason,
        itt: 8.into(),
        cid: cid.into(),
        ..LogoutRequest::default()
    };
    for (reason, cid, result) in [(1, 10, 1), (2, 9, 2)] {
        assert!(peer.send(&request(reason, cid), &[]).unwrap().is_none());
        assert_eq!(peer.answer().byte(2), result);
    }
    assert!(matches!(peer.send(&request(3, 9), &[]).unwrap(), Some(Event::Rejected { .. })));
    peer.output();
    let event = peer.send(&request(1, 9), &[]).unwrap();
    let reason = LogoutReason::CloseConnection;
    assert!(matches!(event, Some(Event::Logout { itt: Itt(8), reason: r }) if r == reason));
    assert!(peer.command(1, READS, 0, &[]).is_none(), "nothing counts after a logout");
    peer.connection.logout_response(Itt(8));
    assert!(peer.connection.wants_close() && !peer.connection.is_finished());
    let answer = peer.answer();
    assert_eq!((answer.header.kind(), answer.byte(2), answer.word(40)), (0x26, 0, 2 << 16));
    assert!(peer.connection.is_finished());
}

/// The target may ask for a logout and tell that it will drop the session, and serves on.
#[test]
fn the_target_speaks_up() {
    let mut peer = peer(&[]);
    peer.connection.request_logout(30);
    peer.connection.announce_drop(5, 0);
    let answers = peer.answers();
    // Event, vendor code, then three parameters of two bytes.
    for (answer, (stat_sn, event, parameters)) in
        answers.iter().zip([(51, 1 << 24, 30), (52, 3 << 24, 5 << 16)])
    {
        assert_eq!((answer.header.kind(), answer.byte(1)), (opcode::ASYNC_MESSAGE, FINAL));
        assert_eq!((answer.word(16), answer.word(24)), (RESERVED_TAG, stat_sn));
        assert_eq!((answer.word(36), answer.word(40)), (event, parameters));
        assert_eq!((answer.word(28), answer.word(32)), (100, 227));
    }
    assert!(matches!(peer.command(1, READS, 512, &[]), Some(Event::Command(_))));
    peer.connection.respond(Itt(1), ScsiStatus::Good, None, 0);
    assert_eq!(peer.answer().word(24), 53);

    let mut early = Peer::new(Limits::default());
    early.connection.request_logout(30);
    early.connection.announce_drop(5, 0);
    assert!(early.output().is_empty(), "not before the full feature phase");
}

/// A status that was never sent cannot be acknowledged; one too many is let pass, because an R2T
/// shows the next number.
#[test]
fn only_what_was_sent_is_acknowledged() {
    // The login took status number 50.
    for (exp_stat_sn, passes) in [(0, true), (51, true), (52, true), (53, false), (1 << 30, false)]
    {
        let mut peer = peer(&[]);
        let mut header = peer.command_header(1, READS, 512);
        header.exp_stat_sn = exp_stat_sn.into();
        let result = peer.send(&header, &[]);
        if passes {
            assert!(matches!(result, Ok(Some(Event::Command(_)))), "{exp_stat_sn}");
        } else {
            let error = PeerError::StatusNeverSent { expected: 51, got: exp_stat_sn };
            assert_eq!(result.unwrap_err(), error);
            assert!(peer.connection.wants_close());
        }
    }
}
