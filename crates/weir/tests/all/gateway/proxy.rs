//! A portal that can be made to fail: it passes bytes between hosts and a target, as long as it is let.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// How the portal fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Everything passes.
    Open,
    /// Connections are closed as soon as they come.
    Cut,
    /// The same for hosts; the target hears nothing of it and keeps what it has.
    Lost,
    /// Connections are taken, and nothing passes.
    Silent,
    /// The connection is closed when this many bytes have come from the target.
    Until(usize),
}

/// A portal in front of another.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    fate: Fate,
    /// How often it has been `Lost`: whatever is older stays open to the target, whenever that is noticed.
    losses: u32,
    hosts: Vec<TcpStream>,
    targets: Vec<TcpStream>,
}

impl Proxy {
    /// Begins to pass bytes to and from `target`.
    pub(crate) fn start(target: SocketAddr, fate: Fate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Mutex::new(State { fate, losses: 0, hosts: Vec::new(), targets: Vec::new() });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let accepting = shared.clone();
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                accepting.accept(&host, target);
            }
        });
        Self { address, shared }
    }

    /// Has it fare so from now on. `Cut` and `Lost` close what is open.
    pub(crate) fn be(&self, fate: Fate) {
        let mut state = self.shared.state.lock().unwrap();
        state.fate = fate;
        state.losses += u32::from(fate == Fate::Lost);
        let State { hosts, targets, .. } = &mut *state;
        let closed = match fate {
            Fate::Cut => hosts.drain(..).chain(targets.drain(..)).collect(),
            // Those to the target stay open, since nothing drops them.
            Fate::Lost => std::mem::take(hosts),
            Fate::Open | Fate::Silent | Fate::Until(_) => Vec::new(),
        };
        for stream in closed {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, host: &TcpStream, target: SocketAddr) {
        let mut state = self.state.lock().unwrap();
        if matches!(state.fate, Fate::Cut | Fate::Lost) {
            return;
        }
        let Ok(target) = TcpStream::connect(target) else { return };
        for stream in [host, &target] {
            stream.set_nodelay(true).unwrap();
        }
        state.hosts.push(host.try_clone().unwrap());
        state.targets.push(target.try_clone().unwrap());
        let losses = state.losses;
        drop(state);
        for (from, to, counts) in [(host, &target, false), (&target, host, true)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let shared = self.clone();
            std::thread::spawn(move || shared.pass(from, to, counts, losses));
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, counts: bool, losses: u32) {
        let (mut bytes, mut passed) = ([0; 16 << 10], 0);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let state = self.state.lock().unwrap();
            let state = self.changed.wait_while(state, |state| state.fate == Fate::Silent).unwrap();
            let left = match state.fate {
                Fate::Until(most) if counts => Some(most - passed),
                _ => None,
            };
            drop(state);
            let count = left.map_or(count, |left| count.min(left));
            passed += count;
            if to.write_all(&bytes[..count]).is_err() || left == Some(count) {
                break;
            }
        }
        if self.state.lock().unwrap().losses == losses {
            for stream in [from, to] {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}
