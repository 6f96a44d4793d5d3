//! Drives a new connection with the login of an initiator.
//!
//! The first byte of an input chooses the gateway's policies. Records follow, each of a control
//! byte, the second byte of the header, a length and as many bytes of text. In the text, bytes below
//! 32 stand for the keys in [`WORDS`].

use md5::{Digest, Md5};
use sha2::Sha256;
use weir_wire::iscsi::target_role::{DigestPolicy, Limits};

use super::shell::{
    ACCOUNTS, CHALLENGE, DISCOVERED_BY, FRIEND, GUARDED, GUARDED_BY, HIDDEN, OWN, Shell, TARGETS,
    TSIH,
};

/// What the bytes from 1 on stand for. A proof is the account that it is for and its algorithm.
const WORDS: [Word; 29] = [
    Word::Key("InitiatorName=iqn.2026-01.test.weir:host"),
    Word::Key("InitiatorName=iqn.2026-01.test.weir:friend"),
    Word::Key("TargetName=iqn.2026-01.test.weir:open"),
    Word::Key("TargetName=iqn.2026-01.test.weir:guarded"),
    Word::Key("TargetName=iqn.2026-01.test.weir:hidden"),
    Word::Key("TargetName=iqn.2026-01.test.weir:moved"),
    Word::Key("TargetName=iqn.2026-01.test.weir:removed"),
    Word::Key("SessionType=Discovery"),
    Word::Key("AuthMethod=CHAP,None"),
    Word::Key("AuthMethod=None"),
    Word::Key("CHAP_A=5"),
    Word::Key("CHAP_A=7,5"),
    Word::Key("CHAP_N=alice"),
    Word::Key("CHAP_N=bob"),
    Word::Key("CHAP_N=twin"),
    Word::Proof(1, MD5),
    Word::Proof(1, SHA256),
    Word::Proof(2, MD5),
    Word::Proof(2, SHA256),
    Word::Proof(3, MD5),
    Word::Key(ASKED),
    Word::Key(
        "CHAP_I=64\0CHAP_C=0x404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f",
    ),
    Word::Key("SendTargets=All"),
    Word::Key("SendTargets="),
    Word::Key("SendTargets=iqn.2026-01.test.weir:hidden"),
    Word::Key("HeaderDigest=CRC32C,None"),
    Word::Key("MaxRecvDataSegmentLength=512"),
    Word::Key("MaxBurstLength=512"),
    Word::Key("X-com.example.key=1"),
];
/// How the initiator asks the gateway to prove itself.
const ASKED: &str = "CHAP_I=200\0CHAP_C=0x010203";
/// The algorithms by their numbers in `CHAP_A`.
const MD5: u8 = 5;
const SHA256: u8 = 7;

#[derive(Clone, Copy)]
enum Word {
    Key(&'static str),
    Proof(usize, u8),
}

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
    let closed = options >> 6 & 1 == 1;
    let mut shell = Shell::new(limits, closed);
    let mut said = Vec::new();
    let mut was_full_feature = false;
    while let [control, flags, length, rest @ ..] = records {
        let (text, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        records = rest;
        let text = expanded(text);
        said.extend_from_slice(&text);
        let pdu = request(*control, *flags, &text);
        let goes_on = shell.feed(&pdu).is_some();
        shell.drain();
        check(&shell, was_full_feature);
        check_proof(&shell, closed, &said);
        was_full_feature = shell.connection.is_full_feature();
        if !goes_on {
            break;
        }
    }
    check_text(&shell, &said);
}

/// What must hold between two requests.
fn check(shell: &Shell, was_full_feature: bool) {
    let connection = &shell.connection;
    if !connection.is_full_feature() {
        assert!(!was_full_feature || connection.wants_close(), "no way back into the login");
        return;
    }
    assert_eq!(connection.tsih(), TSIH);
    let session = shell.session.as_ref().expect("a session that was asked for");
    assert!(!connection.initiator().is_empty(), "no initiator logs in without a name");
    assert_eq!(connection.initiator(), session.initiator);
    assert_eq!(connection.target(), session.target);
    // RFC 7143 sections 13.13 and 13.14: what was negotiated stays within what was offered.
    let agreed = connection.parameters();
    let limits = Limits::default();
    assert!((512..=limits.max_burst_length).contains(&agreed.max_burst_length));
    assert!(agreed.first_burst_length <= limits.first_burst_length);
    assert!((1..=limits.max_outstanding_r2t).contains(&agreed.max_outstanding_r2t));
}

/// No initiator gets a session without the proof that the target or discovery asks for.
fn check_proof(shell: &Shell, closed: bool, said: &[u8]) {
    let Some(session) = &shell.session else { return };
    let name = session.target.map(|index| TARGETS[index]);
    let asked: &[usize] = match name {
        None if closed => &DISCOVERED_BY,
        Some(GUARDED) => &GUARDED_BY,
        _ => &[],
    };
    match &session.account {
        None => assert!(asked.is_empty(), "a session without proof"),
        Some(account) => {
            let index = asked.iter().find(|&&index| ACCOUNTS[index].0 == account);
            let index = *index.expect("an account that may log in");
            assert!(proves(said, index), "a session for {account} without its proof");
        }
    }
    // Those that are elsewhere or gone are no targets.
    assert!(session.target.is_none_or(|index| index < 3));
    assert!(name != Some(HIDDEN) || session.initiator == FRIEND);
}

/// What was told to whom.
fn check_text(shell: &Shell, said: &[u8]) {
    for (_, secret) in ACCOUNTS {
        assert!(!contains(&shell.sent, secret), "a secret was sent");
    }
    let is_friend = shell.connection.initiator() == FRIEND;
    let initiator_asked = contains(said, ASKED.as_bytes()) && count(said, b"CHAP_C=") == 1;
    for pair in shell.text.split(|&byte| byte == 0) {
        let pair = String::from_utf8_lossy(pair);
        match pair.split_once('=') {
            Some(("TargetName", name)) => {
                assert!(name != TARGETS[4], "a removed target was listed");
                assert!(name != HIDDEN || is_friend, "a hidden target was listed");
            }
            Some(("CHAP_R", told)) if told != "Reject" => {
                let proven = GUARDED_BY.iter().any(|&index| proves(said, index));
                assert!(proven, "the gateway proves itself to those who have");
                let fits = [MD5, SHA256].map(|algorithm| {
                    told == format!("0x{}", response(algorithm, 200, OWN, &[1, 2, 3]))
                });
                assert!(!initiator_asked || fits.contains(&true), "a wrong proof");
                // The twin's secret is the gateway's own, so nothing is proven by it.
                assert!(
                    shell.session.as_ref().is_none_or(|one| one.account.as_deref() != Some("twin"))
                );
            }
            _ => {}
        }
    }
}

/// Whether the right response of an account is in what the initiator said.
fn proves(said: &[u8], account: usize) -> bool {
    let said = said.to_ascii_lowercase();
    [MD5, SHA256].iter().any(|&algorithm| {
        contains(&said, response(algorithm, CHALLENGE[0], account, &CHALLENGE).as_bytes())
    })
}

/// The digits of a CHAP response (RFC 1994 section 4.1).
fn response(algorithm: u8, identifier: u8, account: usize, challenge: &[u8]) -> String {
    fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
        parts.into_iter().fold(D::new(), Digest::chain_update).finalize().to_vec()
    }
    let (_, secret) = ACCOUNTS[account];
    let parts = [&[identifier], secret, challenge];
    let bytes = if algorithm == MD5 { hash::<Md5>(parts) } else { hash::<Sha256>(parts) };
    let mut text = String::new();
    for byte in bytes {
        text.extend(
            [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap()),
        );
    }
    text
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    count(text, part) > 0
}

fn count(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len()).filter(|window| *window == part).count()
}

/// The text with its words.
fn expanded(text: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::new();
    for &byte in text {
        match WORDS.get(usize::from(byte).wrapping_sub(1)) {
            None => expanded.push(byte),
            Some(Word::Key(key)) => {
                expanded.extend_from_slice(key.as_bytes());
                expanded.push(0);
            }
            Some(&Word::Proof(account, algorithm)) => {
                let digits = response(algorithm, CHALLENGE[0], account, &CHALLENGE);
                expanded.extend_from_slice(format!("CHAP_R=0x{digits}\0").as_bytes());
            }
        }
    }
    expanded
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
    if pdu[0] == 0x44 {
        // RFC 7143 section 11.10.4: a text request that starts an exchange.
        pdu[20..24].fill(0xff);
    }
    pdu.extend_from_slice(text);
    pdu.resize(48 + text.len().next_multiple_of(4), 0);
    pdu
}
