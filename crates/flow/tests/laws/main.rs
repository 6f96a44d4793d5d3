//! What every policy of a stage must obey, one file per trait.
//!
//! Each law is run over the stage's whole list, so a policy that is added there is tested here
//! without another line. The driver is a seeded stream of operations and a model that knows what is
//! waiting and what is outstanding.

mod cache_evict;
mod cache_prefetch;
mod control;
mod dispatch;
mod path;
mod records;
mod transfer;

use slotmap::SlotMap;
use weir_flow::clock::{Duration, Instant};
use weir_flow::policy::{Choice, Policy, Unit};
use weir_flow::request::{LinkId, Op, Request, RequestKey, Tag, TenantId, VolumeId};
use weir_flow::rng::Rng;
use weir_flow::units::Extent;

/// Seeds per policy and law.
const SEEDS: u64 = 20;

/// Operations per seed.
const STEPS: u64 = 2_000;

/// A policy with every combination of its words and flags; the first is its default.
fn in_all_words<B>(list: &'static [Policy<B>], name: &str) -> Vec<Choice<B>> {
    let mut all = vec![Choice::named(list, name).expect("it is in the list")];
    for parameter in all[0].policy().parameters {
        if !matches!(parameter.unit, Unit::Flag | Unit::Word(_)) {
            continue;
        }
        let others = (parameter.min..=parameter.max).filter(|&value| value != parameter.default);
        let with = |value| {
            all.iter().cloned().map(move |mut choice| {
                choice.set(parameter.name, value).expect("it is in range");
                choice
            })
        };
        let more: Vec<_> = others.flat_map(with).collect();
        all.extend(more);
    }
    all
}

/// A policy with its defaults, and with each other word or flag in turn.
fn in_each_word<B>(list: &'static [Policy<B>], name: &str) -> Vec<Choice<B>> {
    let default = Choice::named(list, name).expect("it is in the list");
    let mut all = vec![default.clone()];
    for parameter in default.policy().parameters {
        if matches!(parameter.unit, Unit::Flag | Unit::Word(_)) {
            let values = parameter.min..=parameter.max;
            all.extend(values.filter(|&value| value != parameter.default).map(|value| {
                let mut choice = default.clone();
                choice.set(parameter.name, value).expect("it is in range");
                choice
            }));
        }
    }
    all
}

/// A source of requests with fresh keys, and a clock that runs forward by random steps.
struct Source {
    rng: Rng,
    keys: SlotMap<RequestKey, ()>,
    now: Instant,
    tag: u64,
}

impl Source {
    fn new(seed: u64, law: &str) -> Self {
        let keys = SlotMap::with_key();
        Self { rng: Rng::stream(seed, law), keys, now: Instant::ZERO, tag: 0 }
    }

    fn tick(&mut self) -> Instant {
        self.now += Duration::from_micros(self.rng.below(2_000));
        self.now
    }

    fn request(&mut self) -> (RequestKey, Request) {
        self.tag += 1;
        let request = Request {
            tag: Tag(self.tag),
            tenant: TenantId::new(self.rng.below(4) as u32),
            volume: VolumeId::new(0),
            link: LinkId::new(0),
            op: if self.rng.below(2) == 0 { Op::Read } else { Op::Write },
            extent: Extent::new(self.rng.below(1 << 30) * 512, (1 + self.rng.below(256)) * 512),
            fua: false,
            ordered: false,
            job: false,
        };
        (self.keys.insert(()), request)
    }
}
