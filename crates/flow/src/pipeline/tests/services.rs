//! Uses of resources, as the pipeline reports them to those who divide waits.

use super::*;
use crate::dispatch::Owner;
use crate::event::StorageIo;

/// Reads say whether they found the backend empty; a flush reports its begin and its end, also if its path is lost.
#[test]
fn uses_of_a_backend_are_told() {
    let config = Config { backends: vec![Backend::alike(1)], ..config() };
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let backend = BackendId::new(0);
    let read = |pipeline: &mut Pipeline<Seen>, now, tag| {
        let actions =
            step(pipeline, now, Input::Arrive(request(tag, Op::Read, tag * 4_096, 4_096)));
        ios(&actions)[0].key
    };
    let first = read(&mut pipeline, 100, 0);
    let second = read(&mut pipeline, 200, 1);
    step(&mut pipeline, 300, Input::Stored { key: first, outcome: Ok(()) });
    step(&mut pipeline, 400, Input::Stored { key: second, outcome: Ok(()) });
    let third = read(&mut pipeline, 500, 2);
    step(&mut pipeline, 550, Input::Stored { key: third, outcome: Ok(()) });
    let told = |seen: &Seen| {
        let of_backends = |service: &&Service| !matches!(service, Service::Control(..));
        seen.services.iter().filter(of_backends).copied().collect::<Vec<_>>()
    };
    let io = |nanos, alone| {
        let time = Duration::from_nanos(nanos);
        let io = StorageIo { op: Op::Read, length: 4_096, time, alone };
        Service::Storage(backend, Owner::Tenant(TenantId::new(0)), io)
    };
    let reads = [io(200, true), io(200, false), io(50, true)];
    assert_eq!(told(pipeline.observer()), reads);

    let actions = step(&mut pipeline, 600, Input::Arrive(request(3, Op::Flush, 0, 0)));
    let key = ios(&actions)[0].key;
    step(&mut pipeline, 700, Input::Stored { key, outcome: Err(IoError::PathFailed) });
    let flush = [Service::Flush(backend, true), Service::Flush(backend, false)];
    assert_eq!(told(pipeline.observer())[3..], flush);
}
