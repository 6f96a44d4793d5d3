//! A logical unit: a disk and its state towards each initiator (SPC-4, SBC-3).

mod medium;
mod parameters;
mod sanitizing;

pub use parameters::{Outcome, PARAMETER_LIST_LENGTH_MAX, ParameterList};

use std::collections::VecDeque;

use super::attention::UnitAttention;
use super::cdb::{self, Cdb, Media};
use super::commands::Needs;
use super::copy;
use super::disk::{DiskInfo, Port, cut, encoded};
use super::lba_status::lba_status;
use super::mode::{self, ModeParameters};
use super::nexus::{Access, Effects, HostId, Nexus, Refusal, RegistrantRef};
use super::reservation::{Change, HostOut, Reservations};
use super::sanitize;
use super::sense::Sense;
use super::{capacity, defects, inquiry, log, luns, opcodes, ports, vpd};
use medium::Medium;
use parameters::Kind;
use sanitizing::Sanitizing;

/// Most outcomes of third-party copies that a unit remembers. The oldest is dropped, and RECEIVE COPY RESULTS no
/// longer finds it.
pub const COPIES_MAX: usize = 32;

/// The next step of a valid command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer GOOD with this data, which is already cut to the room that the initiator has for it.
    Data(Vec<u8>),
    /// Apply the effects, then answer GOOD.
    Done(Effects),
    /// Do this with the medium. It lies within the disk and its limits.
    Media(Media),
    /// Fetch this parameter list and hand it to [`Unit::parameters`].
    Parameters(ParameterList),
    /// Find out which of these blocks are mapped, as far as
    /// [`DESCRIPTORS_MAX`](super::lba_status::DESCRIPTORS_MAX) extents go, and answer GOOD with what
    /// [`lba_status`] makes of it.
    Map {
        /// First logical block.
        lba: u64,
        /// Number of logical blocks: all to the end of the disk.
        blocks: u64,
        /// Room for the answer, in bytes.
        allocation: u32,
    },
    /// Begin a sanitize operation, see [`Unit::sanitize_begun`].
    Sanitize(sanitize::Plan),
}

impl Action {
    /// No effects on other nexuses.
    fn done() -> Self {
        Self::Done(Effects::default())
    }
}

/// A logical unit.
#[derive(Clone, Debug)]
pub struct Unit {
    disk: DiskInfo,
    reservations: Reservations,
    mode: ModeParameters,
    medium: Medium,
    sanitizing: Sanitizing,
    /// The medium is permanently unavailable.
    withdrawn: bool,
    /// Progress of copies by nexus and list identifier; oldest first.
    copies: VecDeque<(Nexus, u8, copy::Progress)>,
}

impl Unit {
    /// A unit in its initial state.
    pub fn new(disk: DiskInfo) -> Self {
        Self {
            reservations: Reservations::default(),
            mode: ModeParameters::defaults(&disk),
            medium: Medium::default(),
            sanitizing: Sanitizing::default(),
            withdrawn: false,
            copies: VecDeque::new(),
            disk,
        }
    }

    /// The disk that it is.
    pub const fn disk(&self) -> &DiskInfo {
        &self.disk
    }

    /// Gives the disk another number of blocks. The shell raises
    /// [`CAPACITY_CHANGED`](Sense::CAPACITY_CHANGED) for every nexus.
    pub const fn resize(&mut self, blocks: u64) {
        self.disk.blocks = blocks;
    }

    /// Registrations and reservations.
    pub const fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Puts reservations in force: those of [`Outcome::Reserve`] once they are saved, or saved ones
    /// after a restart. A reservation by RESERVE(6) is none of them: it stays as it is.
    pub fn install(&mut self, next: Reservations) {
        self.reservations = next.beside(&self.reservations);
    }

    /// Reads a CDB and does what can be done without the medium and without a parameter list.
    ///
    /// Checked in this order: unit attentions, the CDB, reservations, a sanitize operation, whether
    /// there is a medium, write protection, and the range of blocks.
    pub fn execute(
        &mut self,
        nexus: &Nexus,
        port: &Port<'_>,
        attention: &mut UnitAttention,
        cdb: &[u8; 16],
    ) -> Result<Action, Refusal> {
        let result = self.perform(nexus, port, attention, cdb);
        result.map_err(|refusal| self.worded_refusal(refusal))
    }

    /// The checks of [`execute`](Self::execute) for an operation that comes in another way: from an NVMe host, from a
    /// third-party copy for its initiator, or from NBD, where hosts cannot register: a reservation that excludes those that
    /// are not registered refuses that.
    pub fn admit(&self, who: Option<RegistrantRef<'_>>, media: Media) -> Result<Media, Refusal> {
        let admitted = self
            .permit(who, media.access(), Needs::Medium)
            .and_then(|()| self.check(media).map_err(Refusal::from));
        admitted.map_err(|refusal| self.worded_refusal(refusal))
    }

    /// Continues a command whose parameter list is here. `data` is exactly as long as the list
    /// was announced.
    pub fn parameters(
        &mut self,
        nexus: &Nexus,
        list: ParameterList,
        data: &[u8],
    ) -> Result<Outcome, Refusal> {
        let result = self.take_list(nexus, list, data);
        result.map_err(|refusal| self.worded_refusal(refusal))
    }

    /// A reservation command of an NVMe host; see [`Outcome::Reserve`] for what to do with the change. `keys`: the current
    /// key, then the new or the preempted one. `can_persist`: there is a place to keep what must outlive a loss of power.
    pub fn reserve_for_host(
        &self,
        host: &HostId,
        out: HostOut,
        keys: [u64; 2],
        can_persist: bool,
    ) -> Result<Change, Refusal> {
        self.permit(Some(RegistrantRef::Nvme(host)), Access::Free, Needs::Unit)?;
        self.reservations.host_out(host, out, keys, can_persist)
    }

    /// Sense data in the format that initiators have chosen for the unit.
    pub const fn worded(&self, sense: Sense) -> Sense {
        sense.in_descriptors(self.mode.descriptor_sense)
    }

    /// A nexus is gone, and with it what is only its own: a reservation by RESERVE(6), the
    /// prevention of removal, and the outcomes of its copies.
    pub fn nexus_lost(&mut self, nexus: &Nexus) {
        self.reservations.nexus_lost(nexus);
        self.medium.allow_removal(nexus);
        self.copies.retain(|(owner, ..)| owner != nexus);
    }

    /// Logical unit reset: ends a reservation by RESERVE(6) and the prevention of removal, loads the
    /// medium, sets the mode parameters back and forgets the outcomes of copies. A sanitize
    /// operation continues (SBC-4 section 4.11).
    pub fn reset(&mut self) {
        self.reservations.reset();
        self.medium = Medium::default();
        self.mode = ModeParameters::defaults(&self.disk);
        self.copies.clear();
    }

    /// The sanitize operation that was handed out last has begun.
    /// `unrestricted`: after a failure, EXIT FAILURE MODE is enough.
    pub const fn sanitize_begun(&mut self, unrestricted: bool) {
        self.sanitizing.begun(unrestricted);
    }

    /// Whether a sanitize has failed: the unit is unusable until another one succeeds, or EXIT FAILURE MODE ends the
    /// failure mode.
    pub fn sanitize_failed(&self) -> bool {
        self.sanitizing.has_failed()
    }

    /// Why nothing can be done with the medium now, for operations that were admitted before.
    pub fn ready(&self) -> Result<(), Sense> {
        self.obstacle(Needs::Medium).map_or(Ok(()), |sense| Err(self.worded(sense)))
    }

    /// Makes the medium permanently unavailable through this target: commands get
    /// [`UNAVAILABLE`](Sense::UNAVAILABLE), so that a host uses another path.
    pub const fn withdraw(&mut self) {
        self.withdrawn = true;
    }

    /// Whether the medium is permanently unavailable, see [`withdraw`](Self::withdraw).
    pub const fn is_withdrawn(&self) -> bool {
        self.withdrawn
    }

    /// Its progress, in 65536ths.
    pub const fn sanitize_progress(&mut self, done: u16) {
        self.sanitizing.progress(done);
    }

    /// The sanitize has ended, with or without success. After a failure the medium is inaccessible until another one
    /// succeeds, or until EXIT FAILURE MODE if that is allowed.
    pub const fn sanitize_ended(&mut self, ok: bool) {
        self.sanitizing.ended(ok);
    }

    /// Stores the progress of a third-party copy for RECEIVE COPY RESULTS, and replaces that of a copy of the same
    /// initiator with the same list identifier. At most [`COPIES_MAX`] are stored.
    pub fn copy_progressed(&mut self, nexus: &Nexus, plan: &copy::Plan, progress: copy::Progress) {
        if !plan.tracked {
            return;
        }
        self.copies.retain(|(owner, id, _)| owner != nexus || *id != plan.list_id);
        if self.copies.len() == COPIES_MAX {
            self.copies.pop_front();
        }
        self.copies.push_back((nexus.clone(), plan.list_id, progress));
    }

    fn perform(
        &mut self,
        nexus: &Nexus,
        port: &Port<'_>,
        attention: &mut UnitAttention,
        cdb: &[u8; 16],
    ) -> Result<Action, Refusal> {
        if let Some(sense) = attention.intercept(cdb[0]) {
            return Err(sense.into());
        }
        let disk = &self.disk;
        let (supported, command) = cdb::decode(cdb, disk.features())?;
        let (access, needs) = (command.access(supported.access), supported.needs);
        self.permit(Some(RegistrantRef::Scsi(nexus)), access, needs)?;
        let list = |kind, length| ParameterList::announce(kind, length, access, needs);
        let (data, allocation) = match command {
            Cdb::TestUnitReady => return Ok(Action::done()),
            Cdb::Media(media) => return Ok(Action::Media(self.check(media)?)),
            Cdb::StartStop(command) => return Ok(self.start_stop(command)?),
            Cdb::PreventRemoval(prevent) => {
                if prevent {
                    self.medium.prevent_removal(nexus);
                } else {
                    self.medium.allow_removal(nexus);
                }
                return Ok(Action::done());
            }
            Cdb::Reserve => return self.reservations.reserve(nexus).map(|()| Action::done()),
            Cdb::Release => return self.reservations.release(nexus).map(|()| Action::done()),
            Cdb::PersistentOut(out) => {
                return Ok(list(Kind::PersistentOut(out), out.list_length)?);
            }
            Cdb::ModeSelect { is_long, length } => {
                return Ok(list(Kind::ModeSelect { is_long }, length)?);
            }
            Cdb::ExtendedCopy { length } => return Ok(list(Kind::ExtendedCopy, length)?),
            Cdb::Sanitize => return Ok(self.sanitize(cdb, access, needs)?),
            Cdb::PreFetch { lba, blocks } => {
                // There is no cache of this unit to fetch into, and so nothing to promise by CONDITION
                // MET.
                disk.check_range(lba, blocks)?;
                return Ok(Action::done());
            }
            Cdb::GetLbaStatus { lba, allocation } => {
                disk.check_range(lba, 1)?;
                let blocks = disk.blocks - lba;
                if disk.thin {
                    return Ok(Action::Map { lba, blocks, allocation });
                }
                (lba_status(lba, &[(blocks, true)], allocation), allocation)
            }
            Cdb::RequestSense { descriptor, allocation } => {
                // SPC-4 section 6.39: a unit attention is reported as data, and is over then; otherwise the sense
                // data that the next command for the medium would get.
                let sense = attention.take().or(self.obstacle(Needs::Medium));
                (encoded(&sense.unwrap_or(Sense::NO_SENSE), descriptor), allocation)
            }
            Cdb::Inquiry { page: None, allocation } => (inquiry::standard(disk), allocation),
            Cdb::Inquiry { page: Some(code), allocation } => {
                (vpd::page(disk, port, code)?, allocation)
            }
            Cdb::ReportLuns { select, allocation } => {
                let data = luns::report(select, port.units, allocation)?;
                attention.luns_reported();
                (data, allocation)
            }
            Cdb::ReadCapacity10 => (capacity::short(disk), u32::MAX),
            Cdb::ReadCapacity16 { allocation } => (capacity::long(disk), allocation),
            Cdb::LogSense(asked) => (log::sense(asked)?, asked.allocation),
            Cdb::ModeSense(asked) => (mode::sense(disk, self.mode, &asked)?, asked.allocation),
            Cdb::ReportSupportedOpcodes { options, opcode, action, with_timeouts, allocation } => {
                let features = disk.features();
                let data = opcodes::report(options, opcode, action, with_timeouts, features)?;
                (data, allocation)
            }
            Cdb::ReportTaskManagement { extended, allocation } => {
                // SPC-4: less room than for the four bytes of old is wrong.
                if allocation < 4 {
                    return Err(Sense::invalid_cdb_field(6, None).into());
                }
                (ports::task_management(extended), allocation)
            }
            Cdb::ReportTargetPortGroups { extended, allocation } => {
                (ports::groups(port, extended), allocation)
            }
            Cdb::PersistentIn { action, allocation } => {
                (self.reservations.persistent_in(action, allocation)?, allocation)
            }
            Cdb::ReadDefectData { is_long, request, allocation } => {
                (defects::none(is_long, request), allocation)
            }
            Cdb::ReceiveCopyResults { action, list_id, allocation } => {
                let known = self.copies.iter().find(|(of, id, _)| of == nexus && *id == list_id);
                let progress = known.map(|(.., progress)| progress);
                (copy::receive(action, progress, allocation)?, allocation)
            }
        };
        Ok(cut(data, allocation))
    }

    /// Whether the unit accepts a command.
    fn permit(
        &self,
        who: Option<RegistrantRef<'_>>,
        access: Access,
        needs: Needs,
    ) -> Result<(), Refusal> {
        if !self.reservations.permits(who, access) {
            return Err(Refusal::Conflict);
        }
        self.obstacle(needs).map_or(Ok(()), |sense| Err(sense.into()))
    }

    /// Why the unit is not ready for a command with such needs.
    const fn obstacle(&self, needs: Needs) -> Option<Sense> {
        if self.withdrawn && !matches!(needs, Needs::Nothing) {
            return Some(Sense::UNAVAILABLE);
        }
        let sanitizing = self.sanitizing.obstacle(needs);
        if sanitizing.is_some() {
            return sanitizing;
        }
        match needs {
            Needs::Presence | Needs::Medium | Needs::Sanitizable if !self.medium.is_present() => {
                Some(Sense::MEDIUM_NOT_PRESENT)
            }
            _ => None,
        }
    }

    /// Checks a media command against write protection and the disk.
    fn check(&self, media: Media) -> Result<Media, Sense> {
        if media.is_write() {
            self.check_protection()?;
        }
        let mut media = self.disk.check(media)?;
        // Without a write cache every write must be durable when it ends.
        media.fua |= media.is_write() && !self.mode.write_cache;
        Ok(media)
    }

    /// Whether the medium may be changed.
    const fn check_protection(&self) -> Result<(), Sense> {
        if self.disk.read_only {
            Err(Sense::WRITE_PROTECTED)
        } else if self.mode.write_protect {
            Err(Sense::SOFTWARE_WRITE_PROTECTED)
        } else {
            Ok(())
        }
    }

    fn worded_refusal(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Check(sense) => Refusal::Check(self.worded(sense)),
            Refusal::Conflict => Refusal::Conflict,
        }
    }
}

#[cfg(test)]
mod tests;
