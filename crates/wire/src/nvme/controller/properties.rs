//! Properties: capabilities, configuration and status of a controller.

use super::Controller;
use crate::nvme::status::Status;

/// A Property Get or Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Offset of the property, in bytes.
    pub offset: u32,
    /// It has eight bytes; otherwise four.
    pub is_wide: bool,
    /// What is to be done.
    pub value: PropertyValue,
}

/// What is to be done with a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyValue {
    /// Read it.
    Get,
    /// Write it.
    Set(u64),
}

/// What a host asks for by setting CC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The controller is enabled, and ready.
    Enabled,
    /// The shell closes the I/O connections and calls [`Controller::quiesced`] when the last task of the controller has
    /// left the pipeline.
    Reset,
    /// As for a reset; the namespaces of the controller are flushed before [`Controller::quiesced`] is called.
    Shutdown,
}

/// Progress of a shutdown (CSTS.SHST).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shutdown {
    #[default]
    None,
    Running,
    Done,
}

/// State behind the properties.
#[derive(Debug, Default)]
pub(super) struct Registers {
    /// CC.
    configuration: u32,
    /// CSTS.RDY.
    ready: bool,
    /// CSTS.CFS: the host has asked for a configuration that does not exist.
    failed: bool,
    shutdown: Shutdown,
}

impl Registers {
    /// Whether the host has begun a shutdown.
    pub(super) fn is_shut_down(&self) -> bool {
        self.shutdown != Shutdown::None
    }
}

impl Controller {
    /// Executes a Property Get or Set: the value for dwords 0 and 1, and what follows from it.
    pub fn property(&mut self, property: Property) -> Result<(u64, Option<Transition>), Status> {
        let Property { offset, is_wide, value } = property;
        if is_wide != (offset == offset::CAP) {
            return Err(Status::INVALID_FIELD);
        }
        match (value, offset) {
            (PropertyValue::Get, offset::CAP) => Ok((self.capabilities(), None)),
            (PropertyValue::Get, offset::VS) => Ok((VERSION.into(), None)),
            (PropertyValue::Get, offset::CC) => Ok((self.registers.configuration.into(), None)),
            (PropertyValue::Get, offset::CSTS) => Ok((self.status().into(), None)),
            (PropertyValue::Set(value), offset::CC) => {
                self.configure(value as u32).map(|transition| (0, transition))
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Whether commands other than those of Fabrics are executed.
    pub const fn is_enabled(&self) -> bool {
        self.registers.ready && self.registers.configuration & cc::ENABLE != 0
    }

    /// The last task of the controller has left the pipeline: a reset or a shutdown is complete.
    pub fn quiesced(&mut self) {
        if self.registers.shutdown == Shutdown::Running {
            self.registers.shutdown = Shutdown::Done;
        }
        if self.registers.configuration & cc::ENABLE == 0 {
            self.registers.ready = false;
        }
    }

    fn capabilities(&self) -> u64 {
        // I/O queues are physically contiguous (CQR), the command set is NVM, pages have 4 KiB.
        let most = u64::from(self.limits.queue_depth) - 1;
        most | 1 << 16 | READY_TIMEOUT << 24 | 1 << 37
    }

    const fn status(&self) -> u32 {
        let Registers { ready, failed, shutdown, .. } = self.registers;
        let shutdown = match shutdown {
            Shutdown::None => 0,
            Shutdown::Running => 1,
            Shutdown::Done => 2,
        };
        ready as u32 | ((failed || self.expired) as u32) << 1 | shutdown << 2
    }

    fn configure(&mut self, value: u32) -> Result<Option<Transition>, Status> {
        let before = self.registers.configuration;
        let (was_enabled, enables) = (before & cc::ENABLE != 0, value & cc::ENABLE != 0);
        // The reset that is running ends first: the host waits for CSTS.RDY.
        if !was_enabled && enables && self.registers.ready {
            return Err(Status::SEQUENCE_ERROR);
        }
        self.registers.configuration = value;
        if value & cc::SHUTDOWN != 0 && before & cc::SHUTDOWN == 0 {
            self.registers.shutdown = Shutdown::Running;
            return Ok(Some(Transition::Shutdown));
        }
        match (was_enabled, enables) {
            (false, true) => {
                let is_valid = value & cc::CHOICES == cc::CHOSEN
                    || self.is_discovery() && value & cc::FORMATS == 0;
                self.registers.failed = !is_valid;
                self.registers.ready = is_valid;
                self.registers.shutdown = Shutdown::None;
                Ok(is_valid.then_some(Transition::Enabled))
            }
            (true, false) if self.registers.ready => {
                self.features.reset();
                self.events.keep(self.features.events);
                self.forget_notices();
                Ok(Some(Transition::Reset))
            }
            (true, false) => {
                self.registers.failed = false;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

/// Offsets of properties.
mod offset {
    pub(super) const CAP: u32 = 0x00;
    pub(super) const VS: u32 = 0x08;
    pub(super) const CC: u32 = 0x14;
    pub(super) const CSTS: u32 = 0x1c;
}

/// Fields of CC.
mod cc {
    pub(super) const ENABLE: u32 = 1;
    /// SHN.
    pub(super) const SHUTDOWN: u32 = 0b11 << 14;
    /// CSS, MPS and AMS.
    pub(super) const FORMATS: u32 = 0b111 << 4 | 0b1111 << 7 | 0b111 << 11;
    /// What a host may choose: the formats, IOSQES and IOCQES.
    pub(super) const CHOICES: u32 = FORMATS | 0xff << 16;
    /// The one choice: the NVM command set, pages of 4 KiB, round robin, entries of 64 and 16 bytes.
    pub(super) const CHOSEN: u32 = 6 << 16 | 4 << 20;
}

/// VS: version 1.4.
pub(super) const VERSION: u32 = 0x0001_0400;
/// CAP.TO: a reset may take 60 s, in units of 500 ms, since it waits for the tasks of the controller.
const READY_TIMEOUT: u64 = 120;
