//! What is concluded from what targets answer.

use super::*;

const GOOD: u8 = 0;
const CHECK: u8 = 2;

/// A target that answers each question by its operation code and page.
fn ask(lun: u64, answer: impl Fn(u8, u8) -> Result<Vec<u8>, Sense>) -> Result<Facts, Unfit> {
    let mut probe = Probe::new(lun);
    for _ in 0..100 {
        let Some(question) = probe.question() else { return Ok(probe.into_facts()) };
        match answer(question.cdb[0], question.cdb[2]) {
            Ok(mut bytes) => {
                bytes.truncate(question.room as usize);
                probe.answered(GOOD, Sense::default(), &bytes)?;
            }
            Err(sense) => probe.answered(CHECK, sense, &[])?,
        }
    }
    panic!("it never ends");
}

const ILLEGAL: Sense = Sense { deferred: false, key: 5, asc: 0x24, ascq: 0 };

/// The answers of a thin disk of 2048 blocks with a cache and two port groups.
fn disk(code: u8, page: u8) -> Result<Vec<u8>, Sense> {
    let page_of = |page: u8, body: &[u8]| {
        let mut bytes = vec![0, page, 0, body.len() as u8];
        bytes.extend_from_slice(body);
        bytes
    };
    Ok(match (code, page) {
        (0x00, _) => Vec::new(),
        (0xa0, _) => [&[0, 0, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 1, 0, 0, 0, 0, 0, 0]].concat(),
        (0x12, 0x00) if page == 0 => {
            // Standard data and the list of pages differ in their first bytes alone.
            let mut bytes = vec![0; 36];
            bytes[2] = 0;
            bytes[3] = 4;
            bytes[4..8].copy_from_slice(&[0x83, 0x30, 0xb2, 0xb0]);
            bytes[8..32].copy_from_slice(b"VENDOR  A DISK          ");
            bytes
        }
        (0x12, 0x83) => {
            let vendor = [2, 1, 0, 4, b'w', b'e', b'i', b'r'];
            let naa = [1, 3, 0, 8, 0x60, 1, 2, 3, 4, 5, 6, 7];
            let port_group = [1, 0x15, 0, 4, 0, 0, 0, 9];
            page_of(page, &[&vendor[..], &naa, &port_group].concat())
        }
        (0x12, 0xb0) => {
            let mut body = [0; 60];
            body[4..8].copy_from_slice(&64_u32.to_be_bytes());
            body[16..20].copy_from_slice(&1_000_u32.to_be_bytes());
            body[24..28].copy_from_slice(&8_u32.to_be_bytes());
            body[32..40].copy_from_slice(&4_096_u64.to_be_bytes());
            page_of(page, &body)
        }
        (0x12, 0xb2) => page_of(page, &[0, 0xc4, 2, 0]),
        (0x9e, _) => {
            let mut bytes = vec![0; 32];
            bytes[..8].copy_from_slice(&2_047_u64.to_be_bytes());
            bytes[8..12].copy_from_slice(&512_u32.to_be_bytes());
            bytes
        }
        (0x1a, _) => [&[23, 0, 0x10, 0, 0x88, 0x12, 0x04][..], &[0; 17]].concat(),
        (0xa3, _) => [
            &[0, 0, 0, 24][..],
            &[0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1],
            &[0x82, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2],
        ]
        .concat(),
        _ => return Err(ILLEGAL),
    })
}

/// All that a disk says of itself is taken in.
#[test]
fn a_disk_is_described() {
    let facts = ask(1, disk).unwrap();
    assert_eq!((facts.blocks, facts.block_size, facts.capacity()), (2_048, 512, 1 << 20));
    assert_eq!(facts.identity.as_ref().unwrap().to_string(), "naa.6001020304050607");
    assert!(facts.write_cache && facts.fua && !facts.read_only);
    assert!(facts.zeroes && facts.unmaps_by_write_same);
    assert_eq!((facts.unmap_blocks, facts.granularity), (Some(1_000), (8, 0)));
    assert_eq!((facts.max_blocks, facts.max_write_same), (64, 4_096));
    assert_eq!(facts.access, Access::Standby);
    assert_eq!(facts.product, "VENDOR A DISK");
}

/// A target that knows nothing but what it must still has a disk, with the safe defaults.
#[test]
fn a_simple_disk_is_enough() {
    let simple = |code, page| match (code, page) {
        (0x12, 0x83 | 0xb0 | 0xb2) | (0x9e | 0x1a | 0xa3 | 0xa0, _) => Err(ILLEGAL),
        (0x25, _) => Ok([1_023_u32.to_be_bytes(), 4_096_u32.to_be_bytes()].concat()),
        _ => disk(code, page),
    };
    let facts = ask(1, simple).unwrap();
    assert_eq!((facts.blocks, facts.block_size), (1_024, 4_096));
    assert!(facts.write_cache && !facts.fua && facts.identity.is_none() && !facts.zeroes);
}

/// The error for a LUN that does not exist names those that do, and a device that is no disk is refused.
#[test]
fn another_lun_is_refused() {
    let missing = ask(7, disk).unwrap_err();
    assert_eq!(missing, Unfit::NoUnit { lun: 7, found: vec![0, 1] });
    assert_eq!(missing.to_string(), "the target has no LUN 7; it has 0, 1");
    let tape = |code, page| {
        let mut answer = disk(code, page)?;
        if (code, page) == (0x12, 0) {
            answer[0] = 1;
        }
        Ok(answer)
    };
    assert_eq!(ask(1, tape), Err(Unfit::NoDisk(1)));
}

/// Whatever is cut off, and wherever, ends in facts or in an error.
#[test]
fn cut_answers_do_no_harm() {
    for code in [0x12, 0x9e, 0x25, 0x1a, 0xa0, 0xa3] {
        for length in 0..64 {
            let cut = |asked, page| {
                let mut answer = disk(asked, page)?;
                if asked == code {
                    answer.truncate(length);
                }
                Ok(answer)
            };
            if let Ok(facts) = ask(1, cut) {
                assert!(facts.block_size >= BLOCK_MIN);
            }
        }
    }
}

/// A size that cannot be is not believed.
#[test]
fn nonsense_is_not_believed() {
    for (last, block) in [(u64::MAX, 512_u32), (1 << 62, 512), (9, 0), (9, 520), (9, 1 << 20)] {
        let odd = |code, page| {
            let mut answer = disk(code, page)?;
            if code == 0x9e {
                answer[..8].copy_from_slice(&last.to_be_bytes());
                answer[8..12].copy_from_slice(&block.to_be_bytes());
            }
            Ok(answer)
        };
        assert_eq!(ask(1, odd), Err(Unfit::Nonsense("READ CAPACITY")), "{last} {block}");
    }
}

/// Unit attentions are swallowed, but not for ever.
#[test]
fn unit_attentions_are_swallowed() {
    let mut probe = Probe::new(0);
    let attention = Sense { deferred: false, key: 6, asc: 0x29, ascq: 0 };
    for _ in 0..AGAIN_MAX {
        let before = probe.question();
        assert_eq!(probe.answered(CHECK, attention, &[]), Ok(()));
        assert_eq!(probe.question(), before);
    }
    assert!(matches!(probe.answered(CHECK, attention, &[]), Err(Unfit::NeverReady(_))));
}
