//! Tests of Identify.

use super::controller::{Gateway, failed};
use super::harness::SUBSYSTEM;
use crate::nvme::{Status, discovery};

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*data[at..].first_chunk().unwrap())
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*data[at..].first_chunk().unwrap())
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*data[at..].first_chunk().unwrap())
}

/// A controller says what it is, where Linux looks for it.
#[test]
fn controllers_describe_themselves() {
    let data = Gateway::enabled().data(0x06, 0, &[1], 4096);
    assert_eq!(&data[4..24], b"0123456789abcdef0123");
    assert_eq!(&data[24..64], format!("{:40}", "Weir").as_bytes());
    assert_eq!(&data[64..72], b"0.1.0   ");
    assert_eq!(
        (data[76], data[77], u16_at(&data, 78), u32_at(&data, 80)),
        (0x0b, 8, 5, 0x0001_0400)
    );
    assert_eq!((u32_at(&data, 88), u32_at(&data, 92)), (30_000_000, 1 << 8 | 1 << 11));
    assert_eq!((u32_at(&data, 96), data[111], u16_at(&data, 128)), (0x41, 1, 10));
    assert_eq!((u16_at(&data, 256), data[258], data[259], data[261], data[262]), (0, 3, 3, 7, 0));
    assert_eq!((u16_at(&data, 320), data[342], data[343]), (10, 10, 0x1f));
    assert_eq!((u32_at(&data, 344), u32_at(&data, 348), u16_at(&data, 386)), (256, 256, 1000));
    assert_eq!(
        (data[512], data[513], u16_at(&data, 514), u32_at(&data, 516)),
        (0x66, 0x44, 128, 256)
    );
    assert_eq!((u16_at(&data, 520), u16_at(&data, 522), data[525]), (0xad, 1, 7));
    assert_eq!((u32_at(&data, 536), u32_at(&data, 540)), (0x0010_0001, 256));
    assert_eq!(&data[768..768 + SUBSYSTEM.len()], SUBSYSTEM.as_bytes());
    assert_eq!(data[768 + SUBSYSTEM.len()], 0);
    assert_eq!(
        (u32_at(&data, 1792), u32_at(&data, 1796), u16_at(&data, 1800), data[1803]),
        (516, 1, 0, 1)
    );
}

/// A discovery controller has no namespaces and no I/O queues, and answers no other Identify.
#[test]
fn discovery_controllers_describe_themselves() {
    let mut gateway = Gateway::discovery();
    let data = gateway.data(0x06, 0, &[1], 4096);
    assert_eq!((data[111], u32_at(&data, 516), u32_at(&data, 92)), (2, 0, 1 << 31));
    assert_eq!((data[261], u16_at(&data, 514), u16_at(&data, 320)), (4, 32, 10));
    assert_eq!(&data[768..768 + discovery::NQN.len()], discovery::NQN.as_bytes());
    for cns in [0, 2, 3, 5, 6, 8, 0x12, 0x13] {
        assert_eq!(gateway.admin(0x06, 1, &[cns], 4096), failed(Status::INVALID_FIELD));
    }
}

/// A namespace describes itself; one that is not active is all zeroes, one that cannot be is refused.
#[test]
fn namespaces_describe_themselves() {
    let mut gateway = Gateway::enabled();
    gateway.namespaces[1].thin = false;
    gateway.namespaces[1].read_only = true;
    let data = gateway.data(0x06, 1, &[0], 4096);
    assert_eq!((u64_at(&data, 0), u64_at(&data, 8), u64_at(&data, 16)), (2048, 2048, 2048));
    assert_eq!((data[24], data[25], data[26], data[30], data[33]), (0x13, 0, 0, 1, 9));
    assert_eq!(u16_at(&data, 38), 7, "NACWU");
    assert_eq!(data[31], 0xff, "six types of reservations, IEKEY, persistence");
    assert_eq!(
        (u16_at(&data, 64), u16_at(&data, 66), u16_at(&data, 68), u16_at(&data, 70)),
        (7, 7, 7, 7)
    );
    assert_eq!((u32_at(&data, 92), data[99], &data[104..120]), (1, 0, &[1; 16][..]));
    assert_eq!(data[128..132], [0, 0, 9, 0]);
    let data = gateway.data(0x06, 2, &[0], 4096);
    assert_eq!((u64_at(&data, 16), data[24], data[33], data[99]), (2048, 0x12, 0, 1));
    assert_eq!(data[31], 0xfe, "no place to keep reservations");
    assert_eq!(gateway.data(0x06, 3, &[0], 4096), [0; 4096]);
    for nsid in [0, 257, 0xffff_ffff] {
        for cns in [0, 3, 5, 8] {
            let expected = failed(Status::INVALID_NAMESPACE);
            assert_eq!(gateway.admin(0x06, nsid, &[cns], 4096), expected, "{nsid}, CNS {cns}");
        }
    }
}

/// Lists and descriptors hold what is active, in order.
#[test]
fn lists_are_in_order() {
    let mut gateway = Gateway::enabled();
    let data = gateway.data(0x06, 0, &[2], 4096);
    assert_eq!((0..4).map(|n| u32_at(&data, n * 4)).collect::<Vec<_>>(), [1, 2, 9, 0]);
    let data = gateway.data(0x06, 2, &[2], 4096);
    assert_eq!((u32_at(&data, 0), u32_at(&data, 4)), (9, 0));
    for nsid in [0xffff_fffe, 0xffff_ffff] {
        assert_eq!(gateway.admin(0x06, nsid, &[2], 4096), failed(Status::INVALID_NAMESPACE));
    }
    let data = gateway.data(0x06, 9, &[3], 4096);
    assert_eq!((&data[..4], &data[4..20]), (&[2, 16, 0, 0][..], &[9; 16][..]));
    assert_eq!((&data[20..24], &data[24..40]), (&[3, 16, 0, 0][..], &[0xa0; 16][..]));
    assert_eq!(data[40..48], [4, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(gateway.admin(0x06, 3, &[3], 4096), failed(Status::INVALID_NAMESPACE));
    let data = gateway.data(0x06, 0, &[0x13 | 5 << 16], 4096);
    assert_eq!(data[..8], [2, 0, 5, 0, 6, 0, 0, 0]);
    assert_eq!(gateway.data(0x06, 1, &[0x12], 4096)[..4], [3, 0, 1, 0]);
    assert_eq!(gateway.admin(0x06, 3, &[0x12], 4096), failed(Status::INVALID_NAMESPACE));
}

/// The command set is NVM; its controller data bounds Verify and Write Zeroes.
#[test]
fn command_sets_describe_themselves() {
    let mut gateway = Gateway::enabled();
    let data = gateway.data(0x06, 0, &[6], 4096);
    assert_eq!((data[0], data[1], &data[2..]), (8, 12, &[0; 4094][..]));
    assert_eq!(gateway.data(0x06, 1, &[5], 4096), [0; 4096]);
    let data = gateway.data(0x06, 1, &[8], 4096);
    assert_eq!((data[0], data[1], data[2], u32_at(&data, 4)), (1, 1, 0xff, 1));
    assert_eq!((data[8], data[14]), (0, 1));
    for (cns, csi) in [(5, 2), (6, 1), (7, 0), (0x7f, 0)] {
        let action = gateway.admin(0x06, 1, &[cns, csi << 24], 4096);
        assert_eq!(action, failed(Status::INVALID_FIELD), "CNS {cns}, CSI {csi}");
    }
}

/// The data has 4096 bytes, for every kind that there is.
#[test]
fn rooms_are_checked() {
    let mut gateway = Gateway::enabled();
    for cns in [0, 1, 2, 3, 5, 6, 8, 0x12, 0x13] {
        for room in [0, 512, 4092, 8192] {
            let expected = failed(Status::SGL_LENGTH_INVALID);
            assert_eq!(gateway.admin(0x06, 1, &[cns], room), expected, "CNS {cns}, {room} bytes");
        }
    }
}
