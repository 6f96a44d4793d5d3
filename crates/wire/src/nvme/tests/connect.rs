//! Tests of Fabrics commands: Connect with its rules, properties, Disconnect.

use super::harness::{
    HOST, Host, SUBSYSTEM, Sgl, Told, connect_data, connect_sqe, disconnect, fabrics, flush,
};
use crate::nvme::{Completion, ConnectRefusal, Limits};

fn initialized() -> Host {
    Host::initialized(Limits::default(), 0, (false, false))
}

/// A Connect says what it asks for; admitted, it returns the controller and agrees to flow control or not.
#[test]
fn queues_are_connected() {
    for (queue, size, attributes, head) in [(0, 31, 4, 0xffff), (8, 127, 0, 1), (1, 1, 0, 1)] {
        let mut host = initialized();
        let told =
            host.send(&host.capsule(&connect_sqe(queue, size, attributes), &connect_data(queue)));
        let [Told::Connect(connect)] = &told.unwrap()[..] else { panic!("a Connect") };
        assert_eq!((connect.queue, connect.depth, connect.kato_ms), (queue, size + 1, 15_000));
        assert_eq!(connect.controller, if queue == 0 { 0xffff } else { 1 });
        assert_eq!(
            (connect.host_id, &*connect.host, &*connect.subsystem),
            ([7; 16], HOST, SUBSYSTEM)
        );
        assert!(host.connection.is_deciding() && !host.connection.is_live());
        assert_eq!(host.connection.receive(&[0; 72]).unwrap().consumed, 0);
        host.connection.admitted(0x1234);
        assert!(host.connection.is_live());
        assert_eq!(host.connection.queue(), Some(queue));
        let pdu = &host.pdus()[0];
        assert_eq!((pdu.status(), pdu.u32(8), pdu.u32(12)), (0, 0x1234, 0));
        assert_eq!((pdu.u16(16), pdu.u16(18)), (head, queue));
        // A queue is connected once.
        let second = host.send(&host.capsule(&connect_sqe(queue, size, 0), &connect_data(queue)));
        assert_eq!((second, host.endings()), (Ok(vec![]), vec![(0, 0xc)]));
    }
}

/// Every parameter that is out of its range is refused, with its place in the command or in the data.
#[test]
fn parameters_are_checked() {
    const DATA: u32 = 1 << 16;
    let name = |text: &[u8]| {
        let mut bytes = [0; 256];
        bytes[..text.len()].copy_from_slice(text);
        bytes.to_vec()
    };
    let refused = |queue: u16, size: u16, at: usize, bytes: &[u8]| {
        let mut host = initialized();
        let mut data = connect_data(queue);
        data[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(host.send(&host.capsule(&connect_sqe(queue, size, 0), &data)), Ok(vec![]));
        let pdu = &host.pdus()[0];
        assert_eq!(pdu.u16(22) >> 15, 1, "do not retry");
        (pdu.status(), pdu.u32(8))
    };
    assert_eq!(refused(9, 15, 0, &[]), (0x182, 42));
    for (queue, size) in [(0, 0), (0, 32), (1, 0), (1, 128), (1, 0xffff)] {
        assert_eq!(refused(queue, size, 0, &[]), (0x182, 44), "queue {queue}, size {size}");
    }
    assert_eq!(refused(0, 31, 16, &[5, 0]), (0x182, 16 | DATA));
    let long = [b'n'; 224];
    for wrong in [
        name(b""),
        vec![b'n'; 256],
        name(&long),
        name(b"nqn.\x01"),
        name(b"nqn.\x7f"),
        name(b"nqn.\xff"),
    ] {
        assert_eq!(refused(0, 31, 256, &wrong), (0x182, 256 | DATA));
        assert_eq!(refused(0, 31, 512, &wrong), (0x182, 512 | DATA));
    }
    let mut host = initialized();
    let capsule = host.capsule(&connect_sqe(0, 31, 0), &{
        let mut data = connect_data(0);
        data[512..768].copy_from_slice(&name(&long[..223]));
        data
    });
    assert!(
        matches!(&host.send(&capsule).unwrap()[..], [Told::Connect(_)]),
        "223 bytes are allowed"
    );
}

/// The record format is zero; the data has 1024 bytes.
#[test]
fn formats_are_checked() {
    let mut host = initialized();
    let mut command = connect_sqe(0, 31, 0);
    command[40] = 1;
    host.send(&host.capsule(&command, &connect_data(0))).unwrap();
    assert_eq!(host.endings(), [(0, 0x180)]);
    let mut command = connect_sqe(0, 31, 0);
    command[32..36].copy_from_slice(&1020_u32.to_le_bytes());
    host.send(&host.capsule(&command, &connect_data(0)[..1020])).unwrap();
    assert_eq!(host.endings(), [(0, 0xf)]);
    let mut command = connect_sqe(0, 31, 0);
    command[1] = 0;
    host.send(&host.capsule(&command, &connect_data(0))).unwrap();
    assert_eq!(host.endings(), [(0, 0x02)]);
}

/// What the shell refuses has the status of the reason; the host may try again.
#[test]
fn the_shell_refuses() {
    let mut host = initialized();
    for (reason, status, value) in [
        (ConnectRefusal::Subsystem, 0x182, 256 | 1 << 16),
        (ConnectRefusal::Host, 0x184, 0),
        (ConnectRefusal::HostName, 0x182, 512 | 1 << 16),
        (ConnectRefusal::HostId, 0x182, 1 << 16),
        (ConnectRefusal::Controller, 0x182, 16 | 1 << 16),
        (ConnectRefusal::Busy, 0x181, 0),
        (ConnectRefusal::Sequence, 0x00c, 0),
    ] {
        host.send(&host.capsule(&connect_sqe(1, 15, 4), &connect_data(1))).unwrap();
        host.connection.refused(reason);
        let pdu = &host.pdus()[0];
        assert_eq!((pdu.status(), pdu.u32(8)), (status, value), "{reason:?}");
        let retry = reason == ConnectRefusal::Busy;
        assert_eq!(pdu.u16(22) >> 15 == 0, retry, "{reason:?}");
    }
    assert_eq!(host.connection.queue(), None);
}

/// Before Connect every other command is out of sequence, and there is little room for them.
#[test]
fn commands_come_after_connect() {
    let mut host = initialized();
    for command in [flush(1), disconnect(1), fabrics(0x04, 1, &[0, 0x14], Sgl::Transport(0))] {
        assert_eq!(host.send(&host.capsule(&command, &[])), Ok(vec![]));
        assert_eq!(host.endings(), [(1, 0xc)]);
    }
    let flood = host.capsule(&flush(1), &[]).repeat(9);
    assert!(host.send(&flood).is_err(), "its answers are not read");
}

/// Properties are for the admin queue, Disconnect for I/O queues; other Fabrics commands are unknown.
#[test]
fn fabrics_commands_have_their_queue() {
    let get = |attributes| fabrics(0x04, 3, &[attributes, 0x1c], Sgl::Transport(0));
    let mut admin = Host::admin();
    let told = admin.send(&admin.capsule(&get(0), &[])).unwrap();
    let [Told::Property { slot, offset: 0x1c }] = told[..] else { panic!("{told:?}") };
    admin.connection.respond(slot, Completion { dw0: 1, dw1: 2, ..Completion::SUCCESS });
    let pdu = &admin.pdus()[0];
    assert_eq!((pdu.u32(8), pdu.u32(12)), (1, 2));
    for (command, status) in
        [(get(2), 2), (disconnect(3), 1), (fabrics(0x05, 3, &[], Sgl::Transport(0)), 1)]
    {
        assert_eq!(admin.send(&admin.capsule(&command, &[])), Ok(vec![]));
        assert_eq!(admin.endings(), [(3, status)]);
    }
    let mut io = Host::io();
    assert_eq!(io.send(&io.capsule(&get(0), &[])), Ok(vec![]));
    assert_eq!(io.endings(), [(3, 1)]);
}
