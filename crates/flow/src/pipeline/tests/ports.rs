//! Links that leave by one port.

use super::*;
use crate::transfer::{Link, Port};
use crate::units::Bandwidth;

/// Two links of a port that carries a byte in a microsecond. Headers of 48 bytes take their part.
fn pipeline(policy: &str) -> Pipeline<Seen> {
    let mut config = Config { backends: vec![Backend::alike(1)], ..config() };
    config.volumes[0].max_transfer = 1 << 20;
    config.policies.transfer = Choice::named(transfer::POLICIES, policy).unwrap();
    let mut pipeline = Pipeline::new(&config, Seen::default());
    for link in 0..2 {
        step(&mut pipeline, 0, Input::Link(LinkId::new(link), port(1_000_000)));
    }
    pipeline
}

fn port(rate: u64) -> Link {
    let rate = Bandwidth::per_second(rate).unwrap();
    Link { interleaves: true, port: Some(Port { id: 3, rate }) }
}

/// One input, at that microsecond.
fn step(pipeline: &mut Pipeline<Seen>, now: u64, input: Input) -> Vec<Action> {
    super::step(pipeline, now * 1_000, input)
}

/// A read of `length` bytes by a link, which storage answers at once.
fn read(pipeline: &mut Pipeline<Seen>, now: u64, link: u32, length: u64) -> Vec<Action> {
    let tag = u64::from(link) << 32 | now;
    let request = Request { link: LinkId::new(link), ..request(tag, Op::Read, 0, length) };
    let io = ios(&step(pipeline, now, Input::Arrive(request)))[0];
    step(pipeline, now, Input::Stored { key: io.key, outcome: Ok(()) })
}

/// Link and bytes of each part.
fn told(actions: &[Action]) -> Vec<(u64, u64)> {
    parts(actions).into_iter().map(|(_, tag, _, part)| (tag.0 >> 32, part.length)).collect()
}

/// Lets the deadline come, if that is the next to happen, at that microsecond.
fn deadline(pipeline: &mut Pipeline<Seen>, at: u64) -> Vec<Action> {
    let now = Instant::ZERO + Duration::from_micros(at);
    assert_eq!(pipeline.next_deadline(), Some(now));
    pipeline.handle_deadline(now);
    core::iter::from_fn(|| pipeline.poll(now)).collect()
}

/// The second link waits for what the first has been given, although it is idle itself and although the
/// first has taken nothing of that; who is next is the policy's matter, and each part is handed out half a
/// millisecond before the port is through with the one before.
#[test]
fn a_port_has_one_line_for_all() {
    let srpt = &[(0, 64 << 10), (1, 512), (0, 4_096), (0, 16 << 10)][..];
    let fifo = &[(0, 80 << 10), (0, 4_096), (1, 512)];
    for (policy, parts) in [("srpt", srpt), ("fifo", fifo)] {
        let mut pipeline = pipeline(policy);
        assert_eq!(told(&read(&mut pipeline, 0, 0, 80 << 10)), parts[..1]);
        assert!(read(&mut pipeline, 1, 0, 4_096).is_empty());
        assert!(read(&mut pipeline, 2, 1, 512).is_empty());
        let mut through = 0;
        for (before, part) in parts.iter().zip(&parts[1..]) {
            through += before.1 + 48;
            assert_eq!(told(&deadline(&mut pipeline, through - 500)), [*part], "{policy}");
        }
    }
}

/// An idle port lets everything out at once and has no deadline; another rate counts from the next part on.
#[test]
fn an_idle_port_holds_nothing() {
    let mut pipeline = pipeline("slack");
    for now in [0, 10_000, 20_000] {
        let reply = read(&mut pipeline, now, 1, 4_096);
        assert_eq!(told(&reply), [(1, 4_096)]);
        for (key, .., part) in parts(&reply) {
            step(&mut pipeline, now + 1, Input::Sent { key, bytes: part.length });
        }
        // What is left is to look at the path now and then.
        let next = pipeline.next_deadline().unwrap();
        assert!(next.as_nanos() >= (now + 4_000) * 1_000, "{next:?}");
    }
    step(&mut pipeline, 30_000, Input::Link(LinkId::new(0), port(2_000_000)));
    assert_eq!(told(&read(&mut pipeline, 30_000, 0, 4_096)), [(0, 4_096)]);
    assert!(read(&mut pipeline, 30_000, 1, 4_096).is_empty());
    assert_eq!(told(&deadline(&mut pipeline, 30_000 + 2_072 - 500)), [(1, 4_096)]);
}
