//! Sockets over the loopback device, and TLS between two ends in memory.

use super::*;
use crate::frontend::tls::tests::{Authority, served_by};
use crate::storage::state_file::tests::Folder;
use mio::{Events, Poll};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net;
use std::os::unix;
use std::thread;

/// A client that trusts the authority, and has a certificate of it on demand.
fn client(authority: &Authority, certified: bool) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = if certified {
        let (certificate, key) = authority.issue();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// Both ends of a TCP connection.
fn connected() -> (Socket, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    (Socket::tcp(TcpStream::from_std(server), peer).unwrap(), client)
}

/// What may wait unsent in the kernel is doubled where it takes more at once and halved where that takes long,
/// within bounds, and the kernel knows it; how long is counted from the first refusal on.
#[test]
fn what_waits_unsent_follows_the_rate() {
    let (socket, _client) = connected();
    let limit = || {
        let HostStream::Tcp(stream) = &socket.stream else { unreachable!("it is TCP") };
        SockRef::from(stream).tcp_notsent_lowat().unwrap()
    };
    let mut unsent = Unsent::new(&socket);
    assert_eq!(limit(), 128 << 10);
    let mut now = Instant::ZERO;
    let mut wait = |micros: u64| {
        unsent.blocked(now);
        unsent.blocked(now + clock::Duration::from_micros(micros / 2));
        now += clock::Duration::from_micros(micros);
        unsent.took(now, &socket);
        unsent.took(now + clock::Duration::from_secs(1), &socket);
        limit()
    };
    assert_eq!(
        [900, 1_100, 3_900, 4_100].map(&mut wait),
        [256, 256, 256, 128].map(|kib| kib << 10)
    );
    assert_eq!((0..20).map(|_| wait(10_000)).last(), Some(16 << 10));
    assert_eq!((0..20).map(|_| wait(0)).last(), Some(4 << 20));
}

/// A server's end with the event loop that drives it.
struct Driven {
    socket: Socket,
    poll: Poll,
}

impl Driven {
    fn new(mut socket: Socket) -> Self {
        let poll = Poll::new().unwrap();
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut socket, Token(0), interest).unwrap();
        Self { socket, poll }
    }

    /// Sleeps until the kernel tells something new.
    fn sleep(&mut self) {
        self.poll.poll(&mut Events::with_capacity(4), None).unwrap();
    }

    /// Reads once, and sleeps only when the contract says that there is nothing to have.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.socket.has_buffered() {
                        self.sleep();
                        self.socket.flush()?;
                    }
                }
                result => return result,
            }
        }
    }

    /// Writes everything, and sleeps only when the socket takes no more.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (a, b) = bytes.split_at(bytes.len() / 3);
            match self.socket.write_vectored(&[IoSlice::new(a), IoSlice::new(b)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.sleep(),
                Err(error) => panic!("{error}"),
            }
        }
        while !self.socket.flush().unwrap() {
            self.sleep();
        }
        assert!(!self.socket.wants_write());
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8)) as u8).collect()
}

/// In the clear, bytes come and go as they are, and the end is an end.
#[test]
fn tcp_in_the_clear() {
    let (socket, mut client) = connected();
    assert_eq!(socket.peer().to_string(), client.local_addr().unwrap().to_string());
    assert_eq!(socket.local(), Some(client.peer_addr().unwrap()));
    let mut server = Driven::new(socket);
    let mut buffer = [0; 64];
    let early = server.socket.read(&mut buffer).unwrap_err();
    assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
    client.write_all(b"hello").unwrap();
    assert_eq!(server.read(&mut buffer).unwrap(), 5);
    assert!(!server.socket.has_buffered());
    server.write(b"and good bye");
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "and good bye");
}

/// A Unix socket is served alike, and named by the path that it came to.
#[test]
fn unix_in_the_clear() {
    let folder = Folder::new("socket-unix");
    let path = folder.file("nbd.sock");
    let listener = unix::net::UnixListener::bind(&path).unwrap();
    let mut client = unix::net::UnixStream::connect(&path).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nonblocking(true).unwrap();
    let socket = Socket::unix(UnixStream::from_std(accepted)).unwrap();
    assert_eq!(socket.peer().to_string(), format!("unix:{}", path.display()));
    assert_eq!(socket.local(), None);
    let mut server = Driven::new(socket);
    client.write_all(b"hello").unwrap();
    let mut buffer = [0; 64];
    assert_eq!(server.read(&mut buffer).unwrap(), 5);
    server.write(b"hi");
    client.read_exact(&mut buffer[..2]).unwrap();
    drop(client);
    assert_eq!(server.read(&mut buffer).unwrap(), 0);
}

/// An IPv4 host is itself where the listener serves both kinds.
#[test]
fn mapped_addresses_are_ipv4() {
    let mapped: SocketAddr = "[::ffff:192.0.2.7]:99".parse().unwrap();
    assert_eq!(Peer::Tcp(canonical(mapped)).to_string(), "192.0.2.7:99");
    let other: SocketAddr = "[2001:db8::7]:99".parse().unwrap();
    assert_eq!(canonical(other), other);
}

/// A conversation that turns to TLS in the middle carries megabytes both ways, through buffers of any
/// size, with nothing but the kernel's edges to go by.
#[test]
fn a_conversation_turns_to_tls() {
    const LENGTH: usize = 3 << 20;
    let authority = Authority::new();
    let (socket, mut stream) = connected();
    let session = client(&authority, true);
    let config = served_by(&authority, "socket-turns", true);
    let other = thread::spawn(move || {
        stream.write_all(b"start").unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        let mut secure = StreamOwned::new(session, stream);
        secure.write_all(&pattern(LENGTH)).unwrap();
        secure.flush().unwrap();
        let mut echo = vec![0; LENGTH];
        secure.read_exact(&mut echo).unwrap();
        assert!(echo == pattern(LENGTH));
        // The server's end follows in order: anything else is an error.
        assert_eq!(secure.read(&mut [0]).unwrap(), 0);
    });
    let mut server = Driven::new(socket);
    let mut buffer = vec![0; 300_000];
    assert_eq!(server.read(&mut buffer).unwrap(), 5);
    server.write(b"ok");
    server.socket.start_tls(config).unwrap();
    assert!(server.socket.has_buffered());
    let mut received = Vec::new();
    let mut sizes = [1, 100, 5_000, 16_384, 70_000, 300_000].into_iter().cycle();
    while received.len() < LENGTH {
        let size = sizes.next().unwrap();
        let count = server.read(&mut buffer[..size]).unwrap();
        assert!(count > 0);
        received.extend(&buffer[..count]);
    }
    assert!(received == pattern(LENGTH));
    server.write(&received);
    drop(server);
    other.join().unwrap();
}

/// A client without the required certificate is refused, and gets an alert that says so.
#[test]
fn clients_must_be_certified() {
    let authority = Authority::new();
    for stranger in [client(&authority, false), client(&Authority::new(), true)] {
        let (mut socket, stream) = connected();
        socket.start_tls(served_by(&authority, "socket-certified", true)).unwrap();
        let other = thread::spawn(move || {
            let mut secure = StreamOwned::new(stranger, stream);
            drop(secure.write_all(b"let me in"));
            secure.read(&mut [0; 8]).unwrap_err().kind()
        });
        let mut server = Driven::new(socket);
        let error = server.read(&mut [0; 64]).unwrap_err();
        // The second stranger does not trust the server either.
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        drop(server);
        assert_eq!(other.join().unwrap(), io::ErrorKind::InvalidData);
    }
}

/// The far end of a TLS connection in memory.
struct Far {
    session: ClientConnection,
    /// On the way to the server.
    there: Vec<u8>,
    /// On the way back.
    back: Vec<u8>,
    /// How much of it the way back takes.
    room: usize,
    /// The far end sends nothing more.
    cut: bool,
}

impl Read for Far {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.there.len().min(buffer.len()) {
            0 if self.cut => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => {
                buffer[..count].copy_from_slice(&self.there[..count]);
                self.there.drain(..count);
                Ok(count)
            }
        }
    }
}

impl Write for Far {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.room.saturating_sub(self.back.len()).min(bytes.len()) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => {
                self.back.extend(&bytes[..count]);
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Far {
    fn new(authority: &Authority) -> Self {
        let session = client(authority, false);
        Self { session, there: Vec::new(), back: Vec::new(), room: usize::MAX, cut: false }
    }

    /// Takes in what has come back, and sends what there is to be sent. Returns what was said.
    fn turn(&mut self) -> Vec<u8> {
        let back = std::mem::take(&mut self.back);
        let mut rest = &back[..];
        let mut said = Vec::new();
        while !rest.is_empty() {
            self.session.read_tls(&mut rest).unwrap();
            self.session.process_new_packets().unwrap();
            let nothing = self.session.reader().read_to_end(&mut said).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        }
        while self.session.wants_write() {
            self.session.write_tls(&mut self.there).unwrap();
        }
        said
    }

    fn say(&mut self, bytes: &[u8]) {
        self.session.set_buffer_limit(None);
        self.session.writer().write_all(bytes).unwrap();
        self.turn();
    }
}

/// Both ends in memory, with the handshake behind them.
fn secured(name: &str) -> (Tls, Far) {
    let authority = Authority::new();
    let mut near = Tls::new(served_by(&authority, name, false)).unwrap();
    let mut far = Far::new(&authority);
    far.turn();
    for _ in 0..3 {
        let nothing = near.read(&mut far, &mut [0; 16]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        far.turn();
    }
    assert!(!near.session.is_handshaking() && !far.session.is_handshaking() && near.drained);
    (near, far)
}

/// A record that does not fit the buffer stays to be read, and it is known that it does.
#[test]
fn decrypted_bytes_are_told() {
    let (mut near, mut far) = secured("socket-buffered");
    far.say(&pattern(20_000));
    let mut received = Vec::<u8>::new();
    let mut buffer = [0; 700];
    loop {
        match near.read(&mut far, &mut buffer) {
            Ok(count) => received.extend(&buffer[..count]),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
        if near.drained {
            break;
        }
    }
    assert_eq!(received, pattern(20_000));
    assert!(near.drained && near.session.reader().read(&mut buffer).is_err());
}

/// One read does a bounded amount of work, and the rest is known to wait.
#[test]
fn a_read_is_bounded() {
    const LENGTH: usize = 1 << 20;
    let (mut near, mut far) = secured("socket-bounded");
    far.say(&pattern(LENGTH));
    let mut buffer = vec![0; LENGTH + 1];
    let mut filled = 0;
    let mut reads = 0;
    while reads == 0 || !near.drained {
        let fed = far.there.len();
        filled += near.read(&mut far, &mut buffer[filled..]).unwrap();
        assert!(fed - far.there.len() <= FETCHES * (16 << 10) + (16 << 10));
        reads += 1;
    }
    assert!(buffer[..filled] == pattern(LENGTH) && reads > 1, "{filled} bytes in {reads} reads");
}

/// Bytes before the end are read before the end is reported, however the connection ends.
#[test]
fn the_end_comes_last() {
    let (mut near, mut far) = secured("socket-orderly");
    far.say(b"the last words");
    far.session.send_close_notify();
    far.turn();
    let mut buffer = [0; 64];
    assert_eq!(near.read(&mut far, &mut buffer).unwrap(), 14);
    assert!(!near.drained);
    assert_eq!(near.read(&mut far, &mut buffer).unwrap(), 0);

    let (mut near, mut far) = secured("socket-cut");
    far.say(b"the last words");
    far.cut = true;
    assert_eq!(near.read(&mut far, &mut buffer).unwrap(), 14);
    assert!(!near.drained);
    let error = near.read(&mut far, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);

    let (mut near, mut far) = secured("socket-garbage");
    far.say(b"the last words");
    far.there.extend([0x17, 3, 3, 0, 32].iter().chain(&[7; 32]));
    assert_eq!(near.read(&mut far, &mut buffer).unwrap(), 14);
    assert!(!near.drained);
    let error = near.read(&mut far, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(!far.back.is_empty(), "an alert says why");
}

/// A client that does not speak TLS at all gets another error than one that sends nothing.
#[test]
fn nonsense_is_an_error() {
    let authority = Authority::new();
    let mut near = Tls::new(served_by(&authority, "socket-nonsense", false)).unwrap();
    let mut far = Far::new(&authority);
    far.there.extend(b"GET / HTTP/1.1\r\n\r\n");
    let error = near.read(&mut far, &mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// What the socket does not take is kept up to a bound; then no more is taken, and nothing is lost.
#[test]
fn writes_are_bounded() {
    let (mut near, mut far) = secured("socket-writes");
    far.room = 10_000;
    let bytes = pattern(1 << 20);
    let mut taken = 0;
    let mut write = |near: &mut Tls, far: &mut Far| {
        loop {
            let (a, b) = bytes[taken..].split_at((bytes.len() - taken) / 2);
            match near.write(far, &[IoSlice::new(a), IoSlice::new(b)]) {
                Ok(count) => taken += count,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    return taken;
                }
            }
            if taken == bytes.len() {
                return taken;
            }
        }
    };
    let first = write(&mut near, &mut far);
    assert!((TLS_BUFFER / 2..TLS_BUFFER + 10_000).contains(&first), "{first}");
    assert!(near.session.wants_write() && !near.flush(&mut far).unwrap());
    let mut heard = Vec::new();
    while write(&mut near, &mut far) < bytes.len() || !near.flush(&mut far).unwrap() {
        heard.extend(far.turn());
    }
    heard.extend(far.turn());
    assert!(heard == bytes && !near.session.wants_write());
}

/// A socket that has room again is not waited for: the kernel would not tell a second time.
#[test]
fn a_full_buffer_is_flushed_first() {
    let (mut near, mut far) = secured("socket-refilled");
    let bytes = pattern(TLS_BUFFER * 2);
    far.room = 0;
    let first = near.write(&mut far, &[IoSlice::new(&bytes)]).unwrap();
    assert!(near.write(&mut far, &[IoSlice::new(&bytes[first..])]).is_err());
    far.room = usize::MAX;
    let second = near.write(&mut far, &[IoSlice::new(&bytes[first..])]).unwrap();
    assert!(second > 0);
    assert_eq!(far.turn(), bytes[..first + second]);
}

/// Before the handshake is over data is kept within the same bound, and it leaves right after.
#[test]
fn early_writes_wait_for_the_handshake() {
    let authority = Authority::new();
    let mut near = Tls::new(served_by(&authority, "socket-early", false)).unwrap();
    let mut far = Far::new(&authority);
    let bytes = pattern(TLS_BUFFER + 1);
    assert_eq!(near.write(&mut far, &[IoSlice::new(&bytes)]).unwrap(), TLS_BUFFER);
    let full = near.write(&mut far, &[IoSlice::new(&bytes)]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(near.write(&mut far, &[IoSlice::new(&[])]).unwrap(), 0);
    assert!(far.back.is_empty());
    far.turn();
    for _ in 0..3 {
        drop(near.read(&mut far, &mut [0; 16]));
        if near.session.is_handshaking() {
            far.turn();
        }
    }
    assert_eq!(far.turn(), bytes[..TLS_BUFFER]);
}
