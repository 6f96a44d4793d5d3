use super::*;
use crate::operator::protocol::{Answer, Line, Problem};
use mio::{Events, Poll};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Client;
use std::path::PathBuf;
use std::time;

/// The socket, an event loop as the gateway has one, and a clock that the test moves.
struct World {
    socket: Socket,
    poll: Poll,
    now: Instant,
    path: PathBuf,
}

impl World {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-api-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        // Its folder is made with the socket.
        let path = folder.join("control.sock");
        let poll = Poll::new().unwrap();
        let socket = Socket::open(&path, poll.registry().try_clone().unwrap()).unwrap();
        Self { socket, poll, now: Instant::ZERO, path }
    }

    fn connect(&self) -> Client {
        let client = Client::connect(&self.path).unwrap();
        client.set_read_timeout(Some(time::Duration::from_secs(30))).unwrap();
        client
    }

    /// What the event loop does until nothing happens any more, without answering.
    fn turn(&mut self) {
        let mut events = Events::with_capacity(64);
        loop {
            self.poll.poll(&mut events, Some(time::Duration::ZERO)).unwrap();
            for event in &events {
                assert!(Socket::owns(event.token().0));
                self.socket.event(self.now, event.token().0);
            }
            self.socket.tick(self.now);
            if events.is_empty() {
                return;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.turn();
    }

    /// Answers everything that is asked, each with the text, a pause apart; how many there were.
    fn answer(&mut self, text: &str) -> usize {
        let mut count = 0;
        self.turn();
        while let Some((client, asked)) = self.socket.question(self.now) {
            let answer = match asked {
                Ok(_) => {
                    let message = text.to_owned();
                    let (code, help) = (String::new(), String::new());
                    Answer::Error(Problem { code, message, help })
                }
                Err(refusal) => (&refusal).into(),
            };
            self.socket.answer(self.now, client, Line::of(answer));
            count += 1;
            self.pass(ANSWER_PAUSE);
        }
        count
    }

    /// The client sends this as far as it is read.
    fn hear(&mut self, client: &mut Client, mut bytes: &[u8]) {
        client.set_nonblocking(true).unwrap();
        let mut full = false;
        while !bytes.is_empty() {
            match client.write(bytes) {
                Ok(sent) => (bytes, full) = (&bytes[sent..], false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !full => {
                    full = true;
                    self.turn();
                }
                Err(_) => return,
            }
        }
    }

    fn clients(&self) -> usize {
        self.socket.clients.iter().flatten().count()
    }
}

/// What the client receives until the other side closes or is silent; whether it has closed.
fn told(client: &mut Client) -> (String, bool) {
    client.set_nonblocking(true).unwrap();
    let (mut text, mut bytes) = (String::new(), [0; 4_096]);
    loop {
        match client.read(&mut bytes) {
            Ok(0) => return (text, true),
            Ok(count) => text.push_str(str::from_utf8(&bytes[..count]).unwrap()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (text, false),
            Err(_) => return (text, true),
        }
    }
}

const STATUS: &[u8] = b"{\"version\":1,\"do\":\"status\"}\n";

/// Only the owner may connect, whatever the umask is.
#[test]
fn the_socket_is_its_owners() {
    let world = World::new("mode");
    let mode = std::fs::metadata(&world.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Requests on one connection are answered in turn, however they are cut into packets.
#[test]
fn lines_are_put_together() {
    let mut world = World::new("lines");
    let mut client = world.connect();
    client.write_all(&STATUS[..9]).unwrap();
    assert_eq!(world.answer("early"), 0);
    client.write_all(&STATUS[9..]).unwrap();
    client.write_all(STATUS).unwrap();
    client.write_all(&STATUS[..3]).unwrap();
    assert_eq!(world.answer("good"), 2);
    let (text, closed) = told(&mut client);
    assert_eq!((text.matches("good").count(), text.lines().count(), closed), (2, 2, false));
}

/// A line of the longest length is read; one byte more is refused, and nothing of what follows is heard.
#[test]
fn long_lines_are_refused() {
    let mut world = World::new("long");
    let line = |length: usize| {
        let mut line = b"{\"version\":1,\"do\":\"status\"}".to_vec();
        line.resize(length, b' ');
        line.push(b'\n');
        line
    };
    let mut client = world.connect();
    world.hear(&mut client, &line(LINE_MAX));
    assert_eq!(world.answer("good"), 1);
    assert!(told(&mut client).0.contains("good"));
    world.hear(&mut client, &[&line(LINE_MAX + 1), STATUS].concat());
    assert_eq!(world.answer("good"), 1);
    let (text, closed) = told(&mut client);
    assert!(text.contains("\"too_long\"") && closed, "{text}");
    assert_eq!(world.clients(), 0);
}

/// Half a line is refused when the client closes its side.
#[test]
fn half_a_line_is_told() {
    let mut world = World::new("half");
    let mut client = world.connect();
    client.write_all(&STATUS[..STATUS.len() - 1]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(world.answer("good"), 1);
    let (text, closed) = told(&mut client);
    assert!(text.contains("\"unfinished\"") && closed, "{text}");
}

/// Who asks nothing, or dribbles, is closed when its time is over and not before.
#[test]
fn the_silent_are_closed() {
    let mut world = World::new("silent");
    let (mut silent, mut dribbles, mut asks) = (world.connect(), world.connect(), world.connect());
    world.turn();
    for _ in 0..9 {
        world.pass(Duration::from_secs(1));
        dribbles.write_all(b"{").unwrap();
        asks.write_all(STATUS).unwrap();
        world.answer("good");
    }
    assert!(!told(&mut silent).1 && !told(&mut dribbles).1);
    assert_eq!(world.clients(), 3);
    let due = world.socket.deadline().unwrap();
    assert_eq!(due, Instant::ZERO + PATIENCE);
    world.now = due;
    world.turn();
    assert!(told(&mut silent).1 && told(&mut dribbles).1);
    assert!(!told(&mut asks).1);
    assert_eq!(world.clients(), 1);
}

/// Who never reads is asked nothing more, keeps one answer in memory, and is closed when its time is over.
#[test]
fn who_never_reads_is_closed() {
    let mut world = World::new("reads");
    let mut client = world.connect();
    client.set_nonblocking(true).unwrap();
    let long = "x".repeat(1 << 20);
    // The kernel takes some of it.
    while client.write(STATUS).is_ok_and(|count| count == STATUS.len()) {}
    assert_eq!(world.answer(&long), 1, "one answer does not fit into the kernel's buffers");
    assert_eq!(world.answer(&long), 0);
    world.pass(PATIENCE);
    assert_eq!(world.clients(), 0);
}

/// Clients that are silent make room for those who come, after a moment; those who wait for an answer keep
/// their places.
#[test]
fn the_silent_make_room() {
    let mut world = World::new("room");
    let mut asks = world.connect();
    asks.write_all(STATUS).unwrap();
    let mut silent: Vec<_> = (1..CLIENTS_MAX).map(|_| world.connect()).collect();
    world.turn();
    assert_eq!(world.clients(), CLIENTS_MAX);
    let mut late = world.connect();
    late.write_all(STATUS).unwrap();
    world.turn();
    assert_eq!(world.socket.questions.len(), 1);
    assert!(silent.iter_mut().all(|client| !told(client).1));
    world.pass(GRACE);
    assert_eq!(world.socket.questions.len(), 2, "the next one is in");
    assert_eq!(silent.iter_mut().map(|client| usize::from(told(client).1)).sum::<usize>(), 1);
    assert_eq!(world.answer("good"), 2);
    assert!(told(&mut asks).0.contains("good") && told(&mut late).0.contains("good"));
}

/// However many ask, one answer is given in each pause, and everybody gets one.
#[test]
fn answers_keep_a_pace() {
    let mut world = World::new("pace");
    let mut clients: Vec<_> = (0..CLIENTS_MAX + 8).map(|_| world.connect()).collect();
    for client in &mut clients {
        client.write_all(STATUS).unwrap();
    }
    world.turn();
    assert!(world.socket.question(world.now).is_some());
    assert!(world.socket.question(world.now).is_none(), "not before the pause is over");
    assert_eq!(world.socket.deadline(), Some(world.now + ANSWER_PAUSE));
    drop(clients.drain(..1));
    world.pass(ANSWER_PAUSE);
    let mut left = clients.len();
    while left > 0 {
        left -= world.answer("good");
        clients.retain_mut(|client| !told(client).0.contains("good"));
        world.pass(GRACE);
    }
    assert!(clients.is_empty());
}

/// An answer for a client that has left is dropped, also when another has its place.
#[test]
fn a_late_answer_is_nobodys() {
    let mut world = World::new("late");
    let mut first = world.connect();
    first.write_all(STATUS).unwrap();
    world.turn();
    let (id, _) = world.socket.question(world.now).unwrap();
    world.socket.clients[id.index] = None;
    let mut second = world.connect();
    world.pass(ANSWER_PAUSE);
    world.socket.answer(world.now, id, "old\n".to_owned());
    second.write_all(STATUS).unwrap();
    assert_eq!(world.answer("new"), 1);
    let (text, _) = told(&mut second);
    assert!(text.contains("new") && !text.contains("old"), "{text}");
}
