//! The handshake phase, option by option.

use super::harness::{
    ACK, Client, DISK, ERR_INVALID, ERR_POLICY, ERR_SHUTDOWN, ERR_TOO_BIG, ERR_UNKNOWN, ERR_UNSUP,
    FLAGS, SIZE, Told, contexts, encode_option, encode_request, go, option, string,
};
use crate::nbd::{Command, Limits, NEEDED_MAX, PeerError, Refusal};

/// `HAS_FLAGS`, `SEND_FLUSH`, `SEND_FUA`, `CAN_MULTI_CONN`.
const ALWAYS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 8;
/// `SEND_TRIM`, `SEND_WRITE_ZEROES`.
const WRITABLE: u16 = 1 << 5 | 1 << 6;
const READ_ONLY: u16 = 1 << 1;
const SEND_DF: u16 = 1 << 7;
const SEND_FAST_ZERO: u16 = 1 << 11;

fn client() -> Client {
    Client::new(Limits::default())
}

/// An `NBD_INFO_EXPORT` with these flags.
fn info_export(size: u64, flags: u16) -> (u32, Vec<u8>) {
    (3, [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat())
}

fn info_block_size(sizes: [u32; 3]) -> (u32, Vec<u8>) {
    (3, [0, 3].into_iter().chain(sizes.into_iter().flat_map(u32::to_be_bytes)).collect())
}

/// The server speaks first: two magic numbers and its handshake flags.
#[test]
fn the_server_greets() {
    let mut client = Client::silent(Limits::default());
    assert_eq!(client.connection.needed(), 4);
    client.drain();
    assert_eq!(client.output, b"NBDMAGICIHAVEOPT\0\x03");
}

/// Flags that were not offered end the connection; all others are fine.
#[test]
fn client_flags_are_checked() {
    for flags in [0, 1, 2, 3, 4, 7, 1 << 31, u32::MAX] {
        let mut client = Client::silent(Limits::default());
        let expected = if flags > 3 { Err(PeerError::ClientFlags { flags }) } else { Ok(vec![]) };
        assert_eq!(client.send(&flags.to_be_bytes()), expected);
        assert_eq!(client.connection.wants_close(), flags > 3);
    }
}

/// Without fixed newstyle a client can name its export and nothing else.
#[test]
fn old_clients_have_one_option() {
    for number in [option::ABORT, option::LIST, option::GO, option::STARTTLS, 99] {
        let mut client = Client::silent(Limits::default());
        client.send(&2_u32.to_be_bytes()).unwrap();
        let refused = PeerError::NotFixedNewstyle { option: number };
        assert_eq!(client.send(&encode_option(number, &[])), Err(refused));
    }
    let mut client = Client::silent(Limits::default());
    client.send(&0_u32.to_be_bytes()).unwrap();
    client.output.clear();
    let told = client.send(&encode_option(option::EXPORT_NAME, b"disk"));
    assert_eq!(told, Ok(vec![Told::Export(DISK)]));
}

/// `NBD_OPT_EXPORT_NAME` is answered by size and flags, with zeroes behind them if the client has
/// not done without.
#[test]
fn export_name_is_answered() {
    for (flags, length) in [(1_u32, 134), (FLAGS, 10)] {
        let mut client = Client::silent(Limits::default());
        client.send(&flags.to_be_bytes()).unwrap();
        client.output.clear();
        let told = client.send(&encode_option(option::EXPORT_NAME, b"disk")).unwrap();
        assert_eq!(told, [Told::Export(DISK)]);
        client.connection.export_admitted();
        client.drain();
        assert_eq!(client.output.len(), length);
        assert_eq!(client.output[..8], SIZE.to_be_bytes());
        assert_eq!(client.output[8..10], (ALWAYS | WRITABLE).to_be_bytes());
        assert!(client.output[10..].iter().all(|&byte| byte == 0));
        client.output.clear();
        assert_eq!(client.request(0, 3, (0, 0)).command, Command::Flush);
    }
}

/// `NBD_OPT_EXPORT_NAME` cannot be answered with an error, so the connection ends.
#[test]
fn export_name_fails_by_closing() {
    let mut other = client();
    let told = other.send(&encode_option(option::EXPORT_NAME, b"other"));
    assert_eq!(told, Err(PeerError::UnknownExport));
    assert!(other.connection.is_finished());
    let long = encode_option(option::EXPORT_NAME, &vec![b'x'; 20_000]);
    assert_eq!(client().send(&long), Err(PeerError::UnknownExport));

    let mut refused = client();
    refused.send(&encode_option(option::EXPORT_NAME, b"disk")).unwrap();
    refused.connection.export_refused(Refusal::Policy);
    assert!(refused.connection.is_finished());
    assert_eq!(refused.connection.export(), None);
}

/// `NBD_OPT_ABORT` is acknowledged whatever comes with it, and ends the connection.
#[test]
fn abort_is_acknowledged() {
    for data in [&[][..], b"because"] {
        let mut client = client();
        let told = client.send(&encode_option(option::ABORT, data));
        assert_eq!(told, Ok(vec![Told::Disconnect]));
        assert!(client.connection.wants_close() && !client.connection.is_finished());
        assert_eq!(client.option_replies(option::ABORT), [(ACK, vec![])]);
        assert!(client.connection.is_finished());
    }
}

/// `NBD_OPT_LIST` names every export with its description.
#[test]
fn exports_are_listed() {
    let mut client = client();
    let entry = |name: &str, description: &[u8]| (2, [&string(name), description].concat());
    let expected = [
        entry("disk", b"a disk"),
        entry("golden", b"a disk"),
        entry("", b""),
        entry("big", b"a disk"),
        (ACK, vec![]),
    ];
    assert_eq!(client.ask(option::LIST, &[]), expected);
    assert_eq!(client.ask(option::LIST, b"x"), [(ERR_INVALID, vec![])]);
}

/// `NBD_OPT_INFO` tells what was asked for and what must be known, and the negotiation continues.
#[test]
fn info_describes_an_export() {
    let mut client = client();
    let export = info_export(SIZE, ALWAYS | WRITABLE);
    let sizes = info_block_size([512, 4096, 65536]);
    let ack = (ACK, vec![]);
    let name = (3, b"\0\x01disk".to_vec());
    let description = (3, b"\0\x02a disk".to_vec());
    let bare = [export.clone(), sizes.clone(), ack.clone()];
    assert_eq!(client.ask(option::INFO, &go("disk", &[])), bare);
    assert_eq!(client.ask(option::INFO, &go("disk", &[3, 0, 77])), bare);
    let all = [export, name, description, sizes, ack.clone()];
    assert_eq!(client.ask(option::INFO, &go("disk", &[2, 1])), all);

    let golden = &client.ask(option::INFO, &go("golden", &[]))[0];
    assert_eq!(*golden, info_export(SIZE, ALWAYS | READ_ONLY));
    // Nothing to describe, and default sizes.
    let flags = ALWAYS | SEND_FAST_ZERO | 1 << 6;
    let unnamed = [
        info_export(5000, flags),
        (3, b"\0\x01".to_vec()),
        info_block_size([1, 4096, 1 << 25]),
        ack,
    ];
    assert_eq!(client.ask(option::INFO, &go("", &[1, 2, 3])), unnamed);
    assert_eq!(client.ask(option::INFO, &go("other", &[])), [(ERR_UNKNOWN, vec![])]);
}

/// `NBD_OPT_GO` asks the shell, tells the same as `NBD_OPT_INFO`, and starts the transmission.
#[test]
fn go_enters_transmission() {
    let mut client = client();
    let told = client.ask(option::INFO, &go("golden", &[1]));
    let event = client.send(&encode_option(option::GO, &go("golden", &[1])));
    assert_eq!(event, Ok(vec![Told::Export(1)]));
    assert!(client.connection.is_waiting() && !client.connection.is_transmission());
    assert_eq!(client.send(&encode_request(0, 0, 7, (0, 512))), Ok(vec![]), "nothing is taken");
    client.connection.export_admitted();
    assert_eq!(client.option_replies(option::GO), told);
    assert!(client.connection.is_transmission());
    assert_eq!(client.connection.export(), Some(1));
    assert!(matches!(client.send(&[]).as_deref(), Ok([Told::Request(_)])));
}

/// A size that changes before the admission is the one that the client gets.
#[test]
fn the_newest_size_is_told() {
    let mut client = client();
    client.choose("disk");
    client.connection.resize(4096);
    client.connection.export_admitted();
    assert_eq!(client.option_replies(option::GO)[0], info_export(4096, ALWAYS | WRITABLE));
}

/// An export that the shell refuses leaves the client where it was.
#[test]
fn the_shell_may_refuse() {
    let mut client = client();
    for (refusal, reply) in [
        (Refusal::Policy, ERR_POLICY),
        (Refusal::Unknown, ERR_UNKNOWN),
        (Refusal::Shutdown, ERR_SHUTDOWN),
    ] {
        client.choose("disk");
        client.connection.export_refused(refusal);
        assert_eq!(client.option_replies(option::GO), [(reply, vec![])]);
        assert_eq!(client.connection.export(), None);
    }
    assert_eq!(client.choose("golden"), 1);
}

/// Structured replies are agreed on without data, and allow DF.
#[test]
fn structured_replies_are_agreed_on() {
    let mut client = client();
    assert_eq!(client.ask(option::STRUCTURED_REPLY, b"x"), [(ERR_INVALID, vec![])]);
    let flags = ALWAYS | WRITABLE;
    assert_eq!(client.ask(option::INFO, &go("disk", &[]))[0], info_export(SIZE, flags));
    for _ in 0..2 {
        assert_eq!(client.ask(option::STRUCTURED_REPLY, &[]), [(ACK, vec![])]);
    }
    assert_eq!(client.ask(option::INFO, &go("disk", &[]))[0], info_export(SIZE, flags | SEND_DF));
}

/// `base:allocation` is found by its name, by its namespace when listed, and by no query at all
/// when listed; what is unknown is passed over.
#[test]
fn metadata_contexts_are_found() {
    let mut client = client();
    client.ask(option::STRUCTURED_REPLY, &[]);
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let allocation = ["base:allocation"];
    let twice = ["x-a:b", "base:allocation", "base:", "base:allocation"];
    for (number, queries, id) in [
        (list, &[][..], Some(0)),
        (list, &["base:"], Some(0)),
        (list, &allocation, Some(0)),
        (list, &["qemu:", "base:unknown", "", "base:allocatio"], None),
        (list, &twice, Some(0)),
        (set, &[], None),
        (set, &["base:"], None),
        (set, &allocation, Some(1)),
        (set, &["qemu:dirty-bitmap:x", "base:allocation2"], None),
        (set, &twice, Some(1)),
    ] {
        let mut expected = vec![(ACK, vec![])];
        if let Some(id) = id {
            expected.insert(0, (4, [&[0, 0, 0, id], &b"base:allocation"[..]].concat()));
        }
        assert_eq!(client.ask(number, &contexts("disk", queries)), expected, "{queries:?}");
    }
}

/// Contexts need structured replies, an export that exists, and data that adds up.
#[test]
fn metadata_queries_are_checked() {
    for number in [option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
        let mut client = client();
        let good = contexts("disk", &["base:allocation"]);
        assert_eq!(client.ask(number, &good), [(ERR_INVALID, vec![])]);
        client.ask(option::STRUCTURED_REPLY, &[]);
        assert_eq!(client.ask(number, &contexts("other", &[])), [(ERR_UNKNOWN, vec![])]);
        for cut in 0..good.len() {
            assert_eq!(client.ask(number, &good[..cut]), [(ERR_INVALID, vec![])], "{cut}");
        }
        let longer = [&good[..], &[0]].concat();
        assert_eq!(client.ask(number, &longer), [(ERR_INVALID, vec![])]);
        let mut endless = good.clone();
        endless[8..12].fill(0xff);
        assert_eq!(client.ask(number, &endless), [(ERR_INVALID, vec![])]);
    }
}

/// A context holds for the export for which it was selected, and only until the next selection,
/// even if that one fails.
#[test]
fn a_context_belongs_to_an_export() {
    let good = contexts("disk", &["base:allocation"]);
    let other = contexts("golden", &["base:allocation"]);
    for (queries, works) in [
        (vec![&good], true),
        (vec![&other], false),
        (vec![&other, &good], true),
        (vec![&good, &other], false),
        (vec![&good, &contexts("disk", &[])], false),
        (vec![&good, &contexts("missing", &["base:allocation"])], false),
        (vec![&good, &vec![1, 2, 3]], false),
        (vec![], false),
    ] {
        let mut client = client();
        client.ask(option::STRUCTURED_REPLY, &[]);
        for query in &queries {
            client.ask(option::SET_META_CONTEXT, query);
        }
        client.choose("disk");
        client.connection.export_admitted();
        let told = client.send(&encode_request(0, 7, 7, (0, 512))).unwrap();
        assert_eq!(told.len(), usize::from(works), "{queries:?}");
    }
}

/// Options that mean nothing here are refused and skipped, with or without data.
#[test]
fn unknown_options_are_unsupported() {
    let mut client = client();
    for number in [0, 4, 11, 12, 1000, u32::MAX] {
        for data in [&[][..], &[7; 300]] {
            assert_eq!(client.ask(number, data), [(ERR_UNSUP, vec![])]);
        }
    }
    assert_eq!(client.choose("disk"), DISK);
}

/// Data of `NBD_OPT_GO` that does not add up is invalid, and the negotiation continues.
#[test]
fn info_requests_are_checked() {
    let mut client = client();
    let good = go("disk", &[1, 3]);
    for number in [option::INFO, option::GO] {
        for cut in 0..good.len() {
            assert_eq!(client.ask(number, &good[..cut]), [(ERR_INVALID, vec![])], "{cut}");
        }
        assert_eq!(client.ask(number, &[&good[..], &[0]].concat()), [(ERR_INVALID, vec![])]);
        let mut long = good.clone();
        long[..4].fill(0xff);
        assert_eq!(client.ask(number, &long), [(ERR_INVALID, vec![])]);
    }
}

/// Data that is too long is skipped without being gathered and answered; what is longer still ends
/// the connection at once.
#[test]
fn long_options_are_skipped() {
    let mut client = client();
    let longest = vec![0; NEEDED_MAX - 16];
    assert_eq!(client.ask(option::INFO, &longest), [(ERR_INVALID, vec![])]);
    for length in [longest.len() + 1, 1 << 20] {
        for number in [option::INFO, option::LIST, 99] {
            assert_eq!(client.ask(number, &vec![0; length]), [(ERR_TOO_BIG, vec![])]);
        }
    }
    let header = &encode_option(option::LIST, &vec![0; 1 << 20])[..16];
    client.send(header).unwrap();
    assert_eq!(client.connection.needed(), 1, "the data is not gathered");

    let length = (1 << 20) + 1;
    let header = &encode_option(option::LIST, &vec![0; length as usize])[..16];
    let expected = PeerError::OptionTooLong { option: option::LIST, length };
    assert_eq!(self::client().send(header), Err(expected));
}

/// The whole of an option is asked for as soon as its length is known, and no more behind it.
#[test]
fn the_length_that_is_needed_is_known() {
    let option = encode_option(option::INFO, &go("disk", &[]));
    let mut client = client();
    for taken in 0..option.len() {
        assert_eq!(client.connection.receive(&option[..taken]).unwrap().consumed, 0);
        let expected = if taken < 16 { 16 } else { option.len() };
        assert_eq!(client.connection.needed(), expected);
    }
    assert_eq!(client.connection.receive(&option).unwrap().consumed, option.len());
    assert_eq!(client.connection.needed(), 16);
}

/// What does not begin like an option ends the connection.
#[test]
fn the_option_magic_is_checked() {
    for at in 0..8 {
        let mut bytes = encode_option(option::LIST, &[]);
        bytes[at] ^= 1;
        let mut client = client();
        assert_eq!(client.send(&bytes), Err(PeerError::OptionMagic));
        assert!(client.connection.is_finished());
    }
}
