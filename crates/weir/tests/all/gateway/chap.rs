//! Logins that prove something (RFC 7143 section 12.1.3), and what a discovery tells.

use super::initiator::{IMMEDIATE, Login, Session, connect};
use super::pdu::{Pdu, opcode};
use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpStream};

/// What an initiator proves, and wants proven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    pub(crate) name: &'static str,
    pub(crate) secret: &'static str,
    /// Name and secret by which the gateway must prove itself.
    pub(crate) mutual: Option<(&'static str, &'static str)>,
}

impl Proof {
    /// An initiator that believes the gateway.
    pub(crate) const fn of(name: &'static str, secret: &'static str) -> Self {
        Self { name, secret, mutual: None }
    }

    /// Logs in with this proof; the status class and detail if that is refused.
    pub(crate) fn connect(self, login: &Login, portal: SocketAddr) -> Result<Session, u16> {
        let socket = connect(portal);
        let answer = self.speak(login, &socket).unwrap()?;
        Ok(login.begin(socket, &answer))
    }

    /// The whole login on a connection that is there.
    pub(crate) fn speak(self, login: &Login, socket: &TcpStream) -> io::Result<Result<Pdu, u16>> {
        let identity: String = login.text().split_inclusive('\0').take(3).collect();
        let rest: String = login.text().split_inclusive('\0').skip(3).collect();
        let say = |flags: u8, text: &str| -> io::Result<Result<Pdu, u16>> {
            let mut pdu = Pdu::new(opcode::LOGIN | IMMEDIATE, flags, 0).with(24, 1);
            pdu.header[8..14].copy_from_slice(&login.isid);
            pdu.carrying(text.as_bytes()).send(socket, false)?;
            let answer = Pdu::receive(socket, false)?;
            let status = (answer.field(36) >> 16) as u16;
            Ok(if status == 0 { Ok(answer) } else { Err(status) })
        };
        let offered = format!("{identity}AuthMethod=CHAP,None\0");
        let offer = match say(0, &offered)? {
            Ok(answer) => answer,
            Err(status) => return Ok(Err(status)),
        };
        assert_eq!(value(&offer, "AuthMethod").as_deref(), Some("CHAP"));
        let challenge = match say(0, "CHAP_A=5\0")? {
            Ok(answer) => answer,
            Err(status) => return Ok(Err(status)),
        };
        let identifier = value(&challenge, "CHAP_I").unwrap().parse().unwrap();
        let bytes = from_hex(&value(&challenge, "CHAP_C").unwrap());
        let response = respond(identifier, self.secret, &bytes);
        let mut text = format!("CHAP_N={}\0CHAP_R={}\0", self.name, hex(&response));
        let own = [9_u8; 16];
        if self.mutual.is_some() {
            let _ = write!(text, "CHAP_I=77\0CHAP_C={}\0", hex(&own));
        }
        let proven = match say(0x81, &text)? {
            Ok(answer) => answer,
            Err(status) => return Ok(Err(status)),
        };
        if let Some((name, secret)) = self.mutual {
            assert_eq!(value(&proven, "CHAP_N").as_deref(), Some(name));
            let proof = from_hex(&value(&proven, "CHAP_R").unwrap());
            assert_eq!(proof, respond(77, secret, &own), "the gateway knows its secret");
        }
        say(0x87, &rest)
    }
}

/// The names of the targets that a host gets (`SendTargets`), or the status of a refusal.
pub(crate) fn discover(portal: SocketAddr, host: &'static str) -> Result<Vec<String>, u16> {
    let records = send_targets(portal, host)?;
    let names = records.split('\0').filter_map(|pair| pair.strip_prefix("TargetName="));
    Ok(names.map(str::to_owned).collect())
}

/// The records that a host gets (`SendTargets`), or the status of a refusal.
pub(crate) fn send_targets(portal: SocketAddr, host: &'static str) -> Result<String, u16> {
    let socket = connect(portal);
    let login = Login::of(host);
    let text = login.text().replace("SessionType=Normal", "SessionType=Discovery");
    let mut pdu = login.request();
    pdu.data.clear();
    pdu.carrying(text.as_bytes()).send(&socket, false).unwrap();
    let answer = Pdu::receive(&socket, false).unwrap();
    let status = (answer.field(36) >> 16) as u16;
    if status != 0 {
        return Err(status);
    }
    let ask = Pdu::new(opcode::TEXT, 0x80, 1).with(20, u32::MAX).with(24, 1);
    let ask = ask.with(28, answer.field(24).wrapping_add(1)).carrying(b"SendTargets=All\0");
    ask.send(&socket, false).unwrap();
    let told = Pdu::receive(&socket, false).unwrap();
    assert_eq!(told.opcode(), opcode::TEXT_RESPONSE);
    Ok(String::from_utf8(told.data).unwrap())
}

/// The value of a key in an answer.
fn value(answer: &Pdu, key: &str) -> Option<String> {
    let text = str::from_utf8(&answer.data).unwrap();
    let mut pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// The response to a challenge (RFC 1994 section 4.1).
fn respond(identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
    md5(&[&[identifier], secret.as_bytes(), challenge].concat()).to_vec()
}

/// MD5 (RFC 1321).
fn md5(message: &[u8]) -> [u8; 16] {
    const TURNS: [[u32; 4]; 4] =
        [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((message.len() + 9).next_multiple_of(64) - 8, 0);
    padded.extend((message.len() as u64 * 8).to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks(64) {
        let words: Vec<u32> =
            block.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            let constant = (f64::from(step as u32 + 1).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(words[word % 16]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4]));
        }
        for (sum, value) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(value);
        }
    }
    let bytes: Vec<u8> = state.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.try_into().unwrap()
}

/// The examples of RFC 1321 appendix A.5 hold.
#[test]
fn the_hash_is_the_published_one() {
    assert_eq!(hex(&md5(b"")), "0xd41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(hex(&md5(b"message digest")), "0xf96b697d7cb7938d525a2f31aaf161d0");
}
