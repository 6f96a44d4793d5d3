//! Identify: what a controller and its namespaces are.

use super::aborts::ABORTS_MAX;
use super::events::REQUESTS_MAX;
use super::properties::VERSION;
use super::{Action, Controller, View};
use crate::nvme::discovery::padded;
use crate::nvme::namespace::{NSID_ALL, NSID_MAX, Namespace};
use crate::nvme::pdu::{Sqe, Transfer};
use crate::nvme::status::Status;
use crate::nvme::{ADMIN_DEPTH, discovery};

/// The data of every Identify.
struct Data([u8; LENGTH]);

impl Data {
    const fn new() -> Self {
        Self([0; LENGTH])
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u16(&mut self, offset: usize, value: u16) {
        self.put(offset, &value.to_le_bytes());
    }

    fn put_u32(&mut self, offset: usize, value: u32) {
        self.put(offset, &value.to_le_bytes());
    }

    fn put_u64(&mut self, offset: usize, value: u64) {
        self.put(offset, &value.to_le_bytes());
    }
}

impl Controller {
    pub(super) fn identify(
        &self,
        sqe: &Sqe,
        transfer: Transfer,
        view: &View<'_>,
    ) -> Result<Action, Status> {
        let (cns, controller) = (sqe.cdw(10) as u8, (sqe.cdw(10) >> 16) as u16);
        let command_set = (sqe.cdw(11) >> 24) as u8;
        if self.is_discovery() && cns != cns::CONTROLLER {
            return Err(Status::INVALID_FIELD);
        }
        let nsid = sqe.nsid();
        let is_nvm = command_set == 0;
        let check_room = || {
            let fits = transfer.to_host() == Some(LENGTH as u32);
            fits.then_some(()).ok_or(Status::SGL_LENGTH_INVALID)
        };
        let data = match cns {
            cns::NAMESPACE => {
                check_room()?;
                existing(nsid)?;
                find(nsid, view).map_or_else(Data::new, of_nvm)
            }
            cns::CONTROLLER => {
                check_room()?;
                self.controller()
            }
            cns::ACTIVE_NAMESPACES => {
                check_room()?;
                if nsid >= NSID_ALL - 1 {
                    return Err(Status::INVALID_NAMESPACE);
                }
                active(nsid, view)
            }
            cns::DESCRIPTORS => {
                check_room()?;
                descriptors(find(nsid, view).ok_or(Status::INVALID_NAMESPACE)?)
            }
            // The NVM command set adds nothing about a namespace without metadata.
            cns::NAMESPACE_OF_COMMAND_SET if is_nvm => {
                check_room()?;
                existing(nsid)?;
                Data::new()
            }
            cns::CONTROLLER_OF_COMMAND_SET if is_nvm => {
                check_room()?;
                let mut data = Data::new();
                data.0[0] = self.limits.mdts();
                data.0[1] = WRITE_ZEROES_LIMIT;
                data
            }
            cns::NAMESPACE_OF_ANY_COMMAND_SET => {
                check_room()?;
                existing(nsid)?;
                find(nsid, view).map_or_else(Data::new, independent)
            }
            cns::ATTACHED_CONTROLLERS => {
                check_room()?;
                find(nsid, view).ok_or(Status::INVALID_NAMESPACE)?;
                controllers(controller, view)
            }
            cns::CONTROLLERS => {
                check_room()?;
                controllers(controller, view)
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Action::data(data.0))
    }

    fn controller(&self) -> Data {
        let mut data = Data::new();
        let is_discovery = self.is_discovery();
        data.put(4, &padded::<20>(&self.subsystem.serial));
        data.put(24, &padded::<40>(MODEL));
        data.put(64, &padded::<8>(&self.subsystem.revision));
        data.0[77] = self.limits.mdts();
        data.put_u16(78, self.id);
        data.put_u32(80, VERSION);
        data.put_u32(92, self.events_offered());
        // CTRATT: host identifiers of 128 bits, and any command keeps the controller alive.
        data.put_u32(96, 1 | 1 << 6);
        data.0[111] = if is_discovery { 2 } else { 1 };
        data.0[258] = ABORTS_MAX as u8 - 1;
        data.0[259] = REQUESTS_MAX as u8 - 1;
        data.put_u16(320, KEEP_ALIVE_UNIT);
        // SGLS: aligned to bytes, and an offset addresses data in the capsule.
        data.put_u32(536, 1 | 1 << 20);
        let subsystem = self.subsystem.nqn.as_bytes();
        data.put(768, &subsystem[..subsystem.len().min(223)]);
        data.put_u32(1792, (64 + self.limits.in_capsule) / 16);
        data.put_u32(1796, 1);
        data.0[1803] = 1;
        if is_discovery {
            data.put_u16(514, ADMIN_DEPTH);
            // LPA: a log page can be read from any offset.
            data.0[261] = 1 << 2;
            return data;
        }
        // CMIC: several ports, several controllers, ANA.
        data.0[76] = 0b1011;
        data.put_u32(88, SHUTDOWN_LATENCY_US);
        data.put_u16(128, RETRY_DELAY);
        // LPA: SMART for each namespace, the effects page, any offset.
        data.0[261] = 0b111;
        data.0[342] = ANA_TRANSITION_S;
        // ANACAP: all five states are reported.
        data.0[343] = 0b1_1111;
        data.put_u32(344, NSID_MAX);
        data.put_u32(348, NSID_MAX);
        data.put_u16(386, self.subsystem.quiesce_ms);
        data.0[512] = 0x66;
        data.0[513] = 0x44;
        data.put_u16(514, self.limits.queue_depth);
        data.put_u32(516, NSID_MAX);
        // ONCS: Compare, Dataset Management, Write Zeroes, reservations, Verify.
        data.put_u16(520, 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 7);
        // FUSES: Compare and Write.
        data.put_u16(522, 1);
        // VWC: a volatile cache is present, and Flush takes all namespaces.
        data.0[525] = 0b111;
        data.put_u32(540, NSID_MAX);
        // OFCS: Disconnect.
        data.put_u16(1804, 1);
        data
    }
}

/// What the NVM command set says about a namespace.
fn of_nvm(namespace: &Namespace) -> Data {
    let mut data = Data::new();
    data.put_u64(0, namespace.blocks);
    data.put_u64(8, namespace.blocks);
    data.put_u64(16, namespace.blocks);
    // NSFEAT: thin, the atomic units and the preferred granularities are set.
    data.0[24] = u8::from(namespace.thin) | 1 << 1 | 1 << 4;
    // NACWU, a number less than it means. NAWUN and NAWUPF: one block.
    data.put_u16(38, (namespace.fused_blocks - 1) as u16);
    // NMIC: several controllers share it.
    data.0[30] = 1;
    data.0[31] = reservation_capabilities(namespace);
    if namespace.thin {
        // DLFEAT: deallocated blocks read as zeroes, and Write Zeroes can deallocate.
        data.0[33] = 1 | 1 << 3;
    }
    let granularity = |blocks: u32| blocks.saturating_sub(1).min(u16::MAX.into()) as u16;
    let physical = granularity(1 << (namespace.physical_block_exponent & 0x0f));
    let unmap = granularity(namespace.unmap_granularity_blocks);
    data.put_u16(64, physical);
    data.put_u16(66, physical);
    data.put_u16(68, unmap);
    data.put_u16(70, unmap);
    data.put_u16(72, granularity(namespace.optimal_transfer_blocks));
    // Every namespace is an ANA group for itself.
    data.put_u32(92, namespace.nsid);
    data.0[99] = namespace.read_only.into();
    data.put(104, &namespace.nguid);
    // LBADS of the one format.
    data.0[130] = namespace.block_shift;
    data
}

/// RESCAP: all six types, IEKEY as version 1.3 defines it, and persistence through loss of power where it can be had.
fn reservation_capabilities(namespace: &Namespace) -> u8 {
    0xfe | u8::from(namespace.persists_reservations)
}

/// Refuses an identifier that no namespace can have.
pub(super) fn existing(nsid: u32) -> Result<(), Status> {
    let exists = (1..=NSID_MAX).contains(&nsid);
    exists.then_some(()).ok_or(Status::INVALID_NAMESPACE)
}

/// The active namespace with this identifier.
pub(super) fn find<'a>(nsid: u32, view: &View<'a>) -> Option<&'a Namespace> {
    let found = view.namespaces.binary_search_by_key(&nsid, |namespace| namespace.nsid);
    found.ok().map(|index| &view.namespaces[index])
}

/// Identifiers of active namespaces above `nsid`.
fn active(nsid: u32, view: &View<'_>) -> Data {
    let mut data = Data::new();
    let above = view.namespaces.iter().map(|namespace| namespace.nsid).filter(|&it| it > nsid);
    for (place, nsid) in above.take(LENGTH / 4).enumerate() {
        data.put_u32(place * 4, nsid);
    }
    data
}

/// The identifiers of a namespace: NGUID, UUID and command set.
fn descriptors(namespace: &Namespace) -> Data {
    let mut data = Data::new();
    let mut offset = 0;
    for (kind, id) in [(2, &namespace.nguid[..]), (3, &namespace.uuid), (4, &[0])] {
        data.put(offset, &[kind, id.len() as u8, 0, 0]);
        data.put(offset + 4, id);
        offset += 4 + id.len();
    }
    data
}

/// What does not depend on the command set.
fn independent(namespace: &Namespace) -> Data {
    let mut data = Data::new();
    data.0[0] = u8::from(namespace.thin);
    data.0[1] = 1;
    data.0[2] = reservation_capabilities(namespace);
    data.put_u32(4, namespace.nsid);
    data.0[8] = namespace.read_only.into();
    // NSTAT: ready.
    data.0[14] = 1;
    data
}

/// Identifiers of controllers from `first` on.
fn controllers(first: u16, view: &View<'_>) -> Data {
    let mut data = Data::new();
    let listed = view.controllers.iter().filter(|&&id| id >= first).take(LENGTH / 2 - 1);
    let mut count = 0;
    for &id in listed {
        count += 1;
        data.put_u16(usize::from(count) * 2, id);
    }
    data.put_u16(0, count);
    data
}

/// Values of CNS.
mod cns {
    pub(super) const NAMESPACE: u8 = 0x00;
    pub(super) const CONTROLLER: u8 = 0x01;
    pub(super) const ACTIVE_NAMESPACES: u8 = 0x02;
    pub(super) const DESCRIPTORS: u8 = 0x03;
    pub(super) const NAMESPACE_OF_COMMAND_SET: u8 = 0x05;
    pub(super) const CONTROLLER_OF_COMMAND_SET: u8 = 0x06;
    pub(super) const NAMESPACE_OF_ANY_COMMAND_SET: u8 = 0x08;
    pub(super) const ATTACHED_CONTROLLERS: u8 = 0x12;
    pub(super) const CONTROLLERS: u8 = 0x13;
}

/// Length of the data of Identify, in bytes.
const LENGTH: usize = 4096;
/// MN.
const MODEL: &str = "Weir";
/// RTD3E, in microseconds: Linux gives a shutdown this long.
const SHUTDOWN_LATENCY_US: u32 = 30_000_000;
/// CRDT1, in units of 100 ms.
const RETRY_DELAY: u16 = 10;
/// KAS, in units of 100 ms. Linux refuses zero.
const KEEP_ALIVE_UNIT: u16 = 10;
/// ANATT, in seconds.
const ANA_TRANSITION_S: u8 = 10;
/// WZSL as a power of two, in pages of 4 KiB: 16 MiB, above which a Write Zeroes is done in steps.
const WRITE_ZEROES_LIMIT: u8 = 12;

const _: () = assert!(discovery::NQN.len() < 223);
