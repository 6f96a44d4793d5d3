//! Write data: immediate, unsolicited, solicited, and all the ways to get it wrong.

use super::harness::{Answer, Peer};
use crate::iscsi::pdu::{Itt, RESERVED_TAG, opcode};
use crate::iscsi::target_role::{Event, Limits};
use crate::scsi::{ScsiStatus, Sense};

/// F and W, simple.
const WRITES: u8 = 0xa1;
/// W without F: unsolicited data follows.
const WRITES_MORE: u8 = 0x21;

fn peer(keys: &[&str]) -> Peer {
    Peer::logged_in(Limits::default(), keys)
}

fn loose() -> Peer {
    peer(&["InitialR2T=No", "FirstBurstLength=1024", "MaxBurstLength=2048", "MaxOutstandingR2T=2"])
}

/// Offset, length and completeness of a data event.
fn data(event: Option<Event<'_>>) -> (u32, usize, bool) {
    match event {
        Some(Event::Data { itt: Itt(5), offset, bytes, complete }) => {
            (offset, bytes.len(), complete)
        }
        other => panic!("data expected: {other:?}"),
    }
}

fn failure(event: Option<Event<'_>>) -> Sense {
    match event {
        Some(Event::TransferFailed { itt: Itt(5), sense }) => sense,
        other => panic!("a failed transfer expected: {other:?}"),
    }
}

/// Tag, number, offset and length of an R2T.
fn r2t(answer: &Answer) -> (u32, u32, u32, u32) {
    assert_eq!((answer.header.kind(), answer.byte(1)), (opcode::R2T, 0x80));
    assert_eq!((answer.header.lun, answer.word(16)), ([0, 1, 0, 0, 0, 0, 0, 0], 5));
    (answer.word(20), answer.word(36), answer.word(40), answer.word(44))
}

fn fails_at_once(peer: &mut Peer, flags: u8, length: u32, bytes: &[u8], code: (u8, u8)) {
    assert!(peer.command(5, flags, length, bytes).is_none());
    let answer = peer.answer();
    assert_eq!((answer.byte(3), (answer.data[14], answer.data[15])), (2, code));
    assert!(peer.connection.outstanding_tasks().is_empty());
}

/// Immediate data comes with the command; nothing more is asked for.
#[test]
fn immediate_data_comes_with_the_command() {
    let mut peer = peer(&[]);
    let Some(Event::Command(command)) = peer.command(5, WRITES, 512, &[7; 512]) else {
        panic!("a command is an event");
    };
    assert_eq!((command.immediate, command.unsolicited), (&[7; 512][..], false));
    assert!(!peer.connection.solicit(Itt(5), 512));
    assert!(peer.output().is_empty());
    peer.connection.respond(Itt(5), ScsiStatus::Good, None, 512);
    let answer = peer.answer();
    assert_eq!((answer.byte(1), answer.byte(3), answer.word(44)), (0x80, 0, 0));
}

/// R2Ts ask for bursts, as many at once as agreed, and each is answered by a separate sequence.
#[test]
fn r2ts_ask_for_bursts() {
    let mut peer = loose();
    peer.command(5, WRITES, 6000, &[1; 1000]);
    assert!(peer.connection.solicit(Itt(5), 6000));
    let asked: Vec<_> = peer.answers().iter().map(r2t).collect();
    let (first, second) = (asked[0].0, asked[1].0);
    assert_eq!(asked, [(first, 0, 1000, 2048), (second, 1, 3048, 2048)]);
    assert_ne!(first, second);
    assert_eq!(data(peer.data_out(5, first, 0, 1000, &[2; 2000], false)), (1000, 2000, false));
    assert!(peer.output().is_empty());
    assert_eq!(data(peer.data_out(5, first, 1, 3000, &[2; 48], true)), (3000, 48, false));
    let third = r2t(&peer.answer());
    assert_eq!((third.1, third.2, third.3), (2, 5096, 904));
    assert_eq!(data(peer.data_out(5, second, 0, 3048, &[3; 2048], true)), (3048, 2048, false));
    assert_eq!(data(peer.data_out(5, third.0, 0, 5096, &[4; 904], true)), (5096, 904, true));
    assert!(peer.output().is_empty());
    peer.connection.respond(Itt(5), ScsiStatus::Good, None, 6000);
    assert_eq!(peer.answer().word(36), 3, "three R2Ts were sent");
}

/// What the shell does not want is not asked for, and the residual says so.
#[test]
fn only_what_is_wanted_is_asked_for() {
    let mut peer = peer(&[]);
    peer.command(5, WRITES, 10_000, &[]);
    assert!(peer.connection.solicit(Itt(5), 512));
    let (ttt, _, offset, length) = r2t(&peer.answer());
    assert_eq!((offset, length), (0, 512));
    assert_eq!(data(peer.data_out(5, ttt, 0, 0, &[1; 512], true)), (0, 512, true));
    peer.connection.respond(Itt(5), ScsiStatus::Good, None, 512);
    let answer = peer.answer();
    assert_eq!((answer.byte(1), answer.word(44)), (0x82, 9488));
}

/// A command that wants more than the initiator has reports the overflow with its error.
#[test]
fn write_overflow_is_counted() {
    let mut peer = peer(&[]);
    peer.command(5, WRITES, 200, &[1; 200]);
    let sense = Sense::INVALID_FIELD_IN_INFORMATION_UNIT;
    peer.connection.respond(Itt(5), ScsiStatus::CheckCondition, Some(&sense), 512);
    let answer = peer.answer();
    assert_eq!((answer.byte(1), answer.word(44)), (0x84, 312));
}

/// Unsolicited data up to the first burst, then R2T for the rest, which waits for F.
#[test]
fn unsolicited_data_comes_first() {
    let mut peer = loose();
    let Some(Event::Command(command)) = peer.command(5, WRITES_MORE, 2000, &[1; 100]) else {
        panic!("a command is an event");
    };
    assert!(command.unsolicited);
    assert!(peer.connection.solicit(Itt(5), 2000));
    assert!(peer.output().is_empty(), "first what comes by itself");
    assert_eq!(data(peer.unsolicited(5, 0, 100, &[2; 500], false)), (100, 500, false));
    assert_eq!(data(peer.unsolicited(5, 1, 600, &[2; 424], true)), (600, 424, false));
    let (ttt, number, offset, length) = r2t(&peer.answer());
    assert_eq!((number, offset, length), (0, 1024, 976));
    assert_eq!(data(peer.data_out(5, ttt, 0, 1024, &[3; 976], true)), (1024, 976, true));
}

/// Unsolicited data may be all there is and may come before the shell asks. It may end early if the
/// command would fit into the first burst; the rest is asked for.
#[test]
fn unsolicited_data_may_be_all() {
    let mut peer = loose();
    peer.command(5, WRITES_MORE, 512, &[]);
    assert_eq!(data(peer.unsolicited(5, 0, 0, &[2; 512], true)), (0, 512, true));
    assert!(!peer.connection.solicit(Itt(5), 512));

    let mut peer = loose();
    peer.command(5, WRITES_MORE, 1024, &[]);
    assert_eq!(data(peer.unsolicited(5, 0, 0, &[2; 512], true)), (0, 512, false));
    assert!(peer.connection.solicit(Itt(5), 1024));
    let (_, _, offset, length) = r2t(&peer.answer());
    assert_eq!((offset, length), (512, 512));
}

/// Data that was not agreed on ends the command before the shell sees it.
#[test]
fn data_that_was_not_agreed_on_is_refused() {
    let unexpected = (0x0c, 0x0c);
    fails_at_once(&mut peer(&["ImmediateData=No"]), WRITES, 512, &[1; 512], unexpected);
    fails_at_once(&mut peer(&[]), WRITES_MORE, 512, &[], unexpected);
    fails_at_once(&mut peer(&[]), 0xc1, 512, &[1; 4], unexpected);
    let incorrect = (0x0c, 0x0d);
    fails_at_once(&mut loose(), WRITES, 4096, &[1; 1025], incorrect);
    fails_at_once(&mut loose(), WRITES, 100, &[1; 101], incorrect);
}

/// Wrong numbers, wrong places and wrong amounts, each in unsolicited data.
#[test]
fn unsolicited_data_is_checked() {
    let crc = Sense::PROTOCOL_SERVICE_CRC_ERROR;
    let incorrect = Sense::INCORRECT_AMOUNT_OF_DATA;
    for (data_sn, offset, length, is_final, sense) in [
        (1, 0, 512, false, crc),
        (27, 0, 512, false, crc),
        (u32::MAX, 0, 512, false, crc),
        (0, 512, 512, false, crc),
        (0, 0, 1025, true, incorrect),
        (0, 0, 1024, false, incorrect),
        (0, 0, 512, true, incorrect),
    ] {
        let mut peer = loose();
        peer.command(5, WRITES_MORE, 2048, &[]);
        let event = peer.unsolicited(5, data_sn, offset, &vec![1; length], is_final);
        assert_eq!(failure(event), sense);
        assert!(peer.unsolicited(5, 0, 0, &[1; 512], false).is_none(), "the task is over");
        assert!(!peer.connection.solicit(Itt(5), 2048));
        peer.connection.respond(Itt(5), ScsiStatus::CheckCondition, Some(&sense), 0);
        assert_eq!(peer.answer().byte(3), 2);
    }
    // The same number twice, and unsolicited data after its end.
    let mut peer = loose();
    peer.command(5, WRITES_MORE, 2048, &[]);
    data(peer.unsolicited(5, 0, 0, &[1; 512], false));
    assert_eq!(failure(peer.unsolicited(5, 0, 512, &[1; 512], true)), crc);
    let mut peer = loose();
    peer.command(5, WRITES_MORE, 2048, &[]);
    data(peer.unsolicited(5, 0, 0, &[1; 1024], true));
    let event = peer.unsolicited(5, 1, 1024, &[1; 512], true);
    assert_eq!(failure(event), Sense::UNEXPECTED_UNSOLICITED_DATA);
}

/// Wrong tags, places and amounts in solicited data.
#[test]
fn solicited_data_is_checked() {
    let crc = Sense::PROTOCOL_SERVICE_CRC_ERROR;
    let incorrect = Sense::INCORRECT_AMOUNT_OF_DATA;
    for (other_tag, data_sn, offset, length, is_final, sense) in [
        (true, 0, 0, 512, false, crc),
        (false, 1, 0, 512, false, crc),
        (false, 0, 4, 512, false, crc),
        (false, 0, 0, 2048, false, incorrect),
        (false, 0, 0, 1000, true, incorrect),
        (false, 0, 0, 2052, true, incorrect),
    ] {
        let mut peer = loose();
        peer.command(5, WRITES, 5000, &[]);
        peer.connection.solicit(Itt(5), 5000);
        let asked: Vec<_> = peer.answers().iter().map(r2t).collect();
        let ttt = asked[usize::from(other_tag)].0;
        let event = peer.data_out(5, ttt, data_sn, offset, &vec![1; length], is_final);
        assert_eq!(failure(event), sense);
    }
    let mut peer = loose();
    peer.command(5, WRITES, 5000, &[]);
    peer.connection.solicit(Itt(5), 5000);
    let event = peer.unsolicited(5, 0, 0, &[1; 512], false);
    assert_eq!(failure(event), Sense::UNEXPECTED_UNSOLICITED_DATA);
}

/// Data that nothing waits for is discarded, because its command may be running: of a command that
/// reads, and of one that has everything it wants. The command is still answered.
#[test]
fn data_for_a_running_command_is_discarded() {
    for (flags, immediate) in [(0xc1, &[][..]), (WRITES, &[7; 512])] {
        let mut peer = loose();
        peer.command(5, flags, 512, immediate);
        assert!(!peer.connection.solicit(Itt(5), 512));
        assert!(peer.data_out(5, RESERVED_TAG, 0, 0, &[1; 512], true).is_none());
        assert!(peer.data_out(5, 99, 3, 512, &[1; 512], false).is_none());
        assert!(peer.output().is_empty());
        peer.connection.respond(Itt(5), ScsiStatus::Good, None, 512);
        assert_eq!(peer.answer().byte(3), 0);
    }
}

/// A command that is answered early or abandoned loses its later data without a word.
#[test]
fn data_after_the_answer_is_discarded() {
    for abandon in [false, true] {
        let mut peer = loose();
        peer.command(5, WRITES_MORE, 2048, &[1; 100]);
        if abandon {
            assert!(peer.connection.abandon(Itt(5)));
        } else {
            let sense = Sense::WRITE_PROTECTED;
            peer.connection.respond(Itt(5), ScsiStatus::CheckCondition, Some(&sense), 0);
            assert_eq!(peer.answer().word(44), 2048);
        }
        assert!(peer.unsolicited(5, 0, 100, &[1; 500], false).is_none());
        assert!(peer.unsolicited(5, 1, 600, &[1; 424], true).is_none());
        assert!(peer.output().is_empty());
        assert!(matches!(peer.command(5, WRITES, 512, &[]), Some(Event::Command(_))));
    }
}
