//! Tests of I/O commands: what is read out of them, and how they are checked.

use super::controller::namespace;
use super::harness::{Sgl, parsed, sqe};
use crate::nvme::io::{Blocks, Io, Target, decode, ranges};
use crate::nvme::{AnaState, Namespace, Status, Transfer};

const MAX: u32 = 64 << 10;

pub(super) fn namespaces() -> Vec<Namespace> {
    vec![namespace(1), namespace(9)]
}

/// Reads and checks a command of namespace 9.
pub(super) fn judge(opcode: u8, cdws: &[u32], transfer: Transfer) -> Result<Io, Status> {
    judge_in(&namespaces(), opcode, 9, cdws, transfer)
}

pub(super) fn judge_in(
    namespaces: &[Namespace],
    opcode: u8,
    nsid: u32,
    cdws: &[u32],
    transfer: Transfer,
) -> Result<Io, Status> {
    let command = parsed(&sqe(opcode, 1, nsid, cdws, Sgl::Transport(0)));
    let (io, target) = decode(&command, transfer, namespaces)?;
    if let Target::One(index) = target {
        io.check(transfer, &namespaces[index], MAX)?;
    }
    Ok(io)
}

fn blocks(lba: u64, count: u32, fua: bool) -> Blocks {
    Blocks { lba, count, fua }
}

/// Every command is read as what it is.
#[test]
fn commands_are_read() {
    let (from, to) = (Transfer::ByRequest(1024), Transfer::ToHost(1024));
    let fua = 1 | 1 << 30;
    assert_eq!(judge(0x00, &[], Transfer::None), Ok(Io::Flush));
    assert_eq!(judge(0x01, &[5, 0, fua], from), Ok(Io::Write(blocks(5, 2, true))));
    assert_eq!(judge(0x02, &[5, 0, 1], to), Ok(Io::Read(blocks(5, 2, false))));
    assert_eq!(judge(0x05, &[5, 0, 1], from), Ok(Io::Compare(blocks(5, 2, false))));
    assert_eq!(judge(0x0c, &[5, 0, 1], Transfer::None), Ok(Io::Verify(blocks(5, 2, false))));
    let zeroes = |deallocate| Ok(Io::WriteZeroes { blocks: blocks(0, 2048, false), deallocate });
    assert_eq!(judge(0x08, &[0, 0, 2047], Transfer::None), zeroes(false));
    assert_eq!(judge(0x08, &[0, 0, 2047 | 1 << 25], Transfer::None), zeroes(true));
    let hints = |ranges, deallocate| Ok(Io::DatasetManagement { ranges, deallocate });
    assert_eq!(judge(0x09, &[1, 4], from), hints(2, true));
    assert_eq!(judge(0x09, &[255, 3], Transfer::InCapsule(4096)), hints(256, false));
}

/// All namespaces are flushed at once; no other command takes all.
#[test]
fn flush_takes_all_namespaces() {
    let command = parsed(&sqe(0x00, 1, 0xffff_ffff, &[], Sgl::Transport(0)));
    assert_eq!(decode(&command, Transfer::None, &namespaces()), Ok((Io::Flush, Target::All)));
    let verify = judge_in(&namespaces(), 0x0c, 0xffff_ffff, &[], Transfer::None);
    assert_eq!(verify, Err(Status::INVALID_NAMESPACE));
}

/// Checks come in the order of the specification: whatever is wrong first is said.
#[test]
fn checks_have_an_order() {
    let wrong_sgl = Transfer::Invalid(Status::SGL_TYPE_INVALID);
    let far = [u32::MAX, u32::MAX, u32::MAX];
    assert_eq!(judge_in(&namespaces(), 0x7e, 0, &far, wrong_sgl), Err(Status::INVALID_OPCODE));
    let mut fused = sqe(0x01, 1, 0, &far, Sgl::Transport(0));
    // A Write is the second of a fused pair, a Compare the first, and nothing is both.
    for (opcode, fuse, status) in [
        (0x01, 1, Status::INVALID_FIELD),
        (0x01, 2, Status::SGL_TYPE_INVALID),
        (0x05, 1, Status::SGL_TYPE_INVALID),
        (0x05, 2, Status::INVALID_FIELD),
        (0x05, 3, Status::INVALID_FIELD),
        (0x02, 1, Status::INVALID_FIELD),
    ] {
        (fused[0], fused[1]) = (opcode, fused[1] & !3 | fuse);
        let read = decode(&parsed(&fused), wrong_sgl, &namespaces());
        assert_eq!(read, Err(status), "opcode {opcode}, FUSE {fuse}");
    }
    assert_eq!(judge_in(&namespaces(), 0x01, 0, &[0], wrong_sgl), Err(Status::SGL_TYPE_INVALID));
    let none = Transfer::ByRequest(1);
    for (nsid, status) in [
        (0, Status::INVALID_NAMESPACE),
        (257, Status::INVALID_NAMESPACE),
        (0xffff_ffff, Status::INVALID_NAMESPACE),
        (2, Status::INVALID_FIELD),
        (256, Status::INVALID_FIELD),
    ] {
        assert_eq!(judge_in(&namespaces(), 0x01, nsid, &[5000, 0, 0], none), Err(status), "{nsid}");
    }
    let mut all = namespaces();
    all[1].read_only = true;
    for (ana, status) in [
        (AnaState::NonOptimized, Status::WRITE_PROTECTED),
        (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
        (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
        (AnaState::Change, Status::ANA_TRANSITION),
    ] {
        all[1].ana = ana;
        assert_eq!(judge_in(&all, 0x01, 9, &[5000, 0, 0], none), Err(status));
    }
    assert_eq!(judge(0x01, &[5000, 0, 0], none), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(judge(0x01, &[0, 0, 0], none), Err(Status::SGL_LENGTH_INVALID));
}

/// Protection information and directives are refused.
#[test]
fn unsupported_fields_are_refused() {
    for bit in 26..30 {
        let action = judge(0x02, &[0, 0, 1 << bit], Transfer::ToHost(512));
        assert_eq!(action, Err(Status::INVALID_FIELD), "bit {bit}");
    }
    assert_eq!(judge(0x01, &[0, 0, 1 << 20], Transfer::ByRequest(512)), Err(Status::INVALID_FIELD));
    // Limited retry, and hints of dword 13, are ignored.
    assert!(judge(0x02, &[0, 0, 1 << 31, 0xff], Transfer::ToHost(512)).is_ok());
}

/// Blocks lie within the namespace, without overflow.
#[test]
fn ranges_are_checked() {
    for (lba, count, good) in [
        (2047_u64, 1_u32, true),
        (2047, 2, false),
        (2048, 1, false),
        (u64::MAX, 2, false),
        (0, 2, true),
    ] {
        let cdws = [lba as u32, (lba >> 32) as u32, count - 1];
        let transfer = Transfer::ToHost(count * 512);
        let expected = if good { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE) };
        assert_eq!(judge(0x02, &cdws, transfer).map(|_| ()), expected, "{count} at {lba}");
        assert_eq!(judge(0x0c, &cdws, Transfer::None).map(|_| ()), expected);
        assert_eq!(judge(0x08, &cdws, Transfer::None).map(|_| ()), expected);
    }
}

/// Read, Write, Compare and Verify are bounded by the limit of a transfer; Write Zeroes is not.
#[test]
fn transfers_are_bounded() {
    for (count, good) in [(128_u32, true), (129, false)] {
        let cdws = [0, 0, count - 1];
        let expected = if good { Ok(()) } else { Err(Status::INVALID_FIELD) };
        for opcode in [0x01, 0x05] {
            let transfer = Transfer::InCapsule(count * 512);
            assert_eq!(judge(opcode, &cdws, transfer).map(|_| ()), expected, "{count}");
        }
        assert_eq!(judge(0x02, &cdws, Transfer::ToHost(count * 512)).map(|_| ()), expected);
        assert_eq!(judge(0x0c, &cdws, Transfer::None).map(|_| ()), expected, "Verify");
        assert!(judge(0x08, &cdws, Transfer::None).is_ok());
    }
}

/// The data is as long as the blocks.
#[test]
fn lengths_fit_the_blocks() {
    for length in [0, 511, 513, 1024] {
        for (opcode, transfer) in [
            (0x01, Transfer::ByRequest(length)),
            (0x01, Transfer::InCapsule(length)),
            (0x05, Transfer::InCapsule(length)),
            (0x02, Transfer::ToHost(length)),
        ] {
            let judged = judge(opcode, &[0, 0, 0], transfer);
            assert_eq!(judged, Err(Status::SGL_LENGTH_INVALID), "{opcode:#x}, {transfer:?}");
        }
    }
    let mut wide = namespaces();
    wide[1].block_shift = 12;
    assert!(judge_in(&wide, 0x02, 9, &[0, 0, 0], Transfer::ToHost(4096)).is_ok());
}

/// A list of ranges may be shorter than its data, never longer; all ranges lie within the namespace or none is done.
#[test]
fn range_lists_are_checked() {
    assert_eq!(judge(0x09, &[255, 4], Transfer::InCapsule(16)), Err(Status::SGL_LENGTH_INVALID));
    assert_eq!(judge(0x09, &[0, 4], Transfer::InCapsule(15)), Err(Status::SGL_LENGTH_INVALID));
    let io = judge(0x09, &[1, 4], Transfer::ByRequest(4096)).unwrap();
    assert_eq!(io.list_length(), 32);
    let range =
        |lba: u64, count: u32| [&[0xff; 4][..], &count.to_le_bytes(), &lba.to_le_bytes()].concat();
    let list = [range(8, 16), range(2048, 0)].concat();
    let expected = vec![blocks(8, 16, false), blocks(2048, 0, false)];
    assert_eq!(ranges(&list, &namespace(1)), Ok(expected));
    for wrong in [range(2040, 9), range(u64::MAX, 1), range(2049, 0)] {
        let list = [range(8, 16), wrong].concat();
        assert_eq!(ranges(&list, &namespace(1)), Err(Status::LBA_OUT_OF_RANGE));
    }
}

/// Dataset Management that deallocates writes; one that only hints does not.
#[test]
fn hints_are_no_writes() {
    let mut all = namespaces();
    all[1].read_only = true;
    let transfer = Transfer::InCapsule(4096);
    assert_eq!(judge_in(&all, 0x09, 9, &[0, 4], transfer), Err(Status::WRITE_PROTECTED));
    assert!(judge_in(&all, 0x09, 9, &[0, 3], transfer).is_ok());
    assert!(judge_in(&all, 0x00, 9, &[], Transfer::None).is_ok());
}
