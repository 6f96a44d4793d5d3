//! PERSISTENT RESERVE IN (SPC-4 section 6.15).

use super::out::RELATIVE_PORT;
use super::{Reservations, rules, transport_id};
use crate::scsi::nexus::RegistrantRef;
use crate::scsi::sense::Sense;

impl Reservations {
    /// PERSISTENT RESERVE IN: the parameter data of a service action, cut to `allocation` bytes.
    /// The lengths in it are those of the whole.
    pub(crate) fn persistent_in(&self, action: u8, allocation: u32) -> Result<Vec<u8>, Sense> {
        let mut data = match action {
            0x00 => self.with_header(&self.key_list()),
            0x01 => self.with_header(&self.reservation()),
            0x02 => self.capabilities().to_vec(),
            0x03 => self.with_header(&self.full_status()),
            _ => return Err(Sense::invalid_cdb_field(1, Some(4))),
        };
        data.truncate(allocation as usize);
        Ok(data)
    }

    /// PRGENERATION, the length of what follows, and what follows.
    fn with_header(&self, rest: &[u8]) -> Vec<u8> {
        let mut data = Vec::with_capacity(8 + rest.len());
        data.extend_from_slice(&self.generation.to_be_bytes());
        data.extend_from_slice(&(rest.len() as u32).to_be_bytes());
        data.extend_from_slice(rest);
        data
    }

    fn key_list(&self) -> Vec<u8> {
        self.keys.iter().flat_map(|(_, key)| key.to_be_bytes()).collect()
    }

    fn reservation(&self) -> Vec<u8> {
        let Some(persistent) = &self.persistent else {
            return Vec::new();
        };
        let mut data = vec![0; 16];
        // With all registrants as holders the key is zero.
        if let Some(key) = persistent.holder.as_ref().and_then(|who| self.keys.get(who.borrowed()))
        {
            data[..8].copy_from_slice(&key.to_be_bytes());
        }
        data[13] = persistent.kind.code();
        data
    }

    fn capabilities(&self) -> [u8; 8] {
        // CRH, SIP_C, ATP_C and PTPL_C. A target has one port, so ALL_TG_PT names no more than
        // the one that a registration is for anyhow.
        let supported = 0x10 | 0x08 | 0x04 | 0x01;
        // TMV. ALLOW COMMANDS 011b: TEST UNIT READY gets through reservations of every type, and
        // MODE SENSE, REPORT SUPPORTED OPERATION CODES and their like through the write exclusive
        // ones.
        let allowed = 0x80 | 0b011 << 4 | u8::from(self.survives);
        let [high, low] = rules::type_mask().to_be_bytes();
        [0, 8, supported, allowed, high, low, 0, 0]
    }

    fn full_status(&self) -> Vec<u8> {
        let mut data = Vec::new();
        for (who, key) in self.keys.iter() {
            let id = match who {
                RegistrantRef::Scsi(nexus) => transport_id::encode(&nexus.initiator),
                RegistrantRef::Nvme(host) => transport_id::of_host(host).to_vec(),
            };
            let mut entry = [0; 24];
            entry[..8].copy_from_slice(&key.to_be_bytes());
            if let Some(persistent) = &self.persistent
                && self.holds(who)
            {
                entry[12] = 0x01;
                entry[13] = persistent.kind.code();
            }
            entry[18..20].copy_from_slice(&RELATIVE_PORT.to_be_bytes());
            entry[20..].copy_from_slice(&(id.len() as u32).to_be_bytes());
            data.extend_from_slice(&entry);
            data.extend_from_slice(&id);
        }
        data
    }
}
