//! A session in the full feature phase, and what its initiator sends.
//!
//! The first byte of an input chooses what is negotiated. Records follow, each of a control byte, a
//! byte for what the shell does by itself, a header of 48 bytes and data. The connection is
//! fed twice, with everything there is and with no more than it asks for: what it sends must be the
//! same.

use weir_wire::iscsi::target_role::{DigestPolicy, Limits};

use super::shell::{OPEN, Shell};

/// The first command number.
const CMD_SN: u32 = 100;
/// Control byte: the header goes out as it is, lengths and numbers included.
const AS_IT_IS: u8 = 0x80;
/// Control byte: the initiator does not read for now.
const NOT_READING: u8 = 0x40;
/// Control byte: a command ends before.
const FINISH: u8 = 0x20;
/// Control byte: the digests are wrong.
const DAMAGE: u8 = 0x10;

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, records)) = input.split_first() else { return };
    let whole =
        session(options, records, |shell, bytes| shell.feed(bytes).is_some_and(<[u8]>::is_empty));
    let trickled = session(options, records, |shell, mut bytes| {
        while !bytes.is_empty() {
            let Some((now, later)) = bytes.split_at_checked(shell.connection.needed()) else {
                return false;
            };
            match shell.feed(now) {
                None => return false,
                Some([]) => bytes = later,
                // The header was there; now the connection knows how much follows.
                Some(left) => assert_eq!(left.len(), now.len(), "a part of a PDU was taken"),
            }
        }
        true
    });
    assert!(whole == trickled, "what is sent depends on how the input was cut");
}

/// Everything that the connection sends in answer to the records.
fn session(options: u8, mut records: &[u8], feed: impl Fn(&mut Shell, &[u8]) -> bool) -> Vec<u8> {
    let yes = |bit: u8| if options >> bit & 1 == 1 { "Yes" } else { "No" };
    let policy = |bit: u8| {
        if options >> bit & 1 == 1 { DigestPolicy::Allowed } else { DigestPolicy::Never }
    };
    let limits = Limits {
        max_recv_data_segment_length: 512,
        max_burst_length: 1024,
        first_burst_length: 768,
        command_window: [1, 2, 4, 8][usize::from(options >> 6)],
        header_digest: policy(0),
        data_digest: policy(1),
        ..Limits::default()
    };
    let target = if options >> 5 & 1 == 1 {
        String::from("SessionType=Discovery")
    } else {
        format!("TargetName={OPEN}")
    };
    let keys = format!(
        "InitiatorName=iqn.2026-01.test.weir:host\0{target}\0HeaderDigest=CRC32C,None\0\
         DataDigest=CRC32C,None\0InitialR2T={}\0ImmediateData={}\0MaxOutstandingR2T=3\0\
         MaxRecvDataSegmentLength=512\0MaxBurstLength=1024\0",
        yes(2),
        yes(3),
    );
    let mut shell = Shell::new(limits, false);
    let login = login(&keys);
    assert_eq!(shell.feed(&login).map(<[u8]>::len), Some(0), "a good login");
    shell.drain();
    assert!(shell.connection.is_full_feature());

    let digests =
        (shell.connection.parameters().header_digest, shell.connection.parameters().data_digest);
    let mut cmd_sn = CMD_SN;
    while let [control, deed, rest @ ..] = records {
        let (control, deed) = (*control, *deed);
        let (header, rest) = rest.split_at(rest.len().min(48));
        let mut pdu = [0; 48];
        pdu[..header.len()].copy_from_slice(header);
        let length = rest.len().min(usize::from(control & 0x0f) * 33);
        let (data, rest) = rest.split_at(length);
        records = rest;
        if control & FINISH != 0 {
            shell.finish_one();
        }
        stir(&mut shell, deed);
        if control & AS_IT_IS == 0 {
            pdu[4..8].copy_from_slice(&(length as u32).to_be_bytes());
            pdu[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
            // RFC 7143 section 4.2.2.1: immediate requests and Data-Out take no number, and one
            // beyond the window is ignored.
            let takes_number = pdu[0] & 0x40 == 0 && pdu[0] & 0x3f != 5;
            let within = shell.max_cmd_sn.wrapping_sub(cmd_sn).cast_signed() >= 0;
            cmd_sn = cmd_sn.wrapping_add(u32::from(takes_number && within));
        }
        if !feed(&mut shell, &encode(&pdu, data, digests, control & DAMAGE != 0)) {
            break;
        }
        if control & NOT_READING == 0 {
            shell.drain();
        }
    }
    shell.drain();
    shell.sent
}

/// What a shell does by itself, by the lower half of the byte; the upper half is a number.
fn stir(shell: &mut Shell, deed: u8) {
    let number = deed >> 4;
    let connection = &mut shell.connection;
    match deed & 0x0f {
        1 => assert!(connection.ping() <= 16, "an initiator that is silent is not asked for ever"),
        2 => connection.request_logout(number.into()),
        3 => connection.announce_drop(number.into(), 0),
        // No larger than what was granted at first, by which the shell judges the window.
        4 => connection.set_window(shell.limits.command_window.min(number.into())),
        5 => shell.abandon_all(),
        _ => {}
    }
}

/// A login request from the operational stage straight to the full feature phase.
fn login(keys: &str) -> Vec<u8> {
    let mut pdu = [0; 48];
    // RFC 7143 section 11.12: login, immediate; transit from stage 1 to 3.
    pdu[0] = 0x43;
    pdu[1] = 0x87;
    pdu[4..8].copy_from_slice(&(keys.len() as u32).to_be_bytes());
    pdu[8] = 0x80;
    pdu[24..28].copy_from_slice(&CMD_SN.to_be_bytes());
    encode(&pdu, keys.as_bytes(), (false, false), false)
}

/// Header and data with padding and the digests in force.
fn encode(header: &[u8; 48], data: &[u8], digests: (bool, bool), damage: bool) -> Vec<u8> {
    let digest = |bytes: &[u8]| (crc32c::crc32c(bytes) ^ u32::from(damage)).to_le_bytes();
    let mut pdu = header.to_vec();
    if digests.0 {
        pdu.extend(digest(header));
    }
    let start = pdu.len();
    pdu.extend_from_slice(data);
    pdu.resize(start + data.len().next_multiple_of(4), 0);
    if digests.1 && !data.is_empty() {
        let digest = digest(&pdu[start..]);
        pdu.extend(digest);
    }
    pdu
}
