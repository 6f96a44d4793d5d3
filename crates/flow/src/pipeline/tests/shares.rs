//! Weights, from the configuration and while it runs.

use super::*;
use crate::dispatch::{Background, HostNumber, Member, Owner, POLICIES, Shares, Substream, Weight};
use crate::request::TenantId;

fn weights(tenants: &[u32], jobs: u32) -> Shares {
    let weight = |&parts: &u32| Weight::from_1024ths(parts).unwrap();
    let background = Background { jobs: weight(&jobs), ..Background::default() };
    Shares { tenants: tenants.iter().map(weight).collect(), background }
}

/// Tenants 0 and 1 and the jobs of tenant 1 always have reads waiting; the device takes 1 ms for each. How many
/// of that number each gets.
fn served(pipeline: &mut Pipeline<Seen>, now: &mut u64, count: u32) -> [u32; 3] {
    let mut served = [0; 3];
    let next = |pipeline: &mut Pipeline<Seen>, now: u64, kind: u64| {
        let read = request(kind, Op::Read, 0, 4_096);
        let tenant = TenantId::new(kind.min(1) as u32);
        step(pipeline, now, Input::Arrive(Request { tenant, job: kind == 2, ..read }))
    };
    if pipeline.outstanding() == 0 {
        for kind in 0..24 {
            next(pipeline, *now, kind % 3);
        }
    }
    let at_store = |key: &RequestKey| pipeline.requests[*key].stage == StageName::Storage;
    let mut at_store: Vec<_> = pipeline.requests.keys().filter(at_store).collect();
    for _ in 0..count {
        *now += 1_000_000;
        let key = at_store.remove(0);
        let actions = step(pipeline, *now, Input::Stored { key, outcome: Ok(()) });
        at_store.extend(ios(&actions).iter().map(|io| io.key));
        let Tag(kind) = replies(&actions)[0].1;
        let sent = sent(&actions);
        at_store.extend(ios(&step(pipeline, *now, sent)).iter().map(|io| io.key));
        served[kind as usize] += 1;
        at_store.extend(ios(&next(pipeline, *now, kind)).iter().map(|io| io.key));
    }
    served
}

/// The weights of the configuration hold from the beginning, others from when they are set; a job has a share
/// apart from that of its tenant. The status has the weights and what each has had.
#[test]
fn weights_divide_a_backend() {
    let mut config = Config { backends: vec![Backend::alike(1)], ..config() };
    config.shares = weights(&[4_096, 2_048], 1_024);
    config.policies.dispatch = Choice::named(POLICIES, "fog").unwrap();
    for (name, value) in [("depth", 1), ("servers", 1)] {
        config.policies.dispatch.set(name, value).unwrap();
    }
    let (mut pipeline, mut now) = (Pipeline::new(&config, Seen::default()), 0);
    let near = |served: [u32; 3], due: [u32; 3]| {
        assert!(served.iter().zip(due).all(|(&got, due)| got.abs_diff(due) <= 2), "{served:?}");
    };
    near(served(&mut pipeline, &mut now, 700), [400, 200, 100]);
    let shares = weights(&[1_024], 3_072);
    step(&mut pipeline, now, Input::SetWeights(alloc::sync::Arc::new(shares)));
    near(served(&mut pipeline, &mut now, 500), [100, 100, 300]);
    let seen: Vec<_> = pipeline.streams(at(now)).collect();
    let tenant = |id| Owner::Tenant(TenantId::new(id));
    let of = |owner| *seen.iter().find(|view| view.owner == owner).unwrap();
    assert_eq!(of(Owner::Job).weight.as_1024ths(), 3_072);
    assert_eq!(of(tenant(1)).weight, Weight::ONE, "one that is not named any more");
    let millis = [tenant(0), tenant(1), Owner::Job].map(|owner| of(owner).service.as_nanos());
    near(millis.map(|nanos| (nanos / 1_000_000) as u32), [500, 300, 400]);
    assert_eq!(pipeline.backends().map(|view| (view.outstanding, view.depth)).last(), Some((1, 1)));
}

/// The links of a host are one stream, and so are the requests for a volume, whichever link they come over: three
/// queues of a host get what one of another gets.
#[test]
fn hosts_and_volumes_divide_what_their_tenant_has() {
    let one = config().volumes[0].clone();
    let links = [0, 1, 2, 3].map(LinkId::new);
    let hosts = links.map(|link| Member::Host(link, HostNumber(u32::from(link == links[3]))));
    let volumes = [0, 1].map(|id| Member::Volume(VolumeId::new(id)));
    for members in [&hosts[..], &volumes[..]] {
        let mut config = Config { backends: vec![Backend::alike(1)], ..config() };
        config.volumes = vec![one.clone(), one.clone()];
        config.policies.dispatch = Choice::named(POLICIES, "fog").unwrap();
        for (name, value) in [("depth", 1), ("servers", 1)] {
            config.policies.dispatch.set(name, value).unwrap();
        }
        let mut pipeline = Pipeline::new(&config, Seen::default());
        for &member in members {
            step(&mut pipeline, 0, Input::Substream(member, Some(Weight::ONE)));
        }
        let mut at_store = Vec::new();
        for tag in 0..240 {
            let place = tag as usize % 4;
            let volume = VolumeId::new(u32::from(place == 3));
            let read = Request { link: links[place], volume, ..request(tag, Op::Read, 0, 4_096) };
            let actions = step(&mut pipeline, 0, Input::Arrive(read));
            at_store.extend(ios(&actions).iter().map(|io| io.key));
        }
        let mut served = [0_u32; 2];
        for now in 1..=60 {
            let key = at_store.remove(0);
            let stored = Input::Stored { key, outcome: Ok(()) };
            let actions = step(&mut pipeline, now * 1_000_000, stored);
            at_store.extend(ios(&actions).iter().map(|io| io.key));
            let Tag(tag) = replies(&actions)[0].1;
            served[usize::from(tag % 4 == 3)] += 1;
            let actions = step(&mut pipeline, now * 1_000_000, sent(&actions));
            at_store.extend(ios(&actions).iter().map(|io| io.key));
        }
        assert!(served[0].abs_diff(served[1]) <= 4, "{members:?}: {served:?}");
        assert_eq!(pipeline.substreams(at(60_000_000)).count(), 2);
    }
}

/// The links of one tenant are streams after `Input::Substream`: what each has had of the device follows the weights, and
/// the view has it. After the end of a queue it is not in the view.
#[test]
fn queues_divide_what_their_tenant_has() {
    let mut config = Config { backends: vec![Backend::alike(1)], ..config() };
    config.policies.dispatch = Choice::named(POLICIES, "fog").unwrap();
    for (name, value) in [("depth", 1), ("servers", 1)] {
        config.policies.dispatch.set(name, value).unwrap();
    }
    let mut pipeline = Pipeline::new(&config, Seen::default());
    let links = [LinkId::new(0), LinkId::new(1)];
    for (link, parts) in links.into_iter().zip([3_072, 1_024]) {
        step(&mut pipeline, 0, Input::Substream(Member::Link(link), Weight::from_1024ths(parts)));
    }
    let mut at_store = Vec::new();
    for tag in 0..120 {
        let link = links[tag as usize % 2];
        let read = Request { link, ..request(tag, Op::Read, 0, 4_096) };
        at_store.extend(ios(&step(&mut pipeline, 0, Input::Arrive(read))).iter().map(|io| io.key));
    }
    let (mut now, mut served) = (0, [0_u32; 2]);
    for _ in 0..60 {
        now += 1_000_000;
        let key = at_store.remove(0);
        let actions = step(&mut pipeline, now, Input::Stored { key, outcome: Ok(()) });
        at_store.extend(ios(&actions).iter().map(|io| io.key));
        let Tag(tag) = replies(&actions)[0].1;
        served[tag as usize % 2] += 1;
        at_store.extend(ios(&step(&mut pipeline, now, sent(&actions))).iter().map(|io| io.key));
    }
    assert!(served[0].abs_diff(45) <= 2, "{served:?}");
    let told: Vec<_> = pipeline.substreams(at(now)).collect();
    let streams = links.map(Substream::Link);
    assert_eq!(told.iter().map(|queue| queue.stream).collect::<Vec<_>>(), streams);
    for (queue, served) in told.iter().zip(served) {
        assert_eq!(queue.service, Duration::from_millis(served.into()), "{queue:?}");
    }
    step(&mut pipeline, now, Input::Substream(Member::Link(links[0]), None));
    let told: Vec<_> = pipeline.substreams(at(now)).map(|queue| queue.stream).collect();
    assert_eq!(told, streams[1..]);
}
