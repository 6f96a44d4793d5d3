//! From the gate into a batch: admission, places for records, the bytes of the head.

use super::effect::{DRAIN, Effect, FULL, Kind, LocalId, Memory, Origin, Part, Write};
use super::format::{Batch, Descriptor, PAGE, RecordKind, SECTOR, Size, encode_batch};
use super::log::{Log, Pending, Record};
use super::settings::{Mode, Sync};
use super::space::Space;
use crate::clock::Instant;
use crate::policy::Rule;
use alloc::vec::Vec;

/// A record that is not durable, with what is needed to write it again.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    descriptor: Descriptor,
    /// Where its payload is, if it has any.
    pub(super) memory: Option<Memory>,
}

/// Where a batch goes.
#[derive(Clone, Copy, Debug)]
struct Place {
    room: u64,
    /// A segment is begun for it.
    opens: bool,
}

/// Why a batch got no place.
enum NoPlace {
    /// Something else has to be durable before.
    Sync,
    /// There is no room.
    Full,
}

impl Log {
    /// Makes the next batch, if there is one: what must be written again, or else what the gate lets
    /// through. The second is true if there was nothing to do but to wait for the first.
    pub(super) fn compose(&mut self, now: Instant) -> Option<Write> {
        if self.written + 1 < self.next {
            return self.compose_again();
        }
        let first = self.next;
        let mut acks = Vec::new();
        let place = self.admit(now, &mut acks)?;
        let write = self.hand_out(first, place);
        for pending in acks {
            // The effect that takes the payload comes first.
            self.landing_or_commit(pending);
        }
        Some(write)
    }

    /// A batch of a note alone, if there is room for it without need.
    pub(super) fn compose_note(&mut self, now: Instant) -> Option<Write> {
        let room = self.space.room();
        if room < PAGE || self.written + 1 < self.next {
            return None;
        }
        let first = self.next;
        self.append(now, RecordKind::Note, Given::control(0, 0), None);
        Some(self.hand_out(first, Place { room, opens: false }))
    }

    /// Writes again what was in a batch that failed.
    fn compose_again(&mut self) -> Option<Write> {
        let first = self.written + 1;
        let skip = (first - self.first_fresh()) as usize;
        let next = Size::default().with(self.fresh[skip].descriptor.payload.into());
        let place = self.place(next, true).ok()?;
        Some(self.hand_out(first, place))
    }

    /// Sequence number of the first of `fresh`.
    fn first_fresh(&self) -> u64 {
        self.next - self.fresh.len() as u64
    }

    /// Finds room for a batch of this size.
    fn place(&mut self, size: Size, need: bool) -> Result<Place, NoPlace> {
        let room = self.space.room();
        if size.bytes() <= room {
            return Ok(Place { room, opens: false });
        }
        if !self.space.can_open(need) {
            return Err(NoPlace::Full);
        }
        // The header of the next segment seals this one: what it has must be durable.
        if self.unsynced.is_some() {
            return Err(NoPlace::Sync);
        }
        Ok(Place { room: self.settings.segment - PAGE, opens: true })
    }

    /// Takes from the gate what fits into one batch.
    fn admit(&mut self, now: Instant, acks: &mut Vec<Pending>) -> Option<Place> {
        let fill = self.fill();
        let (mut size, mut place) = (Size::default(), None);
        while let Some(first) = self.gate.queue.front() {
            let (event, kind) = (first.event, first.kind);
            let held =
                if self.admits(first.done > 0) { self.gate.holds(now, fill) } else { Some(DRAIN) };
            if let Some(rule) = held {
                self.hold(rule);
                break;
            }
            self.epochs.turn(Some(event));
            let cut = self.epochs.cut();
            let owner = self.owner_logged < self.settings.owner;
            let mut before = size;
            for _ in 0..u8::from(cut.is_some()) + u8::from(owner) {
                before = before.with(0);
            }
            let block = u64::from(self.settings.block);
            let left = first.extent.length - first.done;
            let most = match kind {
                Kind::Write => u64::from(self.settings.batch_bytes),
                Kind::Zero | Kind::Unmap => u64::from(u32::MAX) * block,
            };
            let mut take = left.min(most);
            let payload = |take| if kind == Kind::Write { take } else { 0 };
            let with = before.with(payload(take));
            let room = match place {
                Some(Place { room, .. }) => room,
                None => match self.place(with, false) {
                    Ok(found) => {
                        place = Some(found);
                        found.room
                    }
                    Err(NoPlace::Sync) => {
                        self.sync_due = true;
                        break;
                    }
                    Err(NoPlace::Full) => self.space.room(),
                },
            };
            if with.bytes() > room
                || with.payload > u64::from(self.settings.batch_bytes)
                || with.records > u64::from(self.settings.batch_records)
            {
                if place.is_some() {
                    break;
                }
                // A piece goes into what is left; a write larger than the free log must not hang.
                let spare = room.saturating_sub(before.with(0).bytes().max(PAGE));
                take = take.min(spare / block * block);
                if payload(take) == 0 || before.with(take).bytes() > room {
                    self.hold(FULL);
                    break;
                }
                place = Some(Place { room, opens: false });
            }
            if owner {
                self.owner_logged = self.settings.owner;
                self.append(now, RecordKind::Owner, Given::control(self.settings.owner, 0), None);
            }
            if let Some(reason) = cut {
                self.epochs.cut_written(now, self.next);
                self.append(now, RecordKind::Epoch, Given::control(0, reason.code()), None);
            }
            self.admit_first(now, take, acks);
            size = before.with(payload(take));
            self.gate.took(now, fill, payload(take) + SECTOR);
        }
        place.filter(|_| size.records > 0)
    }

    /// Appends so many bytes of the first at the gate, and lets it in if that was the last of it.
    pub(super) fn admit_first(&mut self, now: Instant, take: u64, acks: &mut Vec<Pending>) {
        let first = self.gate.queue.front_mut().expect("somebody asks for a part of it");
        let (extent, done, key) = (first.extent, first.done, first.key);
        first.done += take;
        let more = first.done < extent.length;
        let given = Given {
            start: extent.offset + done,
            length: take,
            lba: (extent.offset + done) / u64::from(self.settings.block),
            blocks: (take / u64::from(self.settings.block)) as u32,
            flags: if first.fua { Descriptor::FLAG_FUA } else { 0 }
                | if more { Descriptor::FLAG_MORE } else { 0 },
            who: first.who,
        };
        let (kind, memory) = match first.kind {
            Kind::Write => (RecordKind::Write, Some(Memory::Request(key, done))),
            Kind::Zero => (RecordKind::Zero, None),
            Kind::Unmap => (RecordKind::Unmap, None),
        };
        let seq = self.append(now, kind, given, memory);
        if !more {
            let first = self.gate.queue.pop_front().expect("it is there");
            acks.push(Pending {
                last: seq,
                key,
                flush: first.fua,
                held: first.held,
                arrived: first.arrived,
                admitted: now,
            });
        }
    }

    /// Gives a record its number, and enters it into the index and its epoch.
    fn append(
        &mut self,
        now: Instant,
        kind: RecordKind,
        given: Given,
        memory: Option<Memory>,
    ) -> u64 {
        let seq = self.next;
        self.next += 1;
        let payload = if kind == RecordKind::Write { given.length } else { 0 };
        let descriptor = Descriptor {
            kind,
            flags: given.flags,
            tenant: given.who.tenant.index() as u32,
            lba: given.lba,
            blocks: given.blocks,
            payload_at: 0,
            payload: payload as u32,
            sums_at: 0,
            initiator: given.who.initiator,
            time: given.who.time,
        };
        self.fresh.push_back(Fresh { descriptor, memory });
        self.records.push_back(Record { kind, start: given.start, payload, at: 0, sums: 0 });
        if kind.is_data() {
            let range = (given.start, given.start + given.length);
            let (records, base) = (&self.records, self.base);
            let mut collapsed = 0;
            self.epochs.add(now, seq, range, payload, |held| {
                if records[(held.seq - base) as usize].kind == RecordKind::Write {
                    collapsed += held.end - held.start;
                }
            });
            self.counters.dirty += payload;
            self.counters.dirty -= collapsed;
            self.counters.collapsed += collapsed;
            self.counters.logged += payload;
            self.counters.records += 1;
            self.index.insert(range.0, range.1, seq, |_| ());
        }
        seq
    }

    /// Encodes the records from `first` on as one batch, as many as it may hold, and gives them their
    /// places on the device.
    fn hand_out(&mut self, first: u64, place: Place) -> Write {
        let skip = (first - self.first_fresh()) as usize;
        let (mut size, mut descriptors) = (Size::default(), Vec::new());
        for fresh in self.fresh.range(skip..) {
            let with = size.with(fresh.descriptor.payload.into());
            if with.bytes() > place.room
                || with.records > u64::from(self.settings.batch_records)
                || with.payload > u64::from(self.settings.batch_bytes)
            {
                break;
            }
            size = with;
            descriptors.push(fresh.descriptor);
        }
        let io = self.local_id();
        let mut head = Vec::new();
        let mut at = None;
        if place.opens {
            let (place, mut segment) = self.space.open(self.id, self.owner_logged, first);
            (segment.durable, segment.applied) = (self.durable, self.applied);
            (head, self.chain) = segment.encode();
            at = Some(place);
        }
        let open = self.space.head().expect("there is a segment to write to");
        let base = Space::at(open.slot, self.settings.segment) + open.length;
        let mut batch = Batch {
            bytes: 0,
            records: 0,
            first,
            segment: open.number,
            owner: self.owner_logged,
            chain: self.chain,
            durable: self.durable,
            applied: self.applied,
        };
        let (bytes, sum, table) = encode_batch(self.id, &mut batch, &mut descriptors);
        self.chain = sum;
        let before = head.len() as u64;
        head.extend(bytes);
        let mut payload = Vec::new();
        for (i, descriptor) in descriptors.iter().enumerate() {
            let record = &mut self.records[(first - self.base) as usize + i];
            record.at = base + u64::from(descriptor.payload_at);
            record.sums = base + u64::from(descriptor.sums_at);
            if let Some(from) = self.fresh[skip + i].memory {
                payload.push(Part { from, length: descriptor.payload.into() });
            }
        }
        if self.settings.mode == Mode::Ram {
            self.keep(io, before, skip, &descriptors);
        }
        let open = self.space.head_mut().expect("as before");
        open.length += u64::from(batch.bytes);
        open.last = batch.last();
        self.written = batch.last();
        self.counters.batches += 1;
        Write {
            io,
            at: at.unwrap_or(base),
            bytes: before + u64::from(batch.bytes),
            sums_at: before as u32 + table,
            head,
            payload,
        }
    }

    /// From now on the payload of these records is in the bytes of this write: the requests are
    /// acknowledged before they are durable.
    fn keep(&mut self, io: LocalId, before: u64, skip: usize, descriptors: &[Descriptor]) {
        let mut kept = 0;
        for (i, descriptor) in descriptors.iter().enumerate() {
            let memory = &mut self.fresh[skip + i].memory;
            let Some(old) = *memory else { continue };
            *memory = Some(Memory::Batch(io, before + u64::from(descriptor.payload_at)));
            kept += 1;
            if let Memory::Batch(old, _) = old {
                self.let_go.push(old);
            }
        }
        if kept > 0 {
            self.buffers.insert(io, kept);
        }
    }

    /// One record less needs the bytes of this write.
    pub(super) fn forget(&mut self, io: LocalId) {
        let count = self.buffers.get_mut(&io).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            self.buffers.remove(&io);
            self.effects.push_back(Effect::Release(io));
        }
    }

    /// A request is in the log: it waits for durability, or for the upstream, or for nothing more.
    fn landing_or_commit(&mut self, pending: Pending) {
        let upstream = pending.flush && self.settings.sync == Sync::Upstream;
        if upstream || self.defers() {
            self.landing.push_back(pending);
        } else if self.settings.mode == Mode::Log || pending.flush {
            self.committing.push_back(pending);
        } else {
            self.at_once.push(pending);
        }
    }

    /// The first at the gate is held, and by what.
    fn hold(&mut self, rule: Rule) {
        if let Some(first) = self.gate.queue.front_mut() {
            first.held = Some(rule);
        }
    }
}

/// What a record is about.
#[derive(Clone, Copy, Debug)]
struct Given {
    start: u64,
    length: u64,
    lba: u64,
    blocks: u32,
    flags: u8,
    who: Origin,
}

impl Given {
    fn control(lba: u64, blocks: u32) -> Self {
        Self { start: 0, length: 0, lba, blocks, flags: 0, who: Origin::default() }
    }
}
