//! The generated workload of a seed: settings, hosts and their requests.

mod copy;
mod provoke;
mod stores;

pub(super) use copy::{Between, Copy, Place};
use std::fmt;
use std::ops::Range;
pub(super) use stores::Stores;
use weir_flow::cache::writeback::{Mode, Order, Settings, Sync};
use weir_flow::clock::Duration;
use weir_flow::rng::Rng;
use weir_flow::settings::Settings as _;

/// A workload, from its seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) settings: Settings,
    /// Sectors of the volume.
    pub(super) sectors: u32,
    /// What hosts do until each crash, and at last until the end.
    pub(super) lives: Vec<Vec<Ask>>,
    /// Requests that hosts have outstanding.
    pub(super) depth: usize,
    /// Hosts; the first ones never flush.
    pub(super) silent: u64,
    /// Percentage of failing I/Os of the log device.
    pub(super) local_faults: u64,
    /// After the first of them it works no more.
    pub(super) dies: bool,
    /// The same of the upstream, because the link breaks.
    pub(super) upstream_faults: u64,
    /// Steps of a thousand in which the upstream loses its cache.
    pub(super) resets: u64,
    /// Sectors of a line of the read buffer.
    pub(super) line: u32,
    /// Policies of the cache.
    pub(super) evict: &'static str,
    pub(super) prefetch: &'static str,
    /// Paths to the upstream, and what chooses among them.
    pub(super) paths: u32,
    pub(super) selector: &'static str,
    /// A write whose session is lost may be executed at any moment until the target has ended the session; otherwise
    /// it ends with the session.
    pub(super) late: bool,
    /// Steps that a path is away in the mean.
    pub(super) outage: u64,
    /// The unit is claimed in each life before a path is used, and writes of earlier lives may be executed until then.
    pub(super) fence: bool,
    /// Each life has other settings.
    pub(super) changes: bool,
    /// The settings of the life before.
    pub(super) before: Option<Settings>,
    /// Sectors of the log device rot.
    pub(super) rot: bool,
    /// Percentage of writes of write-back for which the upstream has no space for now.
    pub(super) full: u64,
    /// Each life has another machine, so that its sessions do not end those of earlier ones.
    pub(super) moves: bool,
    /// Steps of a thousand in which another gateway takes over.
    pub(super) rivals: u64,
    /// The target is restarted under another gateway, and forgets its reservations.
    pub(super) forgets: bool,
    /// Steps of a thousand in which the unit is reset, and loses its cache, while all sessions stay.
    pub(super) unit_resets: u64,
    /// Steps of a thousand in which the unit loses writes, and says so with a deferred error.
    pub(super) deferred: u64,
    /// Hosts update in steps.
    pub(super) updates: bool,
    /// Steps of a thousand in which payload of the log rots.
    pub(super) decay: u64,
    /// One of this number of answers to hosts is a crash point: workloads with large batches have many answers.
    pub(super) sparse: u64,
    /// Sectors of a piece of a copy; 0 if hosts have nothing copied.
    pub(super) copies: u32,
    /// A power cut may leave a part of a sector of the log device.
    pub(super) tears: bool,
    /// The stores that the volume is on.
    pub(super) stores: Stores,
}

/// What a host asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) host: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Read(Range<u32>),
    Write {
        sectors: Range<u32>,
        fua: bool,
    },
    Zero(Range<u32>),
    Unmap(Range<u32>),
    Update(Range<u32>, Update),
    /// EXTENDED COPY.
    Copy(Copy),
    Flush,
    /// The operator turns write-back off, or on.
    Drain(bool),
}

/// A command that reads and writes, or that writes all or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// WRITE AND VERIFY.
    Verify,
    /// COMPARE AND WRITE with what is there.
    Compare,
    /// COMPARE AND WRITE with what was never there.
    Differ,
    /// ORWRITE.
    Or,
    /// WRITE ATOMIC.
    Atomic,
}

impl Update {
    const fn name(self) -> &'static str {
        match self {
            Self::Verify => "write-and-verify",
            Self::Compare => "compare-and-write",
            Self::Differ => "compare-and-write (differs)",
            Self::Or => "orwrite",
            Self::Atomic => "write-atomic",
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, what } = self;
        let (name, sectors, fua) = match what {
            What::Flush => return write!(f, "host {host}: flush"),
            What::Copy(copy) => return write!(f, "host {host}: {copy}"),
            What::Drain(on) => {
                let what = if *on { "drain" } else { "resume" };
                return write!(f, "operator: volume {what}");
            }
            What::Read(sectors) => ("read", sectors, ""),
            What::Write { sectors, fua } => ("write", sectors, if *fua { " with FUA" } else { "" }),
            What::Zero(sectors) => ("zeroes", sectors, ""),
            What::Unmap(sectors) => ("unmap", sectors, ""),
            What::Update(sectors, update) => (update.name(), sectors, ""),
        };
        write!(f, "host {host}: {name} {}..{}{fua}", sectors.start, sectors.end)
    }
}

impl Plan {
    /// The plan of a seed: with updates, copies, large batches, payload that rots, logs that are cleaned, torn sectors, and
    /// volumes of several stores.
    pub(super) fn new(seed: u64) -> Self {
        Self::on_one_store(seed, true).on_stores()
    }

    /// As it was drawn before there were logs that are cleaned.
    #[cfg(test)]
    pub(super) fn without_cleaning(seed: u64) -> Self {
        Self::on_one_store(seed, false).on_stores()
    }

    /// A plan of the class in which logs are cleaned, however the others are drawn.
    #[cfg(test)]
    pub(super) fn with_cleaning(seed: u64) -> Self {
        let mut plan = Self::crossing(seed);
        plan.overwrites();
        plan
    }

    /// Perhaps on several stores.
    fn on_stores(mut self) -> Self {
        let mut rng = Rng::stream(self.seed, "crash/spread");
        if self.sparse == 1 && rng.below(4) == 0 {
            self.spread();
        }
        self
    }

    /// The same on one store; with `cleans` it may be a log that is cleaned.
    fn on_one_store(seed: u64, cleans: bool) -> Self {
        let mut plan = Self::crossing(seed);
        let mut rng = Rng::stream(seed, "crash/contents");
        let mut one = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        plan.updates = one(&[0, 1]) == 1;
        let records = one(&[0, 0, 0, 0, 0, 0, 9, 20]);
        let largest = one(&[0, 0, 0, 0, 0, 0, 0, 1]) == 1;
        match records {
            0 => {}
            _ if largest => plan.enlarge(256),
            _ => plan.enlarge(records as u32),
        }
        if plan.updates {
            plan.update();
        }
        plan.forgets = plan.rivals > 0 && one(&[0, 1]) == 1;
        if one(&[0, 0, 0, 1]) == 1 {
            plan.decays(3);
        }
        if cleans && one(&[0, 0, 0, 0, 0, 1]) == 1 && plan.sparse == 1 {
            plan.overwrites();
            return plan;
        }
        let mut rng = Rng::stream(seed, "crash/copies and tears");
        if plan.sparse == 1 && rng.below(3) == 0 {
            plan.copy();
        }
        plan.tears = rng.below(3) == 0;
        plan
    }

    /// A plain plan, and what may befall it beyond one path and one gateway.
    pub(super) fn crossing(seed: u64) -> Self {
        let mut plan = Self::plain(seed);
        let mut rng = Rng::stream(seed, "crash/classes");
        let mut one = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        plan.paths = one(&[1, 1, 2, 2, 3]) as u32;
        plan.selector = ["jsw", "round-robin", "roung"][one(&[0, 1, 2]) as usize];
        plan.late = one(&[0, 1]) == 1;
        if plan.late {
            plan.upstream_faults = one(&[0, 5, 10]);
            plan.outage = one(&[4, 20, 60]);
            plan.fence = one(&[0, 1, 1]) == 1;
        }
        if plan.fence {
            plan.moves = one(&[0, 1]) == 1;
            plan.rivals = one(&[0, 0, 5, 10]);
        }
        plan.changes = one(&[0, 1]) == 1;
        plan.rot = one(&[0, 1]) == 1;
        plan.full = one(&[0, 0, 10]);
        plan.unit_resets = one(&[0, 0, 10]);
        plan.deferred = one(&[0, 0, 10]);
        plan
    }

    /// Payload of the log rots, and nothing else does.
    pub(super) fn decays(&mut self, decay: u64) {
        (self.decay, self.rot, self.local_faults) = (decay, false, 0);
        (self.fence, self.rivals) = (false, 0);
    }

    /// Batches of many records, of one block each, and enough of them that places on the log device are used again.
    fn enlarge(&mut self, records: u32) {
        let mut rng = Rng::stream(self.seed, "crash/large");
        let settings = &mut self.settings;
        settings.block = 512;
        (settings.batch_records, settings.batch_bytes) = (records, records * 512);
        let room = weir_flow::cache::writeback::format::batch_most(
            settings.batch_bytes,
            settings.batch_records,
        );
        settings.segment = 4096 + room;
        settings.capacity = 8192 + settings.segment * 3;
        settings.merge = 64 * 512;
        settings.epoch_bytes = 512 * u64::from(records) * (1 + rng.below(2));
        (self.depth, self.sparse) = (2 * records as usize, u64::from(records));
        self.sectors = (4 * records).max(64);
        (self.changes, self.silent) = (false, 0);
        // An epoch of hundreds of writes is written again after each of these.
        (self.full, self.upstream_faults) = (self.full.min(1), self.upstream_faults.min(1));
        let rounds = if records > 20 { 3 } else { 6 };
        for life in &mut self.lives {
            let count = u64::from(records) * (rounds + rng.below(rounds));
            *life = (0..count)
                .map(|_| {
                    let first = rng.below(u64::from(self.sectors)) as u32;
                    let sectors = first..first + 1;
                    let what = match rng.below(4 * u64::from(records)) {
                        0 => What::Flush,
                        1 => What::Read(sectors),
                        _ => What::Write { sectors, fua: false },
                    };
                    Ask { host: 0, what }
                })
                .collect();
        }
        self.lives.truncate(2);
    }

    /// Some of what hosts write they write by updates.
    fn update(&mut self) {
        let mut rng = Rng::stream(self.seed, "crash/updates");
        // Atomic writes are for files and devices, which have one path.
        let atomic = self.paths == 1 && !self.late;
        let large = self.sparse > 1;
        for ask in self.lives.iter_mut().flatten() {
            let What::Write { sectors, .. } = &ask.what else { continue };
            if rng.below(if large { 40 } else { 4 }) > 0 {
                continue;
            }
            let update = match rng.below(if atomic { 9 } else { 5 }) {
                0 | 1 => Update::Compare,
                2 => Update::Differ,
                3 => Update::Verify,
                4 => Update::Or,
                _ => Update::Atomic,
            };
            ask.what = What::Update(sectors.clone(), update);
        }
    }

    /// Updates are among what hosts ask for.
    pub(super) fn updating(&mut self) {
        if !std::mem::replace(&mut self.updates, true) {
            self.update();
        }
    }

    /// The plan of a life: the sizes of the log stay, other settings may not.
    pub(super) fn of_life(&self, life: usize) -> Self {
        let mut plan = self.clone();
        if !self.changes || life == 0 {
            return plan;
        }
        plan.before = Some(self.of_life(life - 1).settings);
        let mut rng = Rng::stream(self.seed, &format!("crash/settings/{life}"));
        let mut one = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        let block = u64::from(self.settings.block);
        let settings = Settings {
            mode: [Mode::Log, Mode::Ram][one(&[0, 0, 1]) as usize],
            sync: [Sync::Local, Sync::Upstream][one(&[0, 0, 1]) as usize],
            order: [Order::Auto, Order::Strict, Order::Flush][one(&[0, 1, 2]) as usize],
            batch_bytes: (block * one(&[1, 2, 4, 8])) as u32,
            batch_records: one(&[2, 3, 8]) as u32,
            epoch_bytes: block * one(&[2, 8, 32, 1000]),
            depth: one(&[1, 2, 4]) as u32,
            merge: block * one(&[1, 4, 64]),
            ..self.settings
        };
        if settings.validate().is_ok() {
            plan.settings = settings;
        }
        plan.line = one(&[1, 8]) as u32;
        plan
    }

    /// The plan of a seed with one path: small numbers, so that everything meets everything.
    pub(super) fn plain(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "crash/plan");
        let mut one = |of: &[u64]| of[rng.below(of.len() as u64) as usize];
        let block = one(&[512, 512, 512, 4096]);
        let batch = block * one(&[1, 2, 4, 8]);
        let (mode, sync) = (one(&[0, 0, 1]), one(&[0, 0, 1]));
        let order = one(&[0, 0, 2, 1]);
        let base = Settings {
            volume: (u128::from(seed) << 64 | 7).to_be_bytes(),
            block: block as u32,
            mode: if mode == 0 { Mode::Log } else { Mode::Ram },
            sync: if sync == 0 { Sync::Local } else { Sync::Upstream },
            order: [Order::Auto, Order::Strict, Order::Flush][order as usize],
            batch_bytes: batch as u32,
            batch_records: one(&[2, 3, 8]) as u32,
            epoch_bytes: block * one(&[2, 8, 32, 1000]),
            epoch_age: Duration::from_millis(one(&[20, 1000])),
            depth: one(&[1, 2, 4]) as u32,
            merge: block * one(&[1, 4, 64]),
            upstream_flush: one(&[0, 1, 1, 1]) == 1,
            earn: false,
            ..Settings::default()
        };
        // A page for its header, and a batch or a few.
        let room =
            weir_flow::cache::writeback::format::batch_most(base.batch_bytes, base.batch_records);
        let segment = 4096 + room * one(&[1, 2, 4]);
        let settings = Settings { segment, capacity: 8192 + segment * one(&[3, 3, 4, 6]), ..base };
        let sectors = one(&[24, 64]) as u32;
        let mut plan = Self {
            seed,
            settings,
            sectors,
            lives: Vec::new(),
            depth: one(&[1, 2, 4, 8]) as usize,
            silent: one(&[0, 0, 1]),
            local_faults: one(&[0, 0, 0, 2]),
            dies: one(&[0, 0, 1]) == 1,
            upstream_faults: one(&[0, 0, 5]),
            resets: one(&[0, 0, 10]),
            line: one(&[1, 8]) as u32,
            evict: ["fifo", "s3-fifo"][one(&[0, 1]) as usize],
            prefetch: ["off", "next-block", "adaptive"][one(&[0, 1, 2]) as usize],
            paths: 1,
            selector: "jsw",
            late: false,
            outage: 4,
            changes: false,
            before: None,
            rot: false,
            full: 0,
            fence: false,
            moves: false,
            rivals: 0,
            forgets: false,
            unit_resets: 0,
            deferred: 0,
            updates: false,
            decay: 0,
            sparse: 1,
            copies: 0,
            tears: false,
            stores: Stores::One,
        };
        let (lives, hosts) = (1 + one(&[1, 2, 3]), 1 + one(&[0, 1, 2]));
        for _ in 0..lives {
            let count = 4 + rng.below(22);
            plan.lives.push((0..count).map(|_| plan.ask(hosts, &mut rng)).collect());
        }
        plan
    }

    /// The name of its log.
    pub(super) fn name(&self) -> [u8; 16] {
        (u128::from(self.seed) << 64 | 9).to_be_bytes()
    }

    /// How many requests it has.
    pub(super) fn requests(&self) -> usize {
        self.lives.iter().map(Vec::len).sum()
    }

    /// Its settings in words.
    pub(super) fn told(&self) -> String {
        let settings = &self.settings;
        format!(
            "{} sectors in blocks of {}; mode {:?}, sync {:?}, order {:?}; {} segments of {} bytes, batches of {} bytes or {} \
             records; epochs of {} bytes, {} write-backs of {} bytes at once; {} paths to the upstream, of {} stores, which {}",
            self.sectors,
            settings.block,
            settings.mode,
            settings.sync,
            settings.order,
            settings.segments(),
            settings.segment,
            settings.batch_bytes,
            settings.batch_records,
            settings.epoch_bytes,
            settings.depth,
            settings.merge,
            self.paths,
            self.stores.count(),
            if settings.upstream_flush { "has a cache" } else { "has none" }
        )
    }

    fn ask(&self, hosts: u64, rng: &mut Rng) -> Ask {
        let host = rng.below(hosts);
        let flushes = host >= self.silent;
        let block = self.settings.block / 512;
        let blocks = u64::from(self.sectors / block);
        // Half of what is done is done to a quarter of the volume.
        let reach = if rng.below(2) == 0 { (blocks / 4).max(1) } else { blocks };
        let first = rng.below(reach);
        let most = match rng.below(8) {
            0 => blocks - first,
            _ => (blocks - first).min(4),
        };
        let count = 1 + rng.below(most);
        let sectors = first as u32 * block..(first + count) as u32 * block;
        let what = match rng.below(100) {
            0..15 if flushes => What::Flush,
            0..30 => What::Read(sectors),
            30..38 => What::Zero(sectors),
            38..46 => What::Unmap(sectors),
            46..49 => What::Drain(rng.below(2) == 0),
            draw => What::Write { sectors, fua: flushes && draw >= 92 },
        };
        Ask { host, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every plan can be run as it is, and together they have every mode, every kind of request and every
    /// kind of trouble.
    #[test]
    fn plans_are_sound_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let plan = Plan::new(seed);
            assert_eq!(plan.settings.validate(), Ok(()), "{seed}");
            assert!(plan.lives.len() > 1);
            let settings = &plan.settings;
            seen.insert(format!("{:?}", (settings.mode, settings.sync)));
            seen.insert(format!("{:?}", (settings.order, settings.upstream_flush)));
            seen.insert(format!("{:?}", (plan.local_faults > 0, plan.resets > 0)));
            for ask in plan.lives.iter().flatten() {
                seen.insert(ask.to_string().split(' ').nth(2).unwrap().to_owned());
                if let What::Write { sectors, fua } = &ask.what {
                    seen.insert(format!("fua {fua}, silent {}", ask.host < plan.silent));
                    assert!(sectors.start < sectors.end && sectors.end <= plan.sectors);
                    let block = settings.block / 512;
                    assert!(sectors.start % block == 0 && sectors.end % block == 0);
                }
            }
        }
        // 4 + 6 + 4 settings, 10 kinds of requests, 2 orders, and writes with FUA are never of a silent host.
        assert_eq!(seen.len(), 4 + 6 + 4 + 10 + 2 + 3, "{seen:?}");
    }
}
