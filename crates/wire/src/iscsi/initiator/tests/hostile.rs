//! Answers that break a rule, one at a time: each is a fault that names it, and nothing is believed.

use proptest::prelude::*;
use zerocopy::FromZeros;

use super::harness::{Alone, Buffer, Said, encode, good, settings};
use crate::iscsi::initiator::{DigestPolicy, Direction, Fault, Itt, PduKind, Residual, Settings};
use crate::iscsi::pdu::{DataIn, NopIn, R2t, ScsiResponse, TextResponse, opcode};

const DATA_IN: PduKind = PduKind(opcode::DATA_IN);
const R2T: PduKind = PduKind(opcode::R2T);
const RESPONSE: PduKind = PduKind(opcode::SCSI_RESPONSE);

fn logged_in() -> Alone {
    Alone::logged_in(settings(), &["MaxBurstLength=4096", "FirstBurstLength=1024"])
}

fn buffer(length: usize) -> Buffer {
    (0..length).map(|at| at as u8).collect()
}

fn data_in(itt: Itt, data_sn: u32, offset: u32) -> DataIn {
    let mut pdu = DataIn::new_zeroed();
    (pdu.opcode, pdu.itt) = (opcode::DATA_IN, itt.0.into());
    (pdu.data_sn, pdu.buffer_offset, pdu.ttt) = (data_sn.into(), offset.into(), u32::MAX.into());
    pdu
}

/// Data-In with F, S and a status.
fn last(itt: Itt, data_sn: u32, offset: u32) -> DataIn {
    DataIn { flags: 0x81, ..data_in(itt, data_sn, offset) }
}

fn r2t(itt: Itt, r2t_sn: u32, offset: u32, length: u32) -> R2t {
    let mut pdu = R2t::new_zeroed();
    (pdu.opcode, pdu.flags, pdu.itt, pdu.ttt) = (opcode::R2T, 0x80, itt.0.into(), 40.into());
    (pdu.r2t_sn, pdu.buffer_offset, pdu.desired_length) =
        (r2t_sn.into(), offset.into(), length.into());
    pdu
}

fn is_field(fault: &Fault, wanted: &str) -> bool {
    matches!(fault, Fault::Field { field, .. } if *field == wanted)
}

/// Data-In that skips, repeats, leaves the command, or never ends.
#[test]
fn data_must_come_in_order() {
    let judge = |pdus: &[(DataIn, usize)]| {
        let mut alone = logged_in();
        alone.command(1, Direction::Read(1000));
        let mut result = Ok(Vec::new());
        for (pdu, length) in pdus {
            assert!(result.is_ok(), "only the last one breaks a rule");
            result = alone.answer(pdu, &buffer(*length));
        }
        result.unwrap_err()
    };
    let itt = Itt(0);
    assert!(is_field(&judge(&[(data_in(itt, 1, 0), 500)]), "DataSN"));
    assert!(is_field(&judge(&[(data_in(itt, 0, 0), 500), (data_in(itt, 0, 500), 9)]), "DataSN"));
    assert!(is_field(&judge(&[(data_in(itt, 0, 4), 500)]), "BufferOffset"));
    let again = [(data_in(itt, 0, 0), 500), (data_in(itt, 1, 0), 500)];
    assert!(is_field(&judge(&again), "BufferOffset"));
    assert!(is_field(&judge(&[(data_in(itt, 0, 0), 0)]), "DataSegmentLength"));
    let beyond = [(data_in(itt, 0, 0), 500), (data_in(itt, 1, 500), 501)];
    let fault = Fault::OutOfRange { pdu: DATA_IN, offset: 500, length: 501, expected: 1000 };
    assert_eq!(judge(&beyond), fault);
}

/// Answers under tags that nothing waits for: unknown, answered already, of another kind of request,
/// or of data in the other direction.
#[test]
fn tags_must_be_right() {
    let mut alone = logged_in();
    let fault = alone.answer(&good(Itt(0)), &[]).unwrap_err();
    assert_eq!(fault, Fault::UnknownTag { pdu: RESPONSE, itt: 0 });

    let mut alone = logged_in();
    let (itt, _) = alone.command(1, Direction::None);
    assert!(matches!(alone.answer(&good(itt), &[]).unwrap()[..], [Said::Done { tag: 1, .. }]));
    let fault = alone.answer(&good(itt), &[]).unwrap_err();
    assert_eq!(fault, Fault::UnknownTag { pdu: RESPONSE, itt: itt.0 }, "status twice");

    // The place is used again; the old tag is not.
    let mut alone = logged_in();
    let (old, _) = alone.command(1, Direction::Read(8));
    alone.answer(&last(old, 0, 0), &buffer(8)).unwrap();
    alone.command(2, Direction::Read(8));
    let fault = alone.answer(&last(old, 0, 0), &buffer(8)).unwrap_err();
    assert_eq!(fault, Fault::UnknownTag { pdu: DATA_IN, itt: old.0 });

    let judge = |data: Direction<Buffer>, answer: fn(&mut Alone, Itt) -> Fault| {
        let mut alone = logged_in();
        let (itt, _) = alone.command(1, data);
        answer(&mut alone, itt)
    };
    let write = || Direction::Write(buffer(64), 0..64);
    let fault = judge(write(), |alone, itt| alone.answer(&data_in(itt, 0, 0), &[1]).unwrap_err());
    assert_eq!(fault, Fault::WrongAnswer { pdu: DATA_IN, itt: 0 });
    let fault =
        judge(Direction::None, |alone, itt| alone.answer(&data_in(itt, 0, 0), &[1]).unwrap_err());
    assert_eq!(fault, Fault::WrongAnswer { pdu: DATA_IN, itt: 0 });
    let fault = judge(Direction::Read(64), |alone, itt| {
        alone.answer(&r2t(itt, 0, 0, 64), &[]).unwrap_err()
    });
    assert_eq!(fault, Fault::WrongAnswer { pdu: R2T, itt: 0 });
    let fault = judge(Direction::None, |alone, itt| {
        let mut nop = NopIn::new_zeroed();
        (nop.opcode, nop.itt, nop.ttt) = (opcode::NOP_IN, itt.0.into(), u32::MAX.into());
        alone.answer(&nop, &[]).unwrap_err()
    });
    assert_eq!(fault, Fault::WrongAnswer { pdu: PduKind(opcode::NOP_IN), itt: 0 });
    let fault = judge(Direction::None, |alone, itt| {
        let mut text = TextResponse::new_zeroed();
        (text.opcode, text.itt, text.flags) = (opcode::TEXT_RESPONSE, itt.0.into(), 0x80);
        alone.answer(&text, &[]).unwrap_err()
    });
    assert_eq!(fault, Fault::UnknownTag { pdu: PduKind(opcode::TEXT_RESPONSE), itt: 0 });
}

/// R2T for what the command does not have, twice, out of order, too long, for nothing, or too many.
#[test]
fn requests_for_data_must_fit() {
    let judge = |pdus: &[R2t]| {
        let mut alone = logged_in();
        alone.command(1, Direction::Write(buffer(10_000), 0..10_000));
        let mut result = Ok(Vec::new());
        for pdu in pdus {
            assert!(result.is_ok(), "only the last one breaks a rule");
            result = alone.answer(pdu, &[]);
        }
        result.unwrap_err()
    };
    let itt = Itt(0);
    assert!(is_field(&judge(&[r2t(itt, 1, 0, 100)]), "R2TSN"));
    assert!(is_field(&judge(&[r2t(itt, 0, 4, 100)]), "BufferOffset"));
    assert!(is_field(&judge(&[r2t(itt, 0, 0, 0)]), "DesiredDataTransferLength"));
    assert!(is_field(&judge(&[r2t(itt, 0, 0, 4097)]), "DesiredDataTransferLength"));
    assert!(is_field(
        &judge(&[R2t { ttt: u32::MAX.into(), ..r2t(itt, 0, 0, 9) }]),
        "TargetTransferTag"
    ));
    // One R2T was agreed on, and the answer to the first has not left.
    let fault = judge(&[r2t(itt, 0, 0, 100), r2t(itt, 1, 100, 100)]);
    assert!(is_field(&fault, "MaxOutstandingR2T"), "{fault}");

    let mut alone = logged_in();
    alone.command(1, Direction::Write(buffer(10_000), 0..10_000));
    for (number, offset) in [(0, 0), (1, 4096)] {
        alone.answer(&r2t(itt, number, offset, 4096), &[]).unwrap();
        alone.sent();
    }
    let fault = alone.answer(&r2t(itt, 2, 8192, 1809), &[]).unwrap_err();
    let beyond = Fault::OutOfRange { pdu: R2T, offset: 8192, length: 1809, expected: 10_000 };
    assert_eq!(fault, beyond);
}

/// R2Ts are answered in their order, each with its tag, its numbers from zero and F at its end; as many
/// as were agreed on may wait.
#[test]
fn requests_for_data_are_answered() {
    let keys = [
        "MaxOutstandingR2T=2",
        "MaxBurstLength=2048",
        "FirstBurstLength=1024",
        "ImmediateData=Yes",
    ];
    let mut alone = Alone::logged_in(settings(), &keys);
    let (itt, sent) = alone.command(1, Direction::Write(buffer(4000), 0..4000));
    assert_eq!((sent.len(), sent[0].header.flags, sent[0].data.len()), (1, 0xa1, 1024));
    for (number, offset, length, ttt) in [(0, 1024, 2048, 7_u32), (1, 3072, 928, 8)] {
        let pdu = R2t { ttt: ttt.into(), ..r2t(itt, number, offset, length) };
        assert_eq!(alone.answer(&pdu, &[]).unwrap(), []);
    }
    let sent = alone.sent();
    let seen: Vec<_> = sent.iter().map(|pdu| (pdu.word(20), pdu.word(36), pdu.word(40))).collect();
    assert_eq!(seen, [(7, 0, 1024), (8, 0, 3072)]);
    assert!(sent.iter().all(|pdu| pdu.header.flags == 0x80 && pdu.header.lun[1] == 3));
    assert_eq!(sent[1].data, &buffer(4000)[3072..]);
    assert!(matches!(alone.answer(&good(itt), &[]).unwrap()[..], [Said::Done { .. }]));
}

/// GOOD means that the data was moved: less is a fault, unless the residual says so.
#[test]
fn good_means_that_the_data_was_moved() {
    let judge = |data: Direction<Buffer>, flags: u8, residual: u32| {
        let mut alone = logged_in();
        let (itt, _) = alone.command(1, data);
        let (flags, residual) = (0x80 | flags, residual.into());
        alone.answer(&ScsiResponse { flags, residual, ..good(itt) }, &[])
    };
    let missing = |moved, due| Fault::DataMissing { pdu: RESPONSE, moved, due };
    assert_eq!(judge(Direction::Read(512), 0, 0).unwrap_err(), missing(0, 512));
    assert_eq!(judge(Direction::Read(512), 2, 500).unwrap_err(), missing(0, 12));
    assert_eq!(judge(Direction::Read(512), 4, 500).unwrap_err(), missing(0, 512));
    assert!(judge(Direction::Read(512), 2, 512).is_ok());
    let write = || Direction::Write(buffer(512), 0..512);
    assert_eq!(judge(write(), 0, 0).unwrap_err(), missing(0, 512));
    assert!(judge(write(), 2, 512).is_ok());
    assert!(is_field(&judge(write(), 2, 513).unwrap_err(), "ResidualCount"));
    assert!(is_field(&judge(write(), 6, 512).unwrap_err(), "residual flags"));
    let said = judge(Direction::None, 4, 36).unwrap();
    let [Said::Done { status: Some(0), residual: Residual::Overflow(36), .. }] = said[..] else {
        panic!("{said:?}")
    };
    // Without GOOD nothing was promised.
    let mut alone = logged_in();
    let (itt, _) = alone.command(1, write());
    let failed = ScsiResponse { response: 1, ..good(itt) };
    let said = alone.answer(&failed, &[]).unwrap();
    assert!(matches!(said[..], [Said::Done { status: None, .. }]), "{said:?}");
}

/// An answer to what is still in the outbox, be it the command or its last data, is no answer.
#[test]
fn answers_follow_what_was_sent() {
    let mut alone = logged_in();
    let itt = alone.initiator.command(super::harness::command(1, 0, Direction::None));
    alone.exp_cmd_sn += 1;
    let fault = alone.answer(&good(itt), &[]).unwrap_err();
    assert_eq!(fault, Fault::TooEarly { pdu: RESPONSE, itt: itt.0 });

    let mut alone = logged_in();
    let (itt, _) = alone.command(1, Direction::Write(buffer(512), 0..512));
    alone.answer(&r2t(itt, 0, 0, 512), &[]).unwrap();
    let fault = alone.answer(&good(itt), &[]).unwrap_err();
    assert_eq!(fault, Fault::TooEarly { pdu: RESPONSE, itt: itt.0 });
}

/// Lengths of sense data that do not fit.
#[test]
fn sense_data_must_fit() {
    let judge = |data: &[u8]| {
        let mut alone = logged_in();
        let (itt, _) = alone.command(1, Direction::None);
        alone.answer(&ScsiResponse { status: 2, ..good(itt) }, data)
    };
    for (data, length) in [(&[0, 0][..], 0), (&[0, 3, 1, 2, 3, 9], 3), (&[], 0)] {
        let said = judge(data).unwrap();
        let [Said::Done { status: Some(2), sense, .. }] = &said[..] else { panic!("{said:?}") };
        assert_eq!(sense.len(), length);
    }
    let long = [[1, 0].as_slice(), &[7; 256]].concat();
    for wrong in [&[0][..], &[0, 1], &[0xff, 0xff, 1, 2], &long] {
        assert!(is_field(&judge(wrong).unwrap_err(), "SenseLength"));
    }
}

/// Headers that no target may send.
#[test]
fn headers_are_judged() {
    let judge = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut alone = logged_in();
        let (itt, _) = alone.command(1, Direction::None);
        let mut pdu = alone.pdu(&good(itt), &[]);
        change(&mut pdu);
        alone.receive(&pdu).unwrap_err()
    };
    for request in [0x00, 0x01, 0x05, 0x10, 0x1f, 0x23, 0x30, 0x3e] {
        let fault = judge(&|pdu| pdu[0] = request);
        let when = "in the full feature phase";
        assert_eq!(fault, Fault::OutOfPlace { pdu: PduKind(request), when });
    }
    let fault = judge(&|pdu| {
        pdu[4] = 1;
        pdu.extend_from_slice(&[0; 4]);
    });
    assert!(is_field(&fault, "TotalAHSLength"));
    let fault = judge(&|pdu| pdu[5] = 0x50);
    let wanted = Fault::SegmentTooLong { pdu: RESPONSE, length: 0x50_0000, limit: 262_144 };
    assert_eq!(fault, wanted);
    assert!(is_field(&judge(&|pdu| pdu[27] ^= 1), "StatSN"));
}

/// Digests that do not match, of the header or the data.
#[test]
fn digests_must_match() {
    for at in [20, 52, 59] {
        let mut mine = settings();
        mine.header_digest = DigestPolicy::Required;
        mine.data_digest = DigestPolicy::Required;
        let keys = ["HeaderDigest=CRC32C", "DataDigest=CRC32C"];
        let mut alone = Alone::logged_in(mine, &keys);
        let itt = alone.initiator.command(super::harness::command(1, 0, Direction::Read(7)));
        alone.initiator.written(52);
        let (mut pdu, number) = (last(itt, 0, 0), alone.stat_sn);
        (pdu.stat_sn, pdu.exp_cmd_sn, pdu.max_cmd_sn) = (number.into(), 2.into(), 9.into());
        let mut bytes = encode(&pdu, b"payload", (true, true));
        bytes[at] ^= 1;
        let fault = alone.receive(&bytes).unwrap_err();
        let wanted = if at < 52 { Fault::HeaderDigest } else { Fault::DataDigest { pdu: DATA_IN } };
        assert_eq!(fault, wanted);
        bytes[at] ^= 1;
        assert_eq!(alone.receive(&bytes).unwrap(), [], "nothing is taken after a fault");
    }
}

/// A target that closes at any byte of a conversation leaves what was outstanding in sight, and what it
/// never got known to be dead.
#[test]
fn a_target_may_close_anywhere() {
    let mut whole = logged_in();
    let (itt, _) = whole.command(1, Direction::Read(900));
    let mut bytes = whole.pdu(&data_in(itt, 0, 0), &buffer(500));
    bytes.extend(whole.pdu(&last(itt, 1, 500), &buffer(400)));
    for cut in 0..bytes.len() {
        let mut alone = logged_in();
        alone.command(1, Direction::Read(900));
        alone.initiator.command(super::harness::command(2, 0, Direction::None));
        let mut rest = &bytes[..cut];
        loop {
            let received = alone.initiator.receive(rest).unwrap();
            rest = &rest[received.consumed..];
            if received.consumed == 0 && received.event.is_none() {
                break;
            }
        }
        assert!(rest.len() < alone.initiator.needed());
        let mut left: Vec<_> =
            alone.initiator.outstanding().map(|one| (one.tag, one.sent)).collect();
        left.sort_unstable();
        assert_eq!(left, [(1, true), (2, false)]);
    }
}

/// What a target answers to three commands.
fn conversation() -> Vec<u8> {
    let mut alone = logged_in();
    let (first, _) = alone.command(1, Direction::Read(900));
    let (second, _) = alone.command(2, Direction::Write(buffer(4000), 0..4000));
    let (third, _) = alone.command(3, Direction::None);
    let mut bytes = Vec::new();
    bytes.extend(alone.pdu(&data_in(first, 0, 0), &buffer(500)));
    bytes.extend(alone.pdu(&r2t(second, 0, 0, 4000), &[]));
    bytes.extend(alone.pdu(&ScsiResponse { status: 2, ..good(third) }, &[0, 3, 1, 2, 3]));
    bytes.extend(alone.pdu(&last(first, 1, 500), &buffer(400)));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// One or two damaged bytes anywhere, and any cut: no panic, bounded output, and no data beyond the
    /// command or twice.
    #[test]
    fn damage_is_survived(
        at in prop::collection::vec((0..2000_usize, 1..=255_u8), 1..3),
        cut in 0..2000_usize,
    ) {
        let mut bytes = conversation();
        for (at, flip) in at {
            let length = bytes.len();
            bytes[at % length] ^= flip;
        }
        bytes.truncate(cut);
        let mut alone = logged_in();
        alone.command(1, Direction::Read(900));
        alone.command(2, Direction::Write(buffer(4000), 0..4000));
        alone.command(3, Direction::None);
        let mut rest = &bytes[..];
        while let Ok(received) = alone.initiator.receive(rest) {
            rest = &rest[received.consumed..];
            prop_assert!(alone.initiator.needed() <= Settings::pdu_length_max(&settings()));
            prop_assert!(alone.initiator.outbox().len() < 8192);
            if received.consumed == 0 && received.event.is_none() {
                break;
            }
        }
    }

    /// Noise instead of an answer to the login.
    #[test]
    fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        let mut alone = Alone::new(settings());
        alone.sent();
        let mut rest = &bytes[..];
        while let Ok(received) = alone.initiator.receive(rest) {
            rest = &rest[received.consumed..];
            if received.consumed == 0 && received.event.is_none() {
                break;
            }
        }
    }
}
