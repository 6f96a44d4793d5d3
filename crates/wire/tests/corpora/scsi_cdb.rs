//! A logical unit, and the commands that three initiators send to it.
//!
//! The first two bytes of an input choose the disk. Records follow, each of a byte that says who sends
//! the command and what the shell does before, a CDB of the length that its opcode asks for, a length
//! and as many bytes of parameter data, which are cut or filled with zeros to what the CDB announces.

use std::collections::BTreeSet;

use weir_wire::scsi::Sense;
use weir_wire::scsi::attention::UnitAttention;
use weir_wire::scsi::cdb::{Compare, Media, MediaOp};
use weir_wire::scsi::copy::{Plan, Progress, Side, State};
use weir_wire::scsi::disk::{DiskInfo, execute_absent};
use weir_wire::scsi::lba_status::lba_status;
use weir_wire::scsi::nexus::{Effects, Refusal, Registrant, RegistrantRef};
use weir_wire::scsi::reservation::Change;
use weir_wire::scsi::sanitize::{self, Fill, Method};
use weir_wire::scsi::sense::{SENSE_LENGTH_MAX, SenseKey};
use weir_wire::scsi::unit::{
    Action, COPIES_MAX, Outcome, PARAMETER_LIST_LENGTH_MAX, ParameterList, Unit,
};

use super::scsi_answers::{LBA_STATUS_MAX, check_answer, check_limits};
use super::scsi_model::{
    INITIATORS, Mode, PORT, Registered, Sanitizing, UNITS, Waiting, crowd, nexus, restarted,
};

/// Control byte: who sends the command; the fourth has no nexus.
const SENDER: u8 = 0x03;
/// Control byte: the parameter list arrives when the next command with one has been sent.
const LATE: u8 = 0x04;
/// Conditions that the shell raises by itself.
const CONDITIONS: [Sense; 5] = [
    Sense::CAPACITY_CHANGED,
    Sense::REPORTED_LUNS_CHANGED,
    Sense::NEXUS_LOSS,
    Sense::COMMANDS_CLEARED,
    Sense::BUS_DEVICE_RESET,
];

/// Looks at one input.
pub(crate) fn run(input: &[u8]) {
    let [options, more, records @ ..] = input else { return };
    let mut records = records;
    let mut bench = Bench::new(disk(*options, *more), more & 0x10 != 0);
    while let &[control, opcode, ..] = records {
        let (cdb, rest) = records[1..].split_at(cdb_length(opcode).min(records.len() - 1));
        let (&length, rest) = rest.split_first().unwrap_or((&0, &[]));
        let (list, rest) = rest.split_at(rest.len().min(usize::from(length)));
        records = rest;
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        bench.stir(control >> 3, list);
        match usize::from(control & SENDER) {
            INITIATORS => bench.stranger(&padded),
            sender => bench.command(sender, &padded, list, control & LATE != 0),
        }
        absent(&padded);
    }
    bench.deliver();
}

// SPC-4 section 4.3.4: the opcode's group code.
const fn cdb_length(opcode: u8) -> usize {
    match opcode >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    }
}

fn disk(options: u8, more: u8) -> DiskInfo {
    DiskInfo {
        blocks: [1, 2048, 1 << 33, u64::MAX >> 13][usize::from(options >> 1 & 3)],
        block_size: if options & 1 == 0 { 512 } else { 4096 },
        read_only: options & 0x08 != 0,
        thin: options & 0x10 != 0,
        write_cache: options & 0x20 != 0,
        max_transfer_blocks: if options & 0x40 == 0 { 0 } else { 256 },
        max_write_same_blocks: if options & 0x80 == 0 { 0 } else { 1 << 16 },
        removable: more & 0x01 != 0,
        sanitize: more & 0x02 != 0,
        max_atomic_blocks: if more & 0x04 == 0 { 0 } else { 64 },
        max_compare_and_write_blocks: if more & 0x08 == 0 { 200 } else { 0 },
        physical_block_exponent: more >> 5,
        ..DiskInfo::default()
    }
}

/// The answer to a command for a unit that is not there.
fn absent(cdb: &[u8; 16]) {
    match execute_absent(cdb, &UNITS) {
        Ok(Action::Data(data)) => check_answer(cdb, &data),
        Ok(other) => panic!("a unit that is not there did {other:?}"),
        Err(sense) => assert_eq!(sense.key, SenseKey::IllegalRequest),
    }
}

/// A parameter list that is on its way.
struct Late {
    sender: usize,
    cdb: [u8; 16],
    list: ParameterList,
    data: Vec<u8>,
}

/// The unit, and what is expected of it.
struct Bench {
    unit: Unit,
    attentions: [UnitAttention; INITIATORS],
    waiting: [Waiting; INITIATORS],
    late: Option<Late>,
    /// Who has it by RESERVE(6).
    reserved: Option<usize>,
    registered: Registered,
    mode: Mode,
    preventers: BTreeSet<usize>,
    sanitizing: Sanitizing,
    /// Copies of whom, by which identifier, and how far; oldest first.
    copies: Vec<(usize, u8, State)>,
    /// The last copy.
    copy: Option<(usize, Plan)>,
}

impl Bench {
    fn new(disk: DiskInfo, crowded: bool) -> Self {
        let mut unit = Unit::new(disk);
        if crowded {
            unit.install(crowd(126));
        }
        Self {
            attentions: [const { UnitAttention::new() }; INITIATORS],
            waiting: [Waiting::new(), Waiting::new(), Waiting::new()],
            late: None,
            reserved: None,
            registered: Registered::of(&unit, None),
            mode: Mode::of(&unit),
            preventers: BTreeSet::new(),
            sanitizing: Sanitizing::Idle,
            copies: Vec::new(),
            copy: None,
            unit,
        }
    }

    /// What happens beside commands: by the upper bits of a control byte.
    fn stir(&mut self, deed: u8, list: &[u8]) {
        let number = usize::from(list.first().copied().unwrap_or(0));
        let who = number % INITIATORS;
        match deed {
            1 => {
                self.unit.nexus_lost(&nexus(who));
                self.reserved.take_if(|holder| *holder == who);
                self.preventers.remove(&who);
                self.copies.retain(|copy| copy.0 != who);
                (self.attentions[who], self.waiting[who]) = (UnitAttention::new(), Waiting::new());
            }
            2 => {
                self.unit.reset();
                (self.reserved, self.preventers) = (None, BTreeSet::new());
                self.copies.clear();
                self.raise(None, Sense::BUS_DEVICE_RESET);
                self.mode = Mode::of(&self.unit);
                let expected = self.unit.disk().write_cache;
                assert_eq!(
                    (self.mode.write_cache, self.mode.descriptor_sense, self.mode.write_protect),
                    (expected, false, false)
                );
            }
            // A loss of power, as far as reservations go.
            3 => {
                // A reservation by RESERVE(6) is no part of what is installed, and ends with its nexus.
                if let Some(holder) = self.reserved.take() {
                    self.unit.nexus_lost(&nexus(holder));
                    self.preventers.remove(&holder);
                    self.copies.retain(|copy| copy.0 != holder);
                }
                self.unit.install(restarted(self.unit.reservations()));
                self.look();
            }
            4 => {
                self.unit.resize(1 << (number % 40));
                self.raise(None, Sense::CAPACITY_CHANGED);
            }
            5 => self.unit.sanitize_progress(number as u16 * 256),
            6 | 7 => {
                if let Sanitizing::Running(ause) = self.sanitizing {
                    self.unit.sanitize_ended(deed == 6);
                    self.sanitizing =
                        if deed == 6 { Sanitizing::Idle } else { Sanitizing::Failed(ause) };
                }
            }
            8 => self.raise(None, CONDITIONS[number % CONDITIONS.len()]),
            9 => self.progress(State::Done),
            10 => self.progress(State::Failed(Sense::UNREACHABLE_COPY_TARGET.in_segment(1))),
            11 => self.deliver(),
            _ => {}
        }
        let has_failed = matches!(self.sanitizing, Sanitizing::Failed(_));
        assert_eq!(self.unit.sanitize_failed(), has_failed);
        let ready = self.unit.ready();
        assert!(self.sanitizing == Sanitizing::Idle || ready.is_err());
        assert!(ready.is_ok() || self.unit.disk().removable || self.unit.disk().sanitize);
    }

    /// A condition for everybody, or for everybody but one.
    fn raise(&mut self, but: Option<usize>, sense: Sense) {
        for who in (0..INITIATORS).filter(|who| but != Some(*who)) {
            self.attentions[who].raise(sense);
            self.waiting[who].raise(sense);
        }
    }

    fn look(&mut self) {
        self.registered = Registered::of(&self.unit, self.reserved);
    }

    /// A user without a nexus accesses the medium.
    fn stranger(&mut self, cdb: &[u8; 16]) {
        let ops = [
            MediaOp::Read,
            MediaOp::Write,
            MediaOp::WriteVerify(Compare::Blocks),
            MediaOp::WriteAtomic,
            MediaOp::OrWrite,
            MediaOp::CompareAndWrite,
            MediaOp::WriteSame { unmap: cdb[1] & 1 != 0, no_data: cdb[1] & 2 != 0 },
            MediaOp::Verify(Compare::OneBlock),
            MediaOp::Synchronize { immediate: false },
            MediaOp::Unmap { list_length: 24 },
        ];
        let number = |at: usize| u64::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
        // Near the beginning or the end of the disk.
        let start = if cdb[1] & 4 == 0 { 0 } else { self.unit.disk().blocks };
        let lba = if cdb[1] & 8 == 0 { start + number(2) } else { start.wrapping_sub(number(2)) };
        let op = ops[usize::from(cdb[0]) % ops.len()];
        let media = Media { op, lba, blocks: number(4), fua: false, dpo: false };
        let before = self.unit.ready();
        match self.unit.admit(None, media) {
            Ok(media) => self.check_media(None, &media, before, &[]),
            Err(refusal) => self.check_refusal(None, 0, refusal, None),
        }
    }

    fn command(&mut self, sender: usize, cdb: &[u8; 16], list: &[u8], is_late: bool) {
        let me = nexus(sender);
        let before = self.unit.ready();
        let passes = matches!(cdb[0], 0x03 | 0x12 | 0xa0);
        let due = if passes { None } else { self.waiting[sender].take() };
        let result = self.unit.execute(&me, &PORT, &mut self.attentions[sender], cdb);
        if let Some(due) = due {
            // SAM-5 section 5.14.
            assert_eq!(result, Err(Refusal::Check(due)));
            return;
        }
        let action = match result {
            Err(refusal) => return self.check_refusal(Some(sender), cdb[0], refusal, None),
            Ok(action) => action,
        };
        assert!(self.sanitizing.lets(cdb[0], cdb[1] & 0x1f), "{action:?} during a sanitize");
        // RESERVE(6) lets nothing of others pass but what asks who is there.
        let others = self.reserved.is_some_and(|holder| holder != sender);
        let harmless = matches!(cdb[0], 0x03 | 0x12 | 0x17 | 0x1b | 0x1e | 0x25 | 0xa0)
            || matches!((cdb[0], cdb[1] & 0x1f), (0x9e, 0x10) | (0xa3, 0x0a));
        assert!(!others || harmless, "{action:?} of another's unit");
        match action {
            Action::Data(data) => self.check_data(sender, cdb, &data, before),
            Action::Done(effects) => self.done(sender, cdb, &effects),
            Action::Media(media) => {
                let disk = self.unit.disk();
                let is_there = match media.op {
                    MediaOp::Unmap { .. } => disk.thin,
                    MediaOp::WriteAtomic => disk.max_atomic_blocks > 0,
                    MediaOp::CompareAndWrite => disk.max_compare_and_write_blocks > 0,
                    _ => true,
                };
                assert!(is_there, "{media:?} of a disk that has no such command");
                self.check_media(Some(sender), &media, before, list);
            }
            Action::Parameters(announced) => {
                assert!((1..=PARAMETER_LIST_LENGTH_MAX).contains(&announced.length()));
                assert_eq!(announced.changes_reservations(), cdb[0] == 0x5f);
                let mut data = list.to_vec();
                data.resize(announced.length() as usize, 0);
                self.deliver();
                self.late = Some(Late { sender, cdb: *cdb, list: announced, data });
                if !is_late {
                    self.deliver();
                }
            }
            Action::Map { lba, blocks, allocation } => {
                let disk = self.unit.disk();
                assert!(disk.thin && blocks > 0 && lba + blocks == disk.blocks);
                let half = blocks / 2;
                let extents = [(half, true), (1, false), (blocks - half, list.is_empty())];
                let data = lba_status(lba, &extents, allocation);
                assert!(data.len() <= allocation as usize && data.len() <= LBA_STATUS_MAX);
            }
            Action::Sanitize(plan) => self.sanitize(&plan),
        }
    }

    /// Hands the parameter list over that is on its way.
    fn deliver(&mut self) {
        let Some(Late { sender, cdb, list, data }) = self.late.take() else { return };
        let me = nexus(sender);
        let short = self.unit.parameters(&me, list, &data[1..]);
        assert_eq!(short, Err(Refusal::Check(Sense::PARAMETER_LIST_LENGTH_ERROR)));
        let outcome = match self.unit.parameters(&me, list, &data) {
            Ok(outcome) => outcome,
            Err(refusal) => {
                return self.check_refusal(Some(sender), cdb[0], refusal, Some(data.len()));
            }
        };
        assert!(self.sanitizing.lets(cdb[0], cdb[1] & 0x1f), "{outcome:?} during a sanitize");
        assert!(self.reserved.is_none_or(|holder| holder == sender), "{outcome:?}");
        assert!(cdb[0] == 0x5f || self.registered.permits(Some(sender), true), "{outcome:?}");
        match outcome {
            Outcome::Done(effects) => {
                let mode = Mode::of(&self.unit);
                let told = effects.others == Some(Sense::MODE_PARAMETERS_CHANGED);
                assert_eq!(mode != self.mode, told, "others hear of changed mode parameters");
                self.mode = mode;
                self.apply(sender, &effects);
            }
            Outcome::Reserve(change) => self.reserve(sender, &cdb, &data, change),
            Outcome::Copy(plan) => self.check_copy(sender, plan),
            Outcome::Sanitize(plan) => self.sanitize(&plan),
        }
    }

    fn done(&mut self, sender: usize, cdb: &[u8; 16], effects: &Effects) {
        match cdb[0] {
            // RESERVE(6) and RELEASE(6) do nothing to those who share a persistent reservation.
            0x16 if self.registered.is_empty() => self.reserved = Some(sender),
            0x17 => {
                self.reserved.take_if(|holder| *holder == sender);
            }
            0x1e if cdb[4] & 1 == 1 => {
                self.preventers.insert(sender);
            }
            0x1e => {
                self.preventers.remove(&sender);
            }
            0x1b => self.check_eject(cdb),
            // EXIT FAILURE MODE.
            0x48 => {
                assert_ne!(self.sanitizing, Sanitizing::Failed(false), "it was not allowed");
                self.sanitizing = Sanitizing::Idle;
            }
            _ => {}
        }
        self.apply(sender, effects);
    }

    /// No initiator ejects a medium whose removal another prevents.
    fn check_eject(&self, cdb: &[u8; 16]) {
        let ejects = self.unit.disk().removable && cdb[4] & 0xf3 == 0x02;
        assert!(!ejects || self.preventers.is_empty());
        assert!(!ejects || self.unit.ready() == Err(Sense::MEDIUM_NOT_PRESENT));
    }

    fn apply(&mut self, sender: usize, effects: &Effects) {
        for (whose, sense) in &effects.attentions {
            if let Some(who) = (0..INITIATORS).find(|&who| Registrant::Scsi(nexus(who)) == *whose) {
                assert_ne!(who, sender, "the sender knows");
                self.attentions[who].raise(*sense);
                self.waiting[who].raise(*sense);
            }
        }
        if let Some(sense) = effects.others {
            self.raise(Some(sender), sense);
        }
    }

    /// PERSISTENT RESERVE OUT.
    fn reserve(&mut self, sender: usize, cdb: &[u8; 16], data: &[u8], change: Change) {
        let now = self.unit.reservations();
        assert_eq!(change.save, change.next.encode() != now.encode(), "what survives is saved");
        let me = Registrant::Scsi(nexus(sender));
        let concerned = change.effects.attentions.iter().map(|(whose, _)| whose);
        for whose in concerned.chain(&change.effects.aborts) {
            assert!(
                *whose != me && now.registrants().any(|one| one == whose.borrowed()),
                "{whose:?}"
            );
        }
        restarted(&change.next);
        self.unit.install(change.next);
        self.look();
        let holds = self.registered.find(sender);
        match cdb[1] & 0x1f {
            // REGISTER, with a key or without.
            0 | 6 => assert_eq!(holds.is_some(), data[8..16] != [0; 8]),
            1 => assert_eq!((holds, self.registered.kind), (Some(true), cdb[2] & 0x0f)),
            2 => assert!(holds.is_some()),
            3 => assert!(self.registered.is_empty() && self.registered.kind == 0),
            // REGISTER AND MOVE.
            7 => assert_ne!(holds, Some(true)),
            _ => {}
        }
        self.apply(sender, &change.effects);
    }

    fn sanitize(&mut self, plan: &sanitize::Plan) {
        let disk = self.unit.disk();
        assert!(disk.sanitize && !disk.read_only && !self.mode.write_protect);
        assert!(!(plan.ause && self.sanitizing == Sanitizing::Failed(false)), "restricted once");
        assert!((1..=31).contains(&plan.method.passes()));
        for pass in 0..plan.method.passes() {
            match (plan.method.pass(pass, disk.block_size), &plan.method) {
                (Fill::Unmap, Method::BlockErase) => assert!(disk.thin),
                (Fill::Block(block), Method::Overwrite { pattern, passes, .. }) => {
                    assert_eq!(block.len(), disk.block_size as usize);
                    assert!(pass + 1 < *passes || block.starts_with(pattern));
                }
                (fill, method) => panic!("{method:?} leaves {fill:?}"),
            }
        }
        self.unit.sanitize_begun(plan.ause);
        self.sanitizing = Sanitizing::Running(plan.ause);
    }

    /// EXTENDED COPY: every segment stays on its disks.
    fn check_copy(&mut self, sender: usize, plan: Plan) {
        let own = self.unit.disk();
        let block_size = if own.block_size == 512 { 4096 } else { 512 };
        let other = DiskInfo { id: 1, blocks: 100, block_size, ..DiskInfo::default() };
        let disks = [&other, own];
        for number in 0..plan.segments.len() {
            let step = match plan.resolve(number, 1, &disks) {
                Ok(step) => step,
                Err(sense) => {
                    assert_eq!(sense.key, SenseKey::CopyAborted);
                    assert_eq!(sense.segment, Some(number as u16));
                    continue;
                }
            };
            let (read, written) = (disks[step.source], disks[step.destination]);
            assert!(!written.read_only);
            for (extent, disk) in [(step.from, read), (step.to, written)] {
                let end = extent.lba.checked_add(extent.blocks.into());
                assert!(end.is_some_and(|end| end <= disk.blocks));
            }
            let bytes =
                |blocks: u32, disk: &DiskInfo| u64::from(blocks) * u64::from(disk.block_size);
            assert_eq!(bytes(step.from.blocks, read), bytes(step.to.blocks, written));
            let overlaps = step.source == step.destination
                && step.from.lba < step.to.lba
                && step.to.lba - step.from.lba < step.from.blocks.into();
            assert_eq!(step.from_the_end(), overlaps);
            for side in [Side::Source, Side::Destination] {
                let sense = plan.failed(&step, side, 1);
                assert_eq!(sense.segment, Some(number as u16));
            }
        }
        let same = |copy: &(usize, u8, State)| copy.0 == sender && copy.1 == plan.list_id;
        let under_way = self.copies.iter().find(|copy| same(copy));
        let under_way = under_way.is_some_and(|copy| copy.2 == State::InProgress);
        assert!(!(plan.tracked && under_way), "two copies by one name");
        self.copy = Some((sender, plan));
        self.progress(State::InProgress);
    }

    /// The last copy has come so far.
    fn progress(&mut self, state: State) {
        let Some((sender, plan)) = &self.copy else { return };
        let progress = Progress { state, segments: 1, bytes: u64::MAX };
        self.unit.copy_progressed(&nexus(*sender), plan, progress);
        if plan.tracked {
            self.copies.retain(|copy| (copy.0, copy.1) != (*sender, plan.list_id));
            if self.copies.len() == COPIES_MAX {
                self.copies.remove(0);
            }
            self.copies.push((*sender, plan.list_id, state));
        }
    }

    fn check_data(
        &mut self,
        sender: usize,
        cdb: &[u8; 16],
        data: &[u8],
        before: Result<(), Sense>,
    ) {
        check_answer(cdb, data);
        match cdb[0] {
            0x03 => {
                // SPC-4 section 6.39: pending sense data, or else that of the next command.
                let sense = self.waiting[sender].take().or(before.err());
                let sense = sense.unwrap_or(Sense::NO_SENSE);
                let (bytes, length) = sense.descriptor();
                let fixed = sense.fixed();
                let due = if cdb[1] & 1 == 1 { &bytes[..length] } else { &fixed[..] };
                assert_eq!(*data, due[..due.len().min(cdb[4].into())]);
            }
            0xa0 => self.waiting[sender].luns_reported(),
            // RECEIVE COPY STATUS.
            0x84 if cdb[1].trailing_zeros() >= 5 => {
                let copy = self.copies.iter().find(|copy| (copy.0, copy.1) == (sender, cdb[2]));
                let told = match copy.expect("a copy of this initiator").2 {
                    State::InProgress => 0,
                    State::Done => 1,
                    State::Failed(_) => 2,
                };
                assert!(data.get(4).is_none_or(|&state| state == told));
            }
            _ => {}
        }
    }

    /// Whatever reaches the medium lies on the disk and within its limits, and its sender may.
    fn check_media(
        &self,
        sender: Option<usize>,
        media: &Media,
        before: Result<(), Sense>,
        list: &[u8],
    ) {
        let disk = self.unit.disk();
        assert_eq!(before, Ok(()), "{media:?} without a medium");
        assert!(media.lba.checked_add(media.blocks).is_some_and(|end| end <= disk.blocks));
        let writes = media.is_write();
        assert!(!writes || !disk.read_only && !self.mode.write_protect);
        assert!(!writes || self.mode.write_cache || media.fua, "a write that could be lost");
        let flushes = matches!(media.op, MediaOp::Synchronize { .. });
        assert!(self.reserved.is_none_or(|holder| sender == Some(holder)), "{media:?}");
        assert!(self.registered.permits(sender, writes || flushes), "{media:?}");
        if self.unit.ready().is_err() {
            // The flush before an eject; nothing else takes the medium away.
            assert!(flushes && self.preventers.is_empty() && disk.removable);
        } else {
            let me = sender.map(nexus);
            assert_eq!(
                self.unit.admit(me.as_ref().map(RegistrantRef::Scsi), *media),
                Ok(*media),
                "what passed passes"
            );
        }
        check_limits(disk, media, list);
    }

    /// A refusal has a reason. `list` is the length of the parameter list that was refused.
    fn check_refusal(
        &self,
        sender: Option<usize>,
        opcode: u8,
        refusal: Refusal,
        list: Option<usize>,
    ) {
        let disk = self.unit.disk();
        let sense = match refusal {
            Refusal::Check(sense) => sense,
            Refusal::Conflict => {
                let others = self.reserved.is_some() && self.reserved != sender;
                // PERSISTENT RESERVE OUT conflicts with wrong keys and with any RESERVE(6), and while
                // an initiator is registered RESERVE(6) and RELEASE(6) do.
                let registered = match opcode {
                    0x5f => true,
                    0x16 | 0x17 => !self.registered.is_empty(),
                    _ => !self.registered.permits(sender, true),
                };
                assert!(others || registered, "a conflict with no registration");
                return;
            }
        };
        match sense.key {
            SenseKey::IllegalRequest => {}
            SenseKey::DataProtect => assert!(disk.read_only || self.mode.write_protect),
            SenseKey::NotReady | SenseKey::MediumError => {
                // During a sanitize even what can do without a medium is refused, with its progress.
                assert_eq!(self.unit.ready(), Err(sense));
                assert_eq!(
                    sense.progress.is_some(),
                    matches!(self.sanitizing, Sanitizing::Running(_))
                );
            }
            other => panic!("a command was refused with {other:?}"),
        }
        let (bytes, length) = sense.encoded();
        assert!(length <= SENSE_LENGTH_MAX && length == 8 + usize::from(bytes[7]));
        let format = if self.mode.descriptor_sense { 0x72 } else { 0x70 };
        assert_eq!(bytes[0] & 0x7f, format, "the format that was asked for");
        if let Some(field) = sense.field {
            let end = if field.in_cdb { 15 } else { list.expect("a list that can be at fault") };
            assert!(usize::from(field.byte) <= end, "{sense:?}");
        }
    }
}
