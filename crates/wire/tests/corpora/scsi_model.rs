//! What a logical unit is expected to do, worked out in another way than the unit does it.

use weir_wire::scsi::Sense;
use weir_wire::scsi::attention::{CONDITIONS_MAX, UnitAttention};
use weir_wire::scsi::disk::Port;
use weir_wire::scsi::nexus::{InitiatorPort, Nexus, Refusal};
use weir_wire::scsi::reservation::{REGISTRATIONS_MAX, Reservations};
use weir_wire::scsi::unit::{Action, Unit};

/// The units that the initiators may see.
pub(crate) const UNITS: [u64; 3] = [0, 1, 300];
/// The port of every command.
pub(crate) const PORT: Port<'_> =
    Port { iqn: "iqn.2026-01.test.weir:disk", portal_group: 1, relative: 1, units: &UNITS };
/// How many initiators there are.
pub(crate) const INITIATORS: usize = 3;

/// One of the initiators.
pub(crate) fn nexus(number: usize) -> Nexus {
    let name = ["iqn.2026-01.test:a", "iqn.2026-01.test:b", "iqn.2026-01.test:c"][number];
    let initiator = InitiatorPort { name: name.to_owned(), isid: [0x80, 0, 0, 0, 0, number as u8] };
    Nexus { initiator, target: PORT.iqn.to_owned() }
}

/// Runs one command on a copy of the unit that no unit attention, sanitize operation or reservation
/// of the old kind hinders.
fn ask(unit: &Unit, nexus: &Nexus, cdb: &[u8]) -> Result<Action, Refusal> {
    let mut unit = unit.clone();
    unit.sanitize_ended(true);
    let mut attention = UnitAttention::new();
    let mut padded = [0; 16];
    // The first command is answered with the power-on condition.
    assert!(unit.execute(nexus, &PORT, &mut attention, &padded).is_err());
    padded[..cdb.len()].copy_from_slice(cdb);
    unit.execute(nexus, &PORT, &mut attention, &padded)
}

/// The conditions that wait for one initiator, oldest first.
#[derive(Debug)]
pub(crate) struct Waiting(Vec<Sense>);

impl Waiting {
    pub(crate) fn new() -> Self {
        Self(vec![Sense::POWER_ON_OR_RESET])
    }

    pub(crate) fn raise(&mut self, sense: Sense) {
        if self.0.contains(&sense) {
            return;
        }
        if self.0.len() == CONDITIONS_MAX {
            self.0 = vec![Sense::POWER_ON_OR_RESET];
        } else {
            self.0.push(sense);
        }
    }

    pub(crate) fn take(&mut self) -> Option<Sense> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    pub(crate) fn luns_reported(&mut self) {
        self.0.retain(|&sense| sense != Sense::REPORTED_LUNS_CHANGED);
    }
}

/// The mode parameters, as MODE SENSE tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) write_cache: bool,
    pub(crate) descriptor_sense: bool,
    pub(crate) write_protect: bool,
}

impl Mode {
    pub(crate) fn of(unit: &Unit) -> Self {
        let mut free = unit.clone();
        free.install(Reservations::default());
        let page = |code| match ask(&free, &nexus(0), &[0x1a, 0x08, code, 0, 0xff, 0]) {
            Ok(Action::Data(data)) => data[6..].to_vec(),
            other => panic!("a page of mode parameters: {other:?}"),
        };
        let (caching, control) = (page(0x08), page(0x0a));
        Self {
            write_cache: caching[0] & 0x04 != 0,
            descriptor_sense: control[0] & 0x04 != 0,
            write_protect: control[2] & 0x08 != 0,
        }
    }
}

/// Who is registered and who holds the persistent reservation, as READ FULL STATUS tells it.
#[derive(Debug)]
pub(crate) struct Registered {
    /// The type of the reservation; 0 if there is none.
    pub(crate) kind: u8,
    /// Initiator ports in the words of their `TransportIDs`, and whether they hold the reservation.
    ports: Vec<(Vec<u8>, bool)>,
}

impl Registered {
    /// Asks the unit, which only `reserved` may have reserved by RESERVE(6).
    pub(crate) fn of(unit: &Unit, reserved: Option<usize>) -> Self {
        let full_status = [0x5e, 0x03, 0, 0, 0, 0, 0, 0xff, 0xff, 0];
        let data = match ask(unit, &nexus(reserved.unwrap_or(0)), &full_status) {
            Ok(Action::Data(data)) => data,
            other => panic!("the full status: {other:?}"),
        };
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
        let (header, mut rest) = data.split_at(8);
        assert_eq!(word(&header[4..]), rest.len(), "the full status is as long as it says");
        let (mut kind, mut ports) = (0, Vec::new());
        while let Some((entry, behind)) = rest.split_at_checked(24) {
            let (id, behind) = behind.split_at(word(&entry[20..]));
            assert_ne!(entry[..8], [0; 8], "no registration without a key");
            let text = id[4..].split(|&byte| byte == 0).next().unwrap();
            let holds = entry[12] & 1 != 0;
            assert!(!holds || kind == 0 || kind == entry[13], "one reservation at most");
            kind = if holds { entry[13] } else { kind };
            ports.push((text.to_vec(), holds));
            rest = behind;
        }
        assert!(rest.is_empty());
        assert_eq!(ports.len(), unit.reservations().registrants().count());
        assert!(ports.len() <= REGISTRATIONS_MAX);
        let holders = ports.iter().filter(|(_, holds)| *holds).count();
        match kind {
            0 => {}
            // SPC-4 table 33: the types that all who are registered hold.
            7 | 8 => assert_eq!(holders, ports.len()),
            1 | 3 | 5 | 6 => assert_eq!(holders, 1),
            _ => panic!("type {kind}"),
        }
        Self { kind, ports }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Whether an initiator is registered, and whether it holds the reservation.
    pub(crate) fn find(&self, number: usize) -> Option<bool> {
        let InitiatorPort { name, isid } = nexus(number).initiator;
        let isid = isid.iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        let digits = format!("{isid:012x}");
        let text = format!("{name},i,0x{digits}").into_bytes();
        self.ports.iter().find(|(port, _)| *port == text).map(|&(_, holds)| holds)
    }

    /// Whether an initiator, or a user without a nexus, may read or write the medium.
    // SPC-4 table 33: write exclusive and exclusive access, for a holder, for registrants, for all
    // registrants.
    pub(crate) fn permits(&self, number: Option<usize>, writes: bool) -> bool {
        let found = number.and_then(|number| self.find(number));
        let (is_registered, holds) = (found.is_some(), found == Some(true));
        match self.kind {
            0 => true,
            1 => holds || !writes,
            3 => holds,
            5 | 7 => is_registered || !writes,
            _ => is_registered,
        }
    }
}

/// Reservations with this many registrations and no reservation, which survive a loss of power.
pub(crate) fn crowd(registrations: u16) -> Reservations {
    let mut bytes = b"weir-pr\x01\0\0\0\0\x01\0".to_vec();
    bytes.extend_from_slice(&registrations.to_be_bytes());
    for number in 0..registrations {
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9, 0, 0x80, 0, 0, 0, 0, 0]);
        for name in [&format!("iqn.2026-01.test.crowd:{number:03}"), PORT.iqn] {
            bytes.extend_from_slice(&(name.len() as u16).to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
    }
    let length = (bytes.len() as u32).to_be_bytes();
    bytes[8..12].copy_from_slice(&length);
    Reservations::decode(&bytes).expect("whole and in order")
}

/// What a restart makes of reservations: nothing of them is lost that must survive, and nothing else
/// is kept.
pub(crate) fn restarted(reservations: &Reservations) -> Reservations {
    let bytes = reservations.encode();
    let kept = Reservations::decode(&bytes).expect("what was encoded can be decoded");
    assert_eq!(kept.encode(), bytes, "what was decoded is encoded so again");
    assert_eq!(kept.survives(), reservations.survives());
    if kept.survives() {
        assert!(kept.registrants().eq(reservations.registrants()));
    } else {
        assert_eq!(kept, Reservations::default());
    }
    kept
}

/// What a sanitize operation is expected to keep from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitizing {
    Idle,
    /// With AUSE or without.
    Running(bool),
    Failed(bool),
}

impl Sanitizing {
    /// Whether a command may run: by opcode and service action (SBC-4 section 4.11.2).
    pub(crate) const fn lets(self, opcode: u8, action: u8) -> bool {
        let asks_only = matches!(
            (opcode, action),
            (0x03 | 0x12 | 0x1a | 0x25 | 0x4d | 0x5a | 0xa0, _)
                | (0x9e, 0x10)
                | (0xa3, 0x0c | 0x0d)
        );
        match self {
            Self::Idle => true,
            Self::Running(_) => asks_only,
            Self::Failed(_) => asks_only || opcode == 0x48,
        }
    }
}
