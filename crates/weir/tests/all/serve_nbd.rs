//! NBD clients: the same volumes that iSCSI hosts see, over TCP and over Unix sockets.

use crate::gateway::commands::{EXCLUSIVE_ACCESS, REGISTER, RESERVE, Reserve};
use crate::gateway::initiator::{GOOD, Transfer, synchronize16, until_closed, write16};
use crate::gateway::nbd::{
    ACK, Client, DISCONNECT, EINVAL, ENOTSUP, EPERM, FAST_ZERO, FLUSH, FUA, NO_HOLE, READ,
    STARTTLS, TLS_REQUIRED, TRIM, WRITE, WRITE_ZEROES,
};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Chance, Gateway, ONE_DISK, eventually, folder, weir};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use weir_flow::request::Op;

const MIB: usize = 1 << 20;

/// `ONE_DISK` as an export, too; `more` is said of NBD, or of what follows.
fn exported(more: &str) -> String {
    format!("[nbd]\nlisten = [\"127.0.0.1:0\"]\nexports = {{ disk = \"disk\" }}\n{more}{ONE_DISK}")
}

fn start(test: &str, more: &str) -> Gateway {
    Gateway::start(&folder(test), &exported(more), &[])
}

/// What a client writes, zeroes and trims an iSCSI session reads, and the other way round; zeroed
/// and trimmed blocks read as zeroes, and holes are reported.
#[test]
fn both_see_the_same() {
    let mut gateway = start("both", "");
    let (mut host, mut client) = (gateway.session("host"), gateway.client());
    assert_eq!(client.size, 64 << 20);
    let data = Chance(1).bytes(3 * MIB);
    client.write(MIB as u64, &data).unwrap();
    assert!(host.read(MIB as u64, MIB) == data[..MIB]);
    host.write(512, &data[..4096]);
    assert!(client.read(512, 4096) == data[..4096]);
    client.execute(WRITE_ZEROES, MIB as u64, 65_536).unwrap();
    client.execute(TRIM, 2 * MIB as u64, 65_536).unwrap();
    for offset in [MIB as u64, 2 * MIB as u64] {
        assert!(host.read(offset, 65_536 + 512)[..65_536] == vec![0; 65_536]);
    }
    assert!(client.read(0, 4 * MIB)[MIB + 65_536..2 * MIB] == data[65_536..MIB]);
    client.execute(FLUSH, 0, 0).unwrap();
    let holes = client.holes(0, 64 << 20);
    assert_eq!(holes.iter().map(|(length, _)| u64::from(*length)).sum::<u64>(), 64 << 20);
    let start_of = |index: usize| holes[..index].iter().map(|(length, _)| length).sum::<u32>();
    let hole = (0..holes.len()).find(|&index| start_of(index) == 2 << 20).unwrap();
    assert_eq!(holes[hole], (65_536, true), "what was trimmed");
    assert_eq!(holes.last(), Some(&(60 << 20, true)), "what was never written");
    host.execute(synchronize16(), Transfer::None).good();
    gateway.stop();
}

/// Zeroes that must be fast are holes, or refused at once and nothing is changed.
#[test]
fn fast_zeroes_are_holes() {
    let mut gateway = start("fast", "");
    let mut client = gateway.client();
    client.write(0, &vec![7; 65_536]).unwrap();
    for (flags, expected, byte) in
        [(FAST_ZERO | NO_HOLE, Err(ENOTSUP), 7), (FAST_ZERO, Ok(Vec::new()), 0)]
    {
        let cookie = client.issue((WRITE_ZEROES, flags), 0, 65_536, &[]);
        assert_eq!(client.wait(cookie), expected);
        assert!(client.read(0, 65_536) == vec![byte; 65_536]);
    }
    gateway.stop();
}

/// A write with FUA is durable when it ends, a flush is one, and other writes are not held up.
#[test]
fn what_shall_be_durable_is_asked_for() {
    let mut gateway = Gateway::start(&folder("durable"), &exported(""), RECORDED);
    let mut client = gateway.client();
    client.write(0, &[1; 4096]).unwrap();
    let cookie = client.issue((WRITE, FUA), 4096, 4096, &[2; 4096]);
    client.wait(cookie).unwrap();
    client.execute(FLUSH, 0, 0).unwrap();
    let told = [(Op::Write, false), (Op::Write, true), (Op::Flush, false)];
    assert_eq!(gateway.stop_and_tell(), told);
}

/// Four clients with sixteen requests each at a time, over parts of one volume that lie next to each
/// other: every read finds what was written last, at the time and at the end, in the file as well.
#[test]
fn many_requests_at_once_are_right() {
    const PAGE: usize = 4096;
    let mut gateway = start("many", "");
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let mut client = gateway.client();
            std::thread::spawn(move || {
                let mut chance = Chance(number);
                let mut model = vec![vec![0; PAGE]; 256];
                let at = |page: usize| (4 * page as u64 + number) * PAGE as u64;
                for _ in 0..150 {
                    // Different pages, so that the order among them is of no account.
                    let first = chance.below(256) as usize;
                    let requests: Vec<_> = (0..16)
                        .map(|step| {
                            let page = (first + step * 16) % 256;
                            if chance.below(2) == 0 {
                                return (page, client.issue((READ, 0), at(page), 4096, &[]), true);
                            }
                            model[page] = chance.bytes(PAGE);
                            let data = model[page].clone();
                            (page, client.issue((WRITE, 0), at(page), 4096, &data), false)
                        })
                        .collect();
                    for (page, cookie, reads) in requests {
                        let found = client.wait(cookie).unwrap();
                        assert!(!reads || found == model[page], "page {page} of {number}");
                    }
                }
                (number, model)
            })
        })
        .collect();
    for thread in threads {
        let (number, model) = thread.join().unwrap();
        for (page, expected) in model.iter().enumerate() {
            let offset = (4 * page as u64 + number) * PAGE as u64;
            assert!(gateway.stored("disk.img", offset, PAGE) == *expected);
        }
    }
    gateway.stop();
}

/// A request to trim nearly four gibibytes at once is done, to its end and not further; another
/// client is served meanwhile.
#[test]
fn a_huge_trim_is_done() {
    let config = exported("").replace("64MiB", "5GiB");
    let mut gateway = Gateway::start(&folder("trim"), &config, &[]);
    let (mut client, mut other) = (gateway.client(), gateway.client());
    let length = u32::MAX - 4095;
    let end = 4096 + u64::from(length);
    for offset in [0, 4096, 2 << 30, end - 4096, end] {
        client.write(offset, &[0xee; 4096]).unwrap();
    }
    let trim = client.issue((TRIM, 0), 4096, length, &[]);
    for _ in 0..100 {
        assert!(other.read(end, 4096) == [0xee; 4096]);
    }
    client.wait(trim).unwrap();
    for offset in [4096, 2 << 30, end - 4096] {
        assert!(client.read(offset, 4096) == [0; 4096]);
    }
    for offset in [0, end] {
        assert!(client.read(offset, 4096) == [0xee; 4096], "not trimmed");
    }
    gateway.stop();
}

/// With memory for sixteen mebibytes of payload, four clients that write and read three times as
/// much at the same time wait for each other: no request fails, and all of it is right. An iSCSI
/// host is served all the while.
#[test]
fn clients_wait_for_memory() {
    let gateway = start("nbd-memory", "[iscsi]\nbuffer = \"16MiB\"\n");
    let witness = gateway.witness();
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let mut client = gateway.client();
            std::thread::spawn(move || {
                let at = |index: u64| ((4 * index + number) << 20) % (48 << 20);
                let writes: Vec<u64> = (0..12)
                    .map(|index| {
                        let data = vec![(16 * number + index) as u8; MIB];
                        client.issue((WRITE, 0), at(index), 1 << 20, &data)
                    })
                    .collect();
                for cookie in writes {
                    client.wait(cookie).unwrap();
                }
                let issue = |index| client.issue((READ, 0), at(index), 1 << 20, &[]);
                let reads: Vec<u64> = (0..12).map(issue).collect();
                for (index, cookie) in (0..).zip(reads) {
                    let found = client.wait(cookie).unwrap();
                    assert!(found == vec![(16 * number + index) as u8; MIB], "{number} {index}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    gateway.stop_after(witness);
}

/// Requests outside of the export, or of half a block, are refused one by one; the connection goes
/// on and the medium is as it was.
#[test]
fn wrong_requests_are_refused() {
    let mut gateway = start("wrong", "");
    let mut client = gateway.client();
    assert_eq!(client.execute(READ, 64 << 20, 512), Err(EINVAL));
    assert_eq!(client.execute(READ, 100, 512), Err(EINVAL));
    assert!(client.write((64 << 20) - 512, &[1; 1024]).is_err());
    assert_eq!(client.execute(77, 0, 512), Err(EINVAL), "no such request");
    assert!(client.read((64 << 20) - 512, 512) == [0; 512]);
    gateway.stop();
}

/// Who has reserved a volume over iSCSI keeps NBD clients out as well, until it lets go.
#[test]
fn a_reservation_keeps_clients_out() {
    let mut gateway = start("reserved", "");
    let (mut host, mut client) = (gateway.session("host"), gateway.client());
    client.write(0, &[1; 512]).unwrap();
    let register = Reserve { action: REGISTER, other: 5, ..Reserve::default() };
    assert_eq!(host.reserve(register), GOOD);
    let reserve = Reserve { action: RESERVE, kind: EXCLUSIVE_ACCESS, key: 5, ..register };
    assert_eq!(host.reserve(reserve), GOOD);
    assert_eq!(client.write(0, &[2; 512]), Err(EPERM));
    assert_eq!(client.execute(READ, 0, 512), Err(EPERM));
    assert_eq!(client.execute(TRIM, 0, 4096), Err(EPERM));
    host.execute(write16(512, 512, false), Transfer::Out(vec![3; 512])).good();
    assert_eq!(host.reserve(Reserve { action: 2, ..reserve }), GOOD);
    assert!(client.read(0, 1024) == [[1; 512], [3; 512]].concat());
    gateway.stop();
}

/// A client that takes its leave is gone; one that breaks off in the middle of a write has written
/// nothing, and others are served.
#[test]
fn a_broken_write_is_none() {
    let mut gateway = start("broken-nbd", "");
    let mut leaving = gateway.client();
    leaving.issue((DISCONNECT, 0), 0, 0, &[]);
    assert_eq!(leaving.stream.read(&mut [0; 1]).unwrap(), 0);
    let mut client = gateway.client();
    client.write(0, &[1; 8192]).unwrap();
    for _ in 0..300 {
        let mut broken = gateway.client();
        broken.issue((WRITE, 0), 0, 1 << 20, &[0xee; 8192]);
    }
    assert!(client.read(0, 8192) == [1; 8192]);
    client.write(0, &[2; 8192]).unwrap();
    assert!(client.read(0, 8192) == [2; 8192]);
    gateway.stop();
}

/// A socket file that no process listens on any more, as a killed gateway leaves it, is replaced, and
/// the export is there; it is gone when the gateway has ended in order.
#[test]
fn a_stale_socket_is_replaced() {
    let folder = folder("stale");
    let config = exported("unix = [\"sock\"]\n");
    let socket = folder.join("sock");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut client = Client::unix(&socket);
    client.choose("disk");
    client.write(0, &[1; 512]).unwrap();
    gateway.kill();
    assert!(socket.exists(), "it was killed");
    let mut gateway = Gateway::start(&folder, &config, &[]);
    let mut client = Client::unix(&socket);
    client.choose("disk");
    assert!(client.read(0, 512) == [1; 512]);
    gateway.stop();
    assert!(!socket.exists());
}

/// The exit code and the complaint of a gateway that cannot start in this folder.
fn refused(folder: &Path, config: &str) -> (Option<i32>, String) {
    std::fs::write(folder.join("weir.toml"), config).unwrap();
    let arguments = ["serve", "weir.toml", "--listen", "127.0.0.1:0"];
    let output = weir(folder, &arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "it is not ready");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A socket that a process listens on is 7, and so is something else in its place; the message names
/// it, and what is there stays.
#[test]
fn a_socket_in_use_is_told() {
    let folder = folder("socket-in-use");
    let config = exported("unix = [\"sock\"]\n");
    let listener = UnixListener::bind(folder.join("sock")).unwrap();
    let (code, told) = refused(&folder, &config);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("cannot listen on the Unix socket sock"), "{told}");
    assert!(folder.join("sock").exists());
    drop(listener);
    std::fs::remove_file(folder.join("sock")).unwrap();
    std::fs::write(folder.join("sock"), "a file").unwrap();
    let (code, told) = refused(&folder, &config);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("it exists and is no socket"), "{told}");
    assert_eq!(std::fs::read(folder.join("sock")).unwrap(), b"a file");
}

/// A certificate without a host, and its key: for these tests alone.
pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUcvtPDgcSxbGtjioNw5UO4CS06YIwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMDE4MTk1MVoYDzIxMjYxMDI3
MTgxOTUxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARMYqi53VJCjHK0eXGmF0qxf3LSa9uuOCuHNRp923LyeF5R/JHqn6+8
gZYC9dbESPeH4Ci6YsPW8TQhKraUG8tRo1MwUTAdBgNVHQ4EFgQURWAeI6+cysgB
i210fEh5LXq/WGQwHwYDVR0jBBgwFoAURWAeI6+cysgBi210fEh5LXq/WGQwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEA7HKOrqpmzOxstSp6EprM
9kkTBZtnCC+FuBzBS52rwl4CICLYGn38uJWaXopfIfmXJzAqEc4+1SPTB6oR2rlX
Uhnv
-----END CERTIFICATE-----
";
pub(crate) const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNZnpkMoTHjdh49OL
VNxglTqqn7RvPF/V6ZqqXnjB0XqhRANCAARMYqi53VJCjHK0eXGmF0qxf3LSa9uu
OCuHNRp923LyeF5R/JHqn6+8gZYC9dbESPeH4Ci6YsPW8TQhKraUG8tR
-----END PRIVATE KEY-----
";

/// A gateway with TLS over TCP.
fn with_tls(test: &str, tls: &str, more: &str) -> Gateway {
    let folder = folder(test);
    std::fs::write(folder.join("cert.pem"), CERTIFICATE).unwrap();
    let key = folder.join("key.pem");
    std::fs::write(&key, KEY).unwrap();
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let files = "certificate = \"cert.pem\"\nkey = \"key.pem\"\n";
    Gateway::start(&folder, &exported(&format!("tls = \"{tls}\"\n{files}{more}")), &[])
}

/// What comes in the clear behind STARTTLS, in the same packet or while the handshake is due, is
/// never taken for a part of the protected conversation: the connection is closed, unanswered.
#[test]
fn plain_data_behind_starttls_is_refused() {
    let mut gateway = with_tls("starttls", "allowed", "");
    // An option in the clear right behind, as a man in the middle could put it there.
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend([STARTTLS, 0].map(u32::to_be_bytes).concat());
    let list = [b"IHAVEOPT", &[0, 0, 0, 3, 0, 0, 0, 0][..]].concat();
    let mut socket = crate::gateway::initiator::connect(gateway.nbd_address());
    socket.read_exact(&mut [0; 18]).unwrap();
    socket.write_all(&[&[0, 0, 0, 3], &bytes[..], &list].concat()).unwrap();
    assert!(until_closed(&mut socket).is_empty());
    gateway.logged(&["NBD protocol error", "STARTTLS"]);
    // And behind the answer, instead of a handshake.
    let mut client = Client::tcp(gateway.nbd_address());
    client.option(STARTTLS, &[]);
    assert_eq!(client.option_reply().unwrap().0, ACK);
    client.stream.write_all(&list).unwrap();
    let mut said = Vec::new();
    let _ = client.stream.read_to_end(&mut said);
    // An alert of TLS at most.
    assert!(said.is_empty() || said[0] == 0x15, "{said:?}");
    gateway.client().write(0, &[1; 512]).unwrap();
    gateway.stop();
}

/// Where TLS must be used nothing is sent in the clear, not even what exports there are; on a Unix
/// socket TLS is not needed.
#[test]
fn nothing_is_told_in_the_clear() {
    let mut gateway = with_tls("tls-required", "required", "unix = [\"sock\"]\n");
    let mut client = Client::tcp(gateway.nbd_address());
    for option in [3, 7, 8] {
        client.option(option, &[]);
        assert_eq!(client.option_reply().unwrap(), (TLS_REQUIRED, Vec::new()));
    }
    let mut local = Client::unix(&gateway.folder.join("sock"));
    local.choose("disk");
    local.write(0, &[1; 512]).unwrap();
    gateway.stop();
}

/// A client that grows idle in its handshake makes room for one that does not, and no more clients
/// are let in than the limit has.
#[test]
fn clients_are_limited() {
    let mut gateway = start("limit-nbd", "max_connections = 2\n");
    let (mut one, two) = (gateway.client(), gateway.client());
    let mut third = crate::gateway::initiator::connect(gateway.nbd_address());
    assert!(until_closed(&mut third).is_empty());
    gateway.logged(&["connection refused", "limit of 2 connections"]);
    one.write(0, &[1; 512]).unwrap();
    drop(two);
    eventually("end of the second", || (gateway.count("NBD client has left") == 1).then_some(()));
    let mut idle = crate::gateway::initiator::connect(gateway.nbd_address());
    idle.read_exact(&mut [0; 18]).unwrap();
    assert!(gateway.client().read(0, 512) == [1; 512]);
    assert!(until_closed(&mut idle).is_empty(), "it made room");
    gateway.stop();
}
