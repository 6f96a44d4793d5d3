//! The initiator against our own target, in every shape that the two can agree on.

use super::harness::{Buffer, DISK, Pair, Said, command, node, settings};
use crate::iscsi::initiator::{DigestPolicy, Direction, Residual, Settings};
use crate::iscsi::target_role::Limits;

const GOOD: Option<u8> = Some(0);

fn done(tag: u64) -> Said {
    Said::Done { tag, status: GOOD, sense: Vec::new(), residual: Residual::None }
}

/// Writes `lengths` behind each other as far as there is room, then reads them back.
fn write_and_read(pair: &mut Pair, lengths: &[usize]) {
    let payload: Buffer = (0..DISK).map(|at| (at * 31 + at / 7) as u8).collect();
    let mut places = Vec::new();
    let mut offset = 0;
    for &length in lengths {
        places.push((offset, length));
        offset += length;
    }
    for write in [true, false] {
        let mut waiting = (0_u64..).zip(places.iter().copied()).peekable();
        let mut ended = Vec::new();
        while ended.len() < places.len() {
            assert!(pair.initiator.room() > 0);
            while let Some((tag, (offset, length))) = waiting.next_if(|_| pair.initiator.room() > 0)
            {
                let data = if write {
                    Direction::Write(payload.clone(), offset..offset + length)
                } else {
                    Direction::Read(length as u32)
                };
                pair.initiator.command(command(tag, offset as u32, data));
            }
            ended.extend(pair.run().unwrap());
        }
        ended.sort_by_key(|said| match said {
            Said::Done { tag, .. } => *tag,
            other => panic!("{other:?}"),
        });
        let expected: Vec<Said> = (0..places.len() as u64).map(done).collect();
        assert_eq!(ended, expected);
        assert_eq!(pair.initiator.outstanding().count(), 0);
    }
    assert!(pair.disk[..offset] == payload[..offset], "what was written is on the disk");
    for (tag, (offset, length)) in (0..).zip(&places) {
        let read = pair.reads.remove(&tag).unwrap_or_default();
        assert!(read == payload[*offset..offset + length], "command {tag} reads what was written");
    }
}

const LENGTHS: [usize; 12] = [0, 1, 3, 4, 511, 512, 513, 2047, 4096, 5000, 12_289, 30_000];

/// Data arrives whole in both directions whatever is agreed on: digests, bursts, segments, immediate
/// and unsolicited data, and R2Ts.
#[test]
fn every_shape_moves_data() {
    let mut shapes = 0;
    for (digest, other) in [
        (DigestPolicy::Never, DigestPolicy::Allowed),
        (DigestPolicy::Required, DigestPolicy::Allowed),
        (DigestPolicy::Allowed, DigestPolicy::Required),
    ] {
        for (initial_r2t, immediate_data) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            for (burst, first, segment) in
                [(512, 512, 512), (1000, 514, 515), (262_144, 65_536, 65_536), (4096, 2048, 8192)]
            {
                for (ours, r2ts) in [(true, 1), (false, 8)] {
                    let (mut mine, mut theirs) = (settings(), Limits::default());
                    mine.header_digest = digest;
                    mine.data_digest = digest;
                    theirs.header_digest = other;
                    theirs.data_digest = other;
                    theirs.max_recv_data_segment_length = segment;
                    mine.max_recv = segment;
                    if ours {
                        (mine.max_burst, mine.first_burst) = (burst, first);
                        (mine.initial_r2t, mine.immediate_data) = (initial_r2t, immediate_data);
                        mine.max_outstanding_r2t = r2ts;
                    } else {
                        (theirs.max_burst_length, theirs.first_burst_length) = (burst, first);
                        (theirs.initial_r2t, theirs.immediate_data) = (initial_r2t, immediate_data);
                        theirs.max_outstanding_r2t = r2ts;
                    }
                    let mut pair = Pair::logged_in(mine, theirs);
                    let agreed = *pair.initiator.parameters();
                    assert_eq!(agreed, *pair.target.parameters());
                    assert_eq!(agreed.data_digest, digest != DigestPolicy::Never);
                    assert_eq!(agreed.max_burst_length, burst);
                    write_and_read(&mut pair, &LENGTHS);
                    shapes += 1;
                }
            }
        }
    }
    assert_eq!(shapes, 96);
}

/// However the bytes are cut on their way, the same happens.
#[test]
fn bytes_may_be_cut_anywhere() {
    for step in [1, 2, 3, 5, 47, 48, 49, 100, 1023] {
        let mut mine = settings();
        mine.header_digest = DigestPolicy::Required;
        mine.data_digest = DigestPolicy::Required;
        mine.first_burst = 1024;
        mine.max_burst = 1536;
        let mut pair = Pair::new(mine, node(), Limits::default());
        pair.step = step;
        let said = pair.run().unwrap();
        let window = Limits::default().command_window;
        assert_eq!(said, [Said::LoggedIn { tsih: 77, portal_group: Some(9), window }]);
        write_and_read(&mut pair, &[7, 512, 3000]);
    }
}

/// A window of one command is kept, and opened again by each end; so is the own limit.
#[test]
fn a_window_of_one_is_enough() {
    for (window, own) in [(1, 128), (128, 1), (2, 3)] {
        let limits = Limits { command_window: window, ..Limits::default() };
        let mut pair = Pair::logged_in(Settings { commands_max: own, ..settings() }, limits);
        assert_eq!(pair.initiator.room(), window.min(own));
        write_and_read(&mut pair, &[100; 20]);
        assert_eq!(pair.target.ignored(), 0);
    }
}

/// Command numbers wrap.
#[test]
fn command_numbers_wrap() {
    for start in [u32::MAX, u32::MAX - 5, 0x7fff_fffe] {
        let mut pair = Pair::starting_at(settings(), node(), Limits::default(), start);
        pair.run().unwrap();
        write_and_read(&mut pair, &[300; 15]);
        assert_eq!(pair.target.ignored(), 0);
    }
}

/// The status and the sense data of a command that fails arrive.
#[test]
fn errors_arrive() {
    let mut pair = Pair::logged_in(settings(), Limits::default());
    pair.initiator.command(command(5, DISK as u32, Direction::Read(512)));
    let said = pair.run().unwrap();
    let [Said::Done { tag: 5, status: Some(2), sense, residual: Residual::Underflow(512) }] =
        &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!((sense[0], sense[2] & 15, sense[12]), (0x70, 5, 0x21));
}
