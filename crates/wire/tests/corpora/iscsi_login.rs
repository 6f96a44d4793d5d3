//! A new connection, and what somebody sends who wants to log in.
//!
//! The first byte of an input chooses the gateway's policies. Records follow, each of a control
//! byte, the second byte of the header, a length and as many bytes of text.

use weir_wire::iscsi::target::{DigestPolicy, Limits};

use super::shell::{Shell, TSIH};

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let Some((&options, mut records)) = input.split_first() else { return };
    let policy = |shift: u8| match options >> shift & 3 {
        0 => DigestPolicy::Never,
        1 => DigestPolicy::Required,
        _ => DigestPolicy::Allowed,
    };
    let limits = Limits {
        max_recv_data_segment_length: 2048,
        command_window: 2,
        header_digest: policy(0),
        data_digest: policy(2),
        initial_r2t: options >> 4 & 1 == 1,
        immediate_data: options >> 5 & 1 == 1,
        ..Limits::default()
    };
    let mut shell = Shell::new(limits);
    let mut was_full_feature = false;
    while let [control, flags, length, rest @ ..] = records {
        let (text, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        records = rest;
        let pdu = request(*control, *flags, text);
        let goes_on = shell.feed(&pdu).is_some();
        shell.drain();
        check(&shell, was_full_feature);
        was_full_feature = shell.connection.is_full_feature();
        if !goes_on {
            break;
        }
    }
}

/// What must hold between two requests.
fn check(shell: &Shell, was_full_feature: bool) {
    let connection = &shell.connection;
    if !connection.is_full_feature() {
        assert!(!was_full_feature || connection.wants_close(), "no way back into the login");
        return;
    }
    assert_eq!(connection.tsih(), TSIH);
    assert!(!connection.initiator().is_empty(), "nobody logs in without a name");
    assert!(connection.target().is_none_or(|index| index < 2));
    // RFC 7143 sections 13.13 and 13.14: what was negotiated stays within what was offered.
    let agreed = connection.parameters();
    let limits = Limits::default();
    assert!((512..=limits.max_burst_length).contains(&agreed.max_burst_length));
    assert!(agreed.first_burst_length <= limits.first_burst_length);
    assert!((1..=limits.max_outstanding_r2t).contains(&agreed.max_outstanding_r2t));
}

/// A request; by the control byte mostly a plain login request.
fn request(control: u8, flags: u8, text: &[u8]) -> Vec<u8> {
    let mut pdu = vec![0; 48];
    pdu[0] = match control & 7 {
        // Login requests are immediate (RFC 7143 section 11.12).
        0..=3 => 0x43,
        4 => 0x03,
        5 => 0x44,
        6 => 0x40,
        _ => 0x41,
    };
    pdu[1] = flags;
    if control & 0x08 != 0 {
        // Version-max and -min of some other time.
        pdu[2..4].copy_from_slice(&[1, 1]);
    }
    pdu[4..8].copy_from_slice(&(text.len() as u32).to_be_bytes());
    pdu[8] = 0x80;
    pdu[13] = control >> 4 & 1;
    pdu[15] = if control & 0x20 == 0 { 0 } else { TSIH as u8 };
    pdu[19] = control >> 6 & 1;
    pdu[21] = control >> 7;
    pdu.extend_from_slice(text);
    pdu.resize(48 + text.len().next_multiple_of(4), 0);
    pdu
}
