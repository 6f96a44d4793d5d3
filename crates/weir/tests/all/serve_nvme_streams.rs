//! Streams of `dispatch` within a tenant: queues, hosts and namespaces of NVMe.

use crate::gateway::initiator::until_closed;
use crate::gateway::nvme::{Host, Move, Queue, READ, with_subsystem};
use crate::gateway::recorded::RECORDED;
use crate::gateway::{Gateway, folder};

/// `ONE_DISK` as a namespace under `fog`, with these keys of the subsystem.
fn streams(keys: &str) -> String {
    let before = "[control]\nsocket = \"c.sock\"\n[policy]\ndispatch = \"fog\"\n";
    format!("{before}{}", with_subsystem("", keys))
}

/// Reads with some outstanding.
fn work(queue: &mut Queue, nsid: u32) {
    let read = |lba: u32| queue.issue(READ, nsid, &[lba << 7, 0, 7], Move::In(4096));
    let commands: Vec<_> = (0..32).map(read).collect();
    assert!(commands.into_iter().all(|cid| queue.wait(cid).unwrap().status == 0));
}

/// Ends a queue, and waits for that.
fn disconnect(mut queue: Queue) {
    assert_eq!(queue.execute(0x7f, 8, &[], Move::None).status, 0);
    until_closed(&mut queue.socket);
}

/// The streams in the status that have had something: what each is, and its weight.
fn told(gateway: &Gateway) -> Vec<(String, f64)> {
    let status = gateway.asked(&["status"])["status"].take();
    let streams = status["streams"].as_array().unwrap().iter();
    let mut told: Vec<_> = streams
        .filter(|stream| stream["service_ns"].as_u64().unwrap() > 0)
        .map(|stream| {
            let host = stream["host"].as_str().map_or("", |host| host.rsplit(':').next().unwrap());
            let number =
                if stream["queue"].is_null() { &stream["namespace"] } else { &stream["queue"] };
            let number = number.as_u64().map_or_else(String::new, |number| number.to_string());
            let kind = stream["kind"].as_str().unwrap();
            let words: Vec<_> =
                [kind, host, &number].into_iter().filter(|word| !word.is_empty()).collect();
            (words.join(" "), stream["weight"].as_f64().unwrap())
        })
        .collect();
    told.sort_by(|(a, _), (b, _)| a.cmp(b));
    told
}

fn named(streams: &[(&str, f64)]) -> Vec<(String, f64)> {
    streams.iter().map(|&(name, weight)| (name.to_owned(), weight)).collect()
}

/// Each I/O queue is a separate stream where the configuration says so: the status has its weight and what it has had;
/// a reload changes weights and what is a stream, from queues to hosts and back to none; the recording replays.
#[test]
fn queues_are_streams() {
    let config = streams("streams = \"queue\"\nqueue_shares = { 2 = 4 }\n");
    let mut gateway = Gateway::start(&folder("nvme_streams"), &config, RECORDED);
    let controller = gateway.controller(1);
    let mut queues = [1, 2].map(|number| controller.queue(number).unwrap());
    let mut work = || queues.iter_mut().for_each(|queue| work(queue, 1));
    work();
    assert_eq!(told(&gateway), named(&[("queue host1 1", 1.0), ("queue host1 2", 4.0)]));
    let text = String::from_utf8(gateway.command(&["status"]).stdout).unwrap();
    assert!(text.contains("Streams within tenants"), "{text}");
    let named_queue = format!("{}, controller {}, queue 2", Host::of(1).nqn, controller.id);
    assert!(text.contains(&named_queue), "{text}");
    gateway.reload(&streams("streams = \"queue\"\nqueue_shares = { 1 = 0.5 }\n"));
    work();
    assert_eq!(told(&gateway), named(&[("queue host1 1", 0.5), ("queue host1 2", 1.0)]));
    gateway.reload(&streams("streams = \"host\"\n"));
    work();
    assert_eq!(told(&gateway), named(&[("host host1", 1.0)]));
    gateway.reload(&streams(""));
    work();
    assert!(told(&gateway).is_empty());
    gateway.stop();
    gateway.replays();
}

/// All queues of a host are one stream, over all its controllers, and as long as one of them is there.
#[test]
fn hosts_are_streams() {
    let config = streams(
        "streams = \"host\"\nhost_shares = { \"nqn.*\" = 0.5, \"nqn.2014-08.org.NVMexpress:uuid:host2\" = 3 }\n",
    );
    let mut gateway = Gateway::start(&folder("nvme_host_streams"), &config, RECORDED);
    let controllers = [1, 1, 2].map(|host| gateway.controller(host));
    let mut queues: Vec<_> = controllers.iter().map(|one| one.queue(1).unwrap()).collect();
    queues.push(controllers[0].queue(2).unwrap());
    for queue in &mut queues {
        work(queue, 1);
    }
    let both = named(&[("host host1", 0.5), ("host host2", 3.0)]);
    assert_eq!(told(&gateway), both);
    for _ in 0..2 {
        // The first queue of host 1, then the one of its other controller: its last is there still.
        disconnect(queues.remove(0));
        assert_eq!(told(&gateway), both);
    }
    disconnect(queues.remove(1));
    assert_eq!(told(&gateway), named(&[("host host2", 3.0)]));
    work(&mut queues[0], 1);
    let mut again = controllers[1].queue(1).unwrap();
    assert_eq!(
        told(&gateway),
        named(&[("host host2", 3.0)]),
        "what the last host 1 had is forgotten"
    );
    work(&mut again, 1);
    assert_eq!(told(&gateway), both);
    gateway.stop();
    gateway.replays();
}

/// All requests for a namespace are one stream, those of iSCSI included; a reload that adds one and takes one away
/// changes the streams.
#[test]
fn namespaces_are_streams() {
    let volume = "[[volume]]\nname = \"other\"\nfile = \"other.img\"\nsize = \"64MiB\"\n";
    let with = |namespaces: &str, shares: &str| {
        let keys = format!("streams = \"namespace\"\nnamespace_shares = {shares}\n{volume}");
        streams(&keys)
            .replace("namespaces = { 1 = \"disk\" }", &format!("namespaces = {namespaces}"))
    };
    let config = with("{ 1 = \"disk\", 7 = \"other\" }", "{ 7 = 2 }");
    let mut gateway = Gateway::start(&folder("nvme_namespace_streams"), &config, RECORDED);
    let mut session = gateway.session("host");
    session.read(0, 4096);
    assert_eq!(told(&gateway), named(&[("namespace 1", 1.0)]), "over iSCSI");
    let controller = gateway.controller(1);
    let mut queue = controller.queue(1).unwrap();
    work(&mut queue, 1);
    work(&mut queue, 7);
    assert_eq!(told(&gateway), named(&[("namespace 1", 1.0), ("namespace 7", 2.0)]));
    gateway.reload(&with("{ 8 = \"other\" }", "{ 8 = 5 }"));
    work(&mut queue, 8);
    session.read(0, 4096);
    assert_eq!(told(&gateway), named(&[("namespace 8", 5.0)]));
    gateway.stop();
    gateway.replays();
}
