//! Tells the service manager (systemd) how the gateway is, and has it keep the listeners over a restart.
//!
//! The protocol is that of `sd_notify`(3): datagrams with lines `NAME=value` to the socket that `NOTIFY_SOCKET` names.
//! The event loop itself confirms that it turns: a message of another thread would prove nothing about it.

use listenfd::ListenFd;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::time;
use tracing::warn;
use weir_flow::clock::{Duration, Instant};

/// The service manager that has started the gateway, if one has.
#[derive(Debug)]
pub(crate) struct Service {
    socket: Option<UnixDatagram>,
    /// Whether it restarts a gateway whose event loop has stopped.
    has_watchdog: bool,
    /// Lines that its socket had no room for.
    unsent: String,
    /// Its last status line, and when it was sent.
    status: (String, Instant),
}

impl Service {
    /// The service manager that the environment names.
    pub(crate) fn of_environment() -> Self {
        let place = std::env::var("NOTIFY_SOCKET").ok().filter(|place| !place.is_empty());
        let socket = place.and_then(|place| {
            let connected = connect(&place);
            if let Err(problem) = &connected {
                warn!(%problem, place, "cannot reach the service manager of NOTIFY_SOCKET");
            }
            connected.ok()
        });
        let pid = std::env::var("WATCHDOG_PID").ok();
        let is_ours = pid.is_none_or(|pid| pid == std::process::id().to_string());
        let has_watchdog = std::env::var_os("WATCHDOG_USEC").is_some() && is_ours;
        Self { socket, has_watchdog, ..Self::none() }
    }

    /// No service manager.
    pub(crate) const fn none() -> Self {
        let status = (String::new(), Instant::ZERO);
        Self { socket: None, has_watchdog: false, unsent: String::new(), status }
    }

    /// Whether it keeps the listeners that it was given until the gateway is back.
    pub(crate) const fn keeps_listeners(&self) -> bool {
        self.socket.is_some()
    }

    /// A step of the start begins: `what` is a sentence. It may take as long as the service manager allows for a
    /// start without progress.
    pub(crate) fn starting(&self, what: &str) {
        self.send(&format!("STATUS={what}\nEXTEND_TIMEOUT_USEC={}\n", micros(STEP_WITHIN)), &[]);
    }

    /// Gives it a listener to keep, under a name. It keeps one only once, also if it is given it again.
    pub(crate) fn keep(&self, name: &str, listener: BorrowedFd<'_>) {
        self.send(&format!("FDSTORE=1\nFDNAME={name}\n"), &[listener]);
    }

    /// Asks for a listener not to be kept any more.
    pub(crate) fn discard(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]);
    }

    /// Hosts can connect.
    pub(crate) fn ready(&mut self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The event loop has turned, which it does once a second at least; `status` is a sentence about it.
    pub(crate) fn turned(&mut self, now: Instant, status: impl FnOnce() -> String) {
        if self.socket.is_none() {
            return;
        }
        let mut lines = String::new();
        if self.has_watchdog {
            lines.push_str("WATCHDOG=1\n");
        }
        if now.saturating_since(self.status.1) >= STATUS_INTERVAL {
            let status = status();
            if status != self.status.0 {
                let _ = writeln!(lines, "STATUS={status}");
                self.status = (status, now);
            }
        }
        self.say(&lines);
    }

    /// The configuration is being read again.
    pub(crate) fn reloading(&mut self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// The configuration was read again, whatever came of it.
    pub(crate) fn reloaded(&mut self) {
        self.say("READY=1\n");
    }

    /// The gateway stops, which may take this long, and flushes every volume then.
    pub(crate) fn stopping(&mut self, within: Duration) {
        let micros = micros(within) + micros(STEP_WITHIN);
        let status = "stopping: requests in flight end, then every volume is flushed";
        self.say(&format!("STOPPING=1\nSTATUS={status}\nEXTEND_TIMEOUT_USEC={micros}\n"));
    }

    /// Sends lines, and those that were left, without waiting: what there is no room for now is sent in a second.
    fn say(&mut self, lines: &str) {
        let Some(socket) = &self.socket else { return };
        // A confirmation that was not sent in its second is of no use later.
        let kept = self.unsent.replace("WATCHDOG=1\n", "");
        let lines = kept + lines;
        if lines.is_empty() {
            return;
        }
        let sent = transmit(socket, &lines, &[], SendFlags::DONTWAIT);
        self.unsent = match sent {
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => lines,
            _ => String::new(),
        };
    }

    /// Sends lines with descriptors while no host waits for the gateway yet.
    fn send(&self, lines: &str, descriptors: &[BorrowedFd<'_>]) {
        let Some(socket) = &self.socket else { return };
        if let Err(problem) = transmit(socket, lines, descriptors, SendFlags::empty()) {
            warn!(%problem, "cannot tell the service manager");
        }
    }
}

/// Listeners that the service manager has kept, or opened for the gateway.
#[derive(Debug)]
pub(crate) struct Inherited(Vec<(SocketAddr, TcpListener)>);

impl Inherited {
    /// Those that the environment tells of; they are this process's own then, and no child's.
    pub(crate) fn of_environment() -> Self {
        let mut passed = ListenFd::from_env();
        let count = passed.len();
        let take = |index| {
            let listener = passed.take_tcp_listener(index).ok()??;
            Some((listener.local_addr().ok()?, listener))
        };
        Self((0..count).filter_map(take).collect())
    }

    /// The one on this address.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let index = self.0.iter().position(|(known, _)| *known == address)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Closes those that were not taken: hosts would connect to them in vain.
    pub(crate) fn close(self, service: &Service) {
        for (address, _) in self.0 {
            service.discard(&name(address));
        }
    }
}

/// The name under which the listener on this address is kept. A name may not have a colon (`sd_notify`(3)).
pub(crate) fn name(address: SocketAddr) -> String {
    format!("listen-{address}").replace(':', "_")
}

fn connect(place: &str) -> io::Result<UnixDatagram> {
    let address = match place.strip_prefix('@') {
        Some(name) => UnixAddr::from_abstract_name(name)?,
        None => UnixAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(SEND_WITHIN))?;
    Ok(socket)
}

/// Sends one datagram.
fn transmit(
    socket: &UnixDatagram,
    lines: &str,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(lines.as_bytes())], &mut control, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

const fn micros(duration: Duration) -> u64 {
    duration.as_nanos() / 1_000
}

/// The shortest time between two status lines.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// How long one step of a start, or the last flush, may take before the service manager ends the gateway.
const STEP_WITHIN: Duration = Duration::from_secs(300);

/// How long a message waits during a start for a service manager that does not read.
const SEND_WITHIN: time::Duration = time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::path::PathBuf;

    /// A service manager's socket, and the gateway's view of it.
    fn manager(test: &str) -> (PathBuf, UnixDatagram, Service) {
        let path = std::env::temp_dir().join(format!("weir-notify-{}-{test}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let connected = connect(path.to_str().unwrap()).unwrap();
        let service = Service { socket: Some(connected), has_watchdog: true, ..Service::none() };
        (path, socket, service)
    }

    /// The next datagram.
    fn next(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    /// Each turn of the event loop is one confirmation; the status is sent when it has changed, each 5 s at most.
    #[test]
    fn turns_are_confirmed_and_the_status_is_sent_when_it_changes() {
        let (_path, socket, mut service) = manager("turns");
        let mut turn = |second, status: &str| {
            service.turned(Instant::ZERO + Duration::from_secs(second), || status.to_owned());
            next(&socket).unwrap()
        };
        assert_eq!(turn(4, "a"), "WATCHDOG=1\n");
        assert_eq!(turn(5, "a"), "WATCHDOG=1\nSTATUS=a\n");
        assert_eq!(turn(9, "b"), "WATCHDOG=1\n");
        assert_eq!(turn(10, "b"), "WATCHDOG=1\nSTATUS=b\n");
        assert_eq!(turn(15, "b"), "WATCHDOG=1\n");
    }

    /// A service manager that does not read delays nothing. What it has to know comes when it reads again;
    /// confirmations of seconds that have passed do not.
    #[test]
    fn a_full_socket_loses_no_state() {
        let (_path, socket, mut service) = manager("full");
        let mut sent = 0;
        while service.unsent.is_empty() {
            service.turned(Instant::ZERO, String::new);
            sent += 1;
            assert!(sent < 100_000, "the socket has a limit");
        }
        service.reloading();
        service.reloaded();
        while next(&socket).is_some() {}
        service.turned(Instant::ZERO, String::new);
        let late = next(&socket).unwrap();
        assert!(late.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{late}");
        assert!(late.ends_with("\nREADY=1\nWATCHDOG=1\n"), "{late}");
        assert_eq!(late.matches("WATCHDOG").count(), 1, "{late}");
        assert_eq!(next(&socket), None);
    }

    /// Without a service manager there is nothing to tell, and nothing keeps the listeners.
    #[test]
    fn without_a_manager_nothing_is_sent() {
        let mut service = Service::none();
        service.starting("a");
        service.ready("b");
        service.turned(Instant::ZERO + Duration::from_secs(9), || unreachable!("no status"));
        assert!(!service.keeps_listeners() && service.unsent.is_empty());
    }

    /// A listener is given away as a descriptor, under a name without a colon.
    #[test]
    fn a_listener_is_kept_by_its_address() {
        let (_path, socket, service) = manager("keep");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        service.keep(&name("[::1]:3260".parse().unwrap()), listener.as_fd());
        assert_eq!(next(&socket).unwrap(), "FDSTORE=1\nFDNAME=listen-[__1]_3260\n");
    }

    /// An inherited listener is found by its address, once.
    #[test]
    fn an_inherited_listener_is_taken_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut inherited = Inherited(vec![(address, listener)]);
        assert!(inherited.take("127.0.0.1:1".parse().unwrap()).is_none());
        assert!(inherited.take(address).is_some());
        assert!(inherited.take(address).is_none());
    }
}
