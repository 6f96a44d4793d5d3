//! What hosts may send, and must not: the gateway answers as RFC 7143 says or closes the connection,
//! says in its log who broke which rule, and serves everybody else as if nothing had happened.

use crate::gateway::initiator::{
    CHECK_CONDITION, IMMEDIATE, Login, Session, Transfer, connect, is_gone, read16, until_closed,
    write16,
};
use crate::gateway::pdu::{HEADER, NO_TAG, Pdu, opcode};
use crate::gateway::{Chance, Gateway, ONE_DISK, TWO_DISKS, folder};
use std::io::Write;
use std::net::{Shutdown, TcpStream};

fn name_of(socket: &TcpStream) -> String {
    socket.local_addr().unwrap().to_string()
}

/// Garbage where a login belongs closes the connection, and the log names the peer and the rule.
#[test]
fn garbage_is_no_login() {
    let gateway = Gateway::with_one_disk("garbage");
    let witness = gateway.witness();
    // Long enough for the additional header segments that its fifth byte seems to announce.
    let request = b"GET /index.html HTTP/1.1\r\n".repeat(16);
    let mut socket = connect(gateway.portal);
    socket.write_all(&request).unwrap();
    assert!(until_closed(&mut socket).is_empty());
    gateway.logged(&[&name_of(&socket), "protocol error", "RFC 7143 section 13.12"]);
    // A command that is well-formed, but too early, is refused as such (RFC 7143 section 6.3).
    let socket = connect(gateway.portal);
    Pdu::new(opcode::COMMAND, 0x80, 1).send(&socket, false).unwrap();
    let answer = Pdu::receive(&socket, false).unwrap();
    assert_eq!((answer.opcode(), answer.field(36) >> 16), (opcode::LOGIN_RESPONSE, 0x020b));
    gateway.logged(&[&name_of(&socket), "login refused", "InvalidDuringLogin"]);
    gateway.stop_after(witness);
}

/// A PDU that ends in the middle ends with its connection, in every phase and at every place.
#[test]
fn truncated_pdus_are_forgotten() {
    // Who goes before a login is worth a line at the debug level.
    let gateway = Gateway::start_with_log(&folder("truncated"), ONE_DISK, &[], "debug");
    let witness = gateway.witness();
    let login = Login::of("half").request().encode(false);
    for length in [1, HEADER - 1, HEADER, HEADER + 1, login.len() - 1] {
        let mut socket = connect(gateway.portal);
        socket.write_all(&login[..length]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        assert!(until_closed(&mut socket).is_empty(), "{length} bytes");
        gateway.logged(&[&name_of(&socket), "closed before login", "closed by the host"]);
    }
    let old = gateway.session("half").read(0, 4096);
    for length in [1, HEADER - 1, HEADER, HEADER + 1, HEADER + 4095] {
        let mut session = gateway.session("half");
        let data = Transfer::Out(vec![0xee; 4096]);
        let itt = session.new_itt();
        let write = session.command(0, itt, write16(0, 4096, false), &data);
        session.send_raw(&write.encode(false)[..length]);
        session.socket.shutdown(Shutdown::Write).unwrap();
        assert!(until_closed(&mut session.socket).is_empty(), "{length} bytes");
        gateway.logged(&[&session.peer, "session ended", "closed by the host"]);
    }
    assert_eq!(gateway.session("half").read(0, 4096), old, "no part of a write is done");
    gateway.stop_after(witness);
}

/// A data segment longer than was declared closes the connection before any of it is stored up.
#[test]
fn absurd_lengths_are_refused() {
    let gateway = Gateway::with_one_disk("absurd");
    let witness = gateway.witness();
    let absurd = |mut pdu: Pdu| {
        pdu.header[5..8].copy_from_slice(&[0xff; 3]);
        pdu.header
    };
    let mut socket = connect(gateway.portal);
    socket.write_all(&absurd(Login::of("big").request())).unwrap();
    assert!(until_closed(&mut socket).is_empty());
    gateway.logged(&[&name_of(&socket), "data segment of 16777215 bytes, 8192 allowed"]);
    let mut session = gateway.session("big");
    let itt = session.new_itt();
    let none = Transfer::Out(Vec::new());
    let write = session.command(0, itt, write16(0, 4096, false), &none);
    session.send_raw(&absurd(write));
    assert!(until_closed(&mut session.socket).is_empty());
    gateway.logged(&[&session.peer, "data segment of 16777215 bytes, 65536 allowed"]);
    gateway.stop_after(witness);
}

/// Whatever bytes come: the connection ends when the peer ends it, at the latest, and no other host
/// notices. Half of the connections send noise, half of them a conversation with wrong bytes in it.
#[test]
fn noise_harms_nobody() {
    let gateway = Gateway::start(&folder("noise"), TWO_DISKS, &[]);
    let witness = gateway.witness();
    let mut chance = Chance(20_261_120);
    for round in 0..400 {
        let mut bytes = if round % 2 == 0 {
            let length = chance.below(4096) as usize;
            chance.bytes(length)
        } else {
            conversation()
        };
        if round % 2 == 1 {
            // In the login for some, after it for others.
            let start =
                if round % 4 == 1 { 0 } else { Login::of("x").request().encode(false).len() };
            for _ in 0..=chance.below(6) {
                let at = start + chance.below((bytes.len() - start) as u64) as usize;
                bytes[at] = chance.next() as u8;
            }
        }
        let mut socket = connect(gateway.portal);
        match socket.write_all(&bytes).and_then(|()| socket.shutdown(Shutdown::Write)) {
            Ok(()) => {}
            Err(error) => assert!(is_gone(&error) || error.raw_os_error() == Some(107), "{error}"),
        }
        until_closed(&mut socket);
        gateway.session("check").ping();
    }
    gateway.stop_after(witness);
}

/// A login to the other disk and one command of every kind, as bytes.
fn conversation() -> Vec<u8> {
    let mut bytes = Login { target: "other", ..Login::of("noisy") }.request().encode(false);
    let command = |itt: u32, flags: u8, length: usize, cdb: [u8; 16], data: &[u8]| {
        let pdu = Pdu::new(opcode::COMMAND, 0x80 | flags, itt);
        let mut pdu = pdu.with(20, length as u32).with(24, itt);
        pdu.header[32..].copy_from_slice(&cdb);
        pdu.carrying(data).encode(false)
    };
    bytes.extend(command(1, 0, 0, [0; 16], &[]));
    bytes.extend(command(2, 0x20, 4096, write16(8192, 4096, false), &[7; 4096]));
    bytes.extend(command(3, 0x40, 8192, read16(4096, 8192), &[]));
    bytes.extend(command(4, 0x20, 65_536, write16(65_536, 65_536, true), &[8; 512]));
    let data_out = Pdu::new(opcode::DATA_OUT, 0x80, 4).with(20, 0).with(40, 512);
    bytes.extend(data_out.carrying(&vec![9; 65_024]).encode(false));
    let abort = Pdu::new(opcode::MANAGEMENT | IMMEDIATE, 0x81, 5).with(20, 4).with(24, 5);
    bytes.extend(abort.encode(false));
    let nop = Pdu::new(opcode::NOP_OUT, 0x80, 6).with(20, NO_TAG).with(24, 5);
    bytes.extend(nop.carrying(b"echo").encode(false));
    bytes.extend(Pdu::new(opcode::LOGOUT, 0x80, 7).with(24, 6).encode(false));
    bytes
}

/// A login that cannot be is refused with the status class and detail of RFC 7143 section 11.13.5,
/// and the connection is closed.
#[test]
fn wrong_logins_are_told_why() {
    let plain = Login::of("wrong");
    let text = plain.text();
    let with_text = |text: String| plain.request().carrying(text.as_bytes());
    let without = |key: &str| {
        let kept = text.split_terminator('\0').filter(|pair| !pair.starts_with(key));
        with_text(kept.flat_map(|pair| [pair, "\0"]).collect())
    };
    let mut versions = plain.request();
    (versions.header[2], versions.header[3]) = (9, 1);
    let names = text.split("HeaderDigest").next().unwrap().to_owned();
    let mut security = with_text(names + "AuthMethod=CHAP\0");
    security.header[1] = 0x81;
    let mut no_stage = plain.request();
    no_stage.header[1] = 0x8b;
    let cases = [
        (without("InitiatorName"), 0x0207, "MissingParameter"),
        (without("TargetName"), 0x0207, "MissingParameter"),
        (with_text(text.replace("example:disk", "example:dusk")), 0x0203, "NotFound"),
        (versions, 0x0205, "UnsupportedVersion"),
        (with_text(text.replace("=Normal", "=Casual")), 0x0209, "SessionTypeNotSupported"),
        (security, 0x0201, "AuthenticationFailure"),
        (no_stage, 0x0200, "InitiatorError"),
        (with_text(text.clone() + "InitialR2T=No\0"), 0x0200, "InitiatorError"),
        (with_text(text.clone() + "no equals sign"), 0x0200, "InitiatorError"),
        (Login { tsih: 0x7777, ..plain.clone() }.request(), 0x020a, "SessionDoesNotExist"),
    ];
    // More from one address would be held off for a while.
    for cases in cases.chunks(5) {
        let gateway = Gateway::with_one_disk("logins");
        let witness = gateway.witness();
        for (request, status, rule) in cases {
            let mut socket = connect(gateway.portal);
            request.send(&socket, false).unwrap();
            let answer = Pdu::receive(&socket, false).unwrap();
            assert_eq!(answer.opcode(), opcode::LOGIN_RESPONSE, "{rule}");
            assert_eq!(answer.field(36) >> 16, *status, "{rule}");
            assert!(until_closed(&mut socket).is_empty(), "{rule}");
            gateway.logged(&[&name_of(&socket), "login refused", rule]);
        }
        gateway.stop_after(witness);
    }
}

fn with_digests(gateway: &Gateway) -> Session {
    Login { digests: true, ..Login::of("digests") }.connect(gateway.portal).unwrap().ready()
}

/// With a wrong header digest not even the length can be believed: the connection is closed, and
/// nothing of the command is done (RFC 7143 section 7.8).
#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let gateway = Gateway::with_one_disk("header-digest");
    let witness = gateway.witness();
    let mut session = with_digests(&gateway);
    let old = Chance(1).bytes(65_536);
    session.write(0, &old);
    let data = Transfer::Out(vec![0xee; 4096]);
    let itt = session.new_itt();
    let mut bytes = session.command(0, itt, write16(0, 4096, false), &data).encode(session.digests);
    // A bit of the block address: the data would go elsewhere.
    bytes[41] ^= 1;
    session.send_raw(&bytes);
    assert!(until_closed(&mut session.socket).is_empty());
    gateway.logged(&[&session.peer, "header digest error"]);
    let mut session = with_digests(&gateway);
    assert!(session.read(0, 65_536) == old);
    gateway.stop_after(witness);
}

/// With a wrong data digest the PDU is rejected and the connection closed; the data is not written,
/// whether it came with the command or was asked for.
#[test]
fn data_with_a_wrong_digest_is_not_written() {
    let gateway = Gateway::with_one_disk("data-digest");
    let witness = gateway.witness();
    let old = Chance(2).bytes(262_144);
    for solicited in [false, true] {
        let mut session = with_digests(&gateway);
        session.write(0, &old);
        let data = vec![0xee; if solicited { 131_072 } else { 4096 }];
        let itt = session.new_itt();
        let cdb = write16(0, data.len(), false);
        let mut pdu = session.command(0, itt, cdb, &Transfer::Out(data.clone()));
        if solicited {
            session.send(&pdu);
            let r2t = Pdu::receive(&session.socket, true).unwrap();
            assert_eq!((r2t.opcode(), r2t.field(40), r2t.field(44)), (opcode::R2T, 65_536, 65_536));
            pdu = Pdu::new(opcode::DATA_OUT, 0x80, itt).with(20, r2t.field(20)).with(40, 65_536);
            pdu = pdu.carrying(&data[65_536..]);
        }
        let mut bytes = pdu.encode(true);
        bytes[HEADER + 4 + 100] ^= 0x10;
        session.send_raw(&bytes);
        let reject = Pdu::receive(&session.socket, true).unwrap();
        assert_eq!((reject.opcode(), reject.header[2]), (opcode::REJECT, 0x02));
        assert_eq!(reject.data, pdu.header, "the header that was refused comes back");
        assert!(until_closed(&mut session.socket).is_empty());
        gateway.logged(&[&session.peer, "data digest error"]);
        assert!(with_digests(&gateway).read(0, old.len()) == old, "solicited: {solicited}");
    }
    assert!(gateway.stored("disk.img", 0, old.len()) == old);
    gateway.stop_after(witness);
}

/// What comes after a logout is not done, even if it came together with it.
#[test]
fn nothing_is_done_after_a_logout() {
    let gateway = Gateway::with_one_disk("logout");
    let witness = gateway.witness();
    let mut session = gateway.session("leaving");
    let old = Chance(3).bytes(4096);
    session.write(0, &old);
    let logout = session.logout_request();
    let itt = session.new_itt();
    let data = Transfer::Out(vec![0xee; 4096]);
    let write = session.command(0, itt, write16(0, 4096, true), &data);
    session.send_raw(&[logout.encode(false), write.encode(false)].concat());
    let answer = session.hear_other();
    assert_eq!((answer.opcode(), answer.header[2]), (opcode::LOGOUT_RESPONSE, 0));
    assert!(until_closed(&mut session.socket).is_empty());
    gateway.logged(&[&session.peer, "logout"]);
    assert!(gateway.session("leaving").read(0, 4096) == old);
    gateway.stop_after(witness);
}

/// A tag that names a command which is not over is rejected; the command itself continues.
#[test]
fn a_tag_in_use_is_rejected() {
    let gateway = Gateway::with_one_disk("tags");
    let witness = gateway.witness();
    let mut session = gateway.session("tags");
    let data = Chance(4).bytes(131_072);
    let itt = session.new_itt();
    let transfer = Transfer::Out(data.clone());
    let write = session.command(0, itt, write16(0, data.len(), false), &transfer);
    let again = session.command(0, itt, [0; 16], &Transfer::None);
    session.expect(itt, transfer);
    session.send_raw(&[write.encode(false), again.encode(false)].concat());
    let reject = session.hear_other();
    assert_eq!((reject.opcode(), reject.header[2]), (opcode::REJECT, 0x07));
    gateway.logged(&[&session.peer, "rejected", "TaskInProgress"]);
    session.wait(itt).good();
    assert!(session.read(0, data.len()) == data);
    gateway.stop_after(witness);
}

/// Command numbers outside of the window are ignored, as RFC 7143 section 4.2.2.1 says; a number
/// that skips others, which can never come any more, ends the connection.
#[test]
fn command_numbers_are_kept() {
    let gateway = Gateway::with_one_disk("numbers");
    let witness = gateway.witness();
    let mut session = gateway.session("numbers");
    let old = Chance(5).bytes(4096);
    session.write(0, &old);
    let (first, due) = (1, session.cmd_sn);
    for wrong in [first, due - 1, session.max_cmd_sn + 1, due + 0x7fff_fff0] {
        let itt = session.new_itt();
        let data = Transfer::Out(vec![0xee; 4096]);
        session.cmd_sn = wrong;
        let write = session.command(0, itt, write16(0, 4096, false), &data);
        session.send(&write);
        session.cmd_sn = due;
        session.ping();
    }
    assert!(session.read(0, 4096) == old);
    session.cmd_sn += 1;
    session.try_issue(0, [0; 16], Transfer::None).unwrap();
    assert!(until_closed(&mut session.socket).is_empty());
    gateway.logged(&[&session.peer, "command number", "was due"]);
    gateway.stop_after(witness);
}

/// Data for no command, and data that breaks its command's rules, never reach the medium.
#[test]
fn stray_data_is_not_written() {
    let gateway = Gateway::with_one_disk("stray");
    let witness = gateway.witness();
    let mut session = gateway.session("stray");
    let old = Chance(6).bytes(262_144);
    session.write(0, &old);
    // A task that never was: discarded (RFC 7143 section 11.7), and the session continues.
    let stray = Pdu::new(opcode::DATA_OUT, 0x80, 0xdead).with(20, 1).carrying(&[0xee; 512]);
    session.send(&stray);
    session.ping();
    // Out of order, too long, unasked: the command fails and nothing of it is done.
    for (ttt, number, offset, length) in
        [(0, 7, 65_536, 65_536), (0, 0, 0, 65_536), (0, 0, 65_536, 512), (NO_TAG, 0, 65_536, 512)]
    {
        let itt = session.new_itt();
        let transfer = Transfer::Out(vec![0xee; 131_072]);
        let write = session.command(0, itt, write16(0, 131_072, false), &transfer);
        session.send(&write);
        let r2t = Pdu::receive(&session.socket, false).unwrap();
        assert_eq!((r2t.opcode(), r2t.itt()), (opcode::R2T, itt));
        session.expect(itt, transfer);
        let ttt = if ttt == NO_TAG { NO_TAG } else { r2t.field(20) };
        let out = Pdu::new(opcode::DATA_OUT, 0x80, itt).with(20, ttt);
        let out = out.with(36, number).with(40, offset).carrying(&vec![0xee; length]);
        session.send(&out);
        let ended = session.wait(itt);
        assert_eq!(ended.status, CHECK_CONDITION);
        assert_eq!(ended.sense.unwrap().0, 0xb, "aborted command");
        gateway.logged(&[&session.peer, "write data broke a rule"]);
        assert!(session.read(0, old.len()) == old);
    }
    gateway.stop_after(witness);
}
