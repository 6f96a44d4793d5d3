//! Uses of resources, as the pipeline reports them to those who divide waits.

use super::*;
use crate::attribution::{Attribution, Contributor, Part};
use crate::dispatch::Owner;
use crate::event::StorageIo;

/// Divides the waits of each request as it ends.
#[derive(Default)]
struct Explained {
    attribution: Attribution,
    stories: Vec<Vec<Part>>,
}

impl Observer for Explained {
    fn event(&mut self, now: Instant, event: Event<'_>) {
        if let Event::Completed(completed) = &event {
            self.stories.push(self.attribution.explain(now, completed));
        }
        self.attribution.event(now, event);
    }

    fn service(&mut self, now: Instant, service: Service) {
        self.attribution.service(now, service);
    }
}

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

/// The time at the device of a request that was cut is that of the piece that ended last. The device alone takes for it what it
/// takes for an I/O of that piece's length; the other pieces are other requests of the same tenant.
#[test]
fn a_cut_request_has_the_device_time_of_its_last_piece() {
    const MILLI: u64 = 1_000_000;
    let mut pipeline = Pipeline::new(&config(), Explained::default());
    let length = config().volumes[0].max_transfer;
    // Reads a number of pieces; the milliseconds after which they end.
    let mut read = |begin: u64, ends: &[u64]| {
        let whole = request(begin, Op::Read, 0, length * ends.len() as u64);
        let pieces = ios(&step(&mut pipeline, begin * MILLI, Input::Arrive(whole)));
        assert_eq!(pieces.len(), ends.len());
        for (piece, end) in pieces.iter().zip(ends) {
            let (now, stored) = ((begin + end) * MILLI, Ok(()));
            let told = step(&mut pipeline, now, Input::Stored { key: piece.key, outcome: stored });
            if !parts(&told).is_empty() {
                step(&mut pipeline, now, sent(&told));
            }
        }
        let story = pipeline.observer().stories.last().expect("it has ended");
        let millis = |part: &Part| (part.time.as_nanos() + MILLI / 2) / MILLI;
        let part = |part: &Part| (part.stage, part.contributor, millis(part));
        story.iter().map(part).collect::<Vec<_>>()
    };
    let storage = |contributor, millis| (StageName::Storage, contributor, millis);
    assert_eq!(read(1, &[2]), [storage(Contributor::Device, 2)]);
    let cut = [storage(Contributor::Unknown, 5), storage(Contributor::Device, 2)];
    assert_eq!(read(10, &[3, 4, 7]), cut);
    let again = [storage(Contributor::Own, 5), storage(Contributor::Device, 2)];
    assert_eq!(read(20, &[3, 4, 7]), again);
}
