//! Vital product data pages (SPC-4 section 7.8, SBC-3 section 6.6).

use super::disk::{DiskInfo, Port};
use super::inquiry::{pad, printable};
use super::ports;
use super::sense::{SENSE_LENGTH_MAX, Sense};

const SUPPORTED_PAGES: u8 = 0x00;
const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const EXTENDED_INQUIRY: u8 = 0x86;
const MODE_PAGE_POLICY: u8 = 0x87;
const SCSI_PORTS: u8 = 0x88;
const BLOCK_LIMITS: u8 = 0xb0;
const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xb1;
const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;

/// Longest serial number that is shown, in bytes.
const SERIAL_LENGTH_MAX: usize = 32;
/// iSCSI in the protocol identifier field (SPC-4 table 433).
const ISCSI: u8 = 0x5;

/// The association of a designator (SPC-4 table 593).
#[derive(Clone, Copy)]
enum Association {
    Unit = 0,
    Port = 1,
    Device = 2,
}

/// One page with its header.
pub(crate) fn page(disk: &DiskInfo, port: &Port<'_>, code: u8) -> Result<Vec<u8>, Sense> {
    let mut data = vec![0, code, 0, 0];
    match code {
        SUPPORTED_PAGES => data.extend_from_slice(supported(disk)),
        UNIT_SERIAL_NUMBER => data.extend(serial(disk)),
        DEVICE_IDENTIFICATION => identification(disk, port, &mut data),
        EXTENDED_INQUIRY => data.extend_from_slice(&extended(disk)),
        // All pages are shared by all ports and initiators.
        MODE_PAGE_POLICY => data.extend_from_slice(&[0x3f, 0xff, 0, 0]),
        SCSI_PORTS => scsi_ports(port, &mut data),
        BLOCK_LIMITS => data.extend_from_slice(&block_limits(disk)),
        BLOCK_DEVICE_CHARACTERISTICS => {
            let mut body = [0; 60];
            body[..2].copy_from_slice(&disk.rotation_rate.to_be_bytes());
            // WABEREQ: what a block erase has deallocated reads as zeros.
            body[3] = u8::from(disk.sanitize && disk.thin) << 6;
            data.extend_from_slice(&body);
        }
        // SBC-3 section 6.6.4: LBPU, LBPWS, LBPWS10 and LBPRZ; type 2 is thin.
        LOGICAL_BLOCK_PROVISIONING if disk.thin => data.extend_from_slice(&[0, 0xe4, 0x02, 0]),
        _ => return Err(Sense::invalid_cdb_field(2, None)),
    }
    let length = data.len() as u16 - 4;
    data[2..4].copy_from_slice(&length.to_be_bytes());
    Ok(data)
}

/// In ascending order, as SPC-4 section 7.8.18 asks.
const fn supported(disk: &DiskInfo) -> &'static [u8] {
    const PAGES: &[u8] = &[
        SUPPORTED_PAGES,
        UNIT_SERIAL_NUMBER,
        DEVICE_IDENTIFICATION,
        EXTENDED_INQUIRY,
        MODE_PAGE_POLICY,
        SCSI_PORTS,
        BLOCK_LIMITS,
        BLOCK_DEVICE_CHARACTERISTICS,
        LOGICAL_BLOCK_PROVISIONING,
    ];
    if disk.thin { PAGES } else { PAGES.split_at(PAGES.len() - 1).0 }
}

fn serial(disk: &DiskInfo) -> impl Iterator<Item = u8> {
    printable(&disk.serial).take(SERIAL_LENGTH_MAX)
}

fn identification(disk: &DiskInfo, port: &Port<'_>, data: &mut Vec<u8>) {
    // SPC-4 section 7.8.5.6: locally assigned, so only 60 bits are ours.
    let naa = 0x3 << 60 | disk.id & (u64::MAX >> 4);
    designator(data, Association::Unit, 0x1, 0x3, &naa.to_be_bytes());

    // SPC-4 section 7.8.5.4: T10 vendor identification, then what makes it unique there.
    let mut vendor = vec![0; 8];
    pad(&mut vendor, &disk.vendor);
    vendor.extend(serial(disk));
    designator(data, Association::Unit, 0x2, 0x1, &vendor);

    designator(data, Association::Port, 0x1, 0x4, &u32::from(port.relative).to_be_bytes());
    // SPC-4 section 7.8.5.8: target port group.
    designator(data, Association::Port, 0x1, 0x5, &u32::from(ports::GROUP).to_be_bytes());
    designator(data, Association::Port, 0x3, 0x8, &port_name(port));
    designator(data, Association::Device, 0x3, 0x8, &name_string(port.iqn));
}

/// The name of the target's port: the node name and the portal group tag (RFC 7143 section 4.4.2).
fn port_name(port: &Port<'_>) -> Vec<u8> {
    name_string(&format!("{},t,0x{:04x}", port.iqn, port.portal_group))
}

/// Extended INQUIRY data.
fn extended(disk: &DiskInfo) -> [u8; 60] {
    // Offsets below are those of the standard less the four bytes of the header.
    let mut page = [0; 60];
    // ORDSUP and SIMPSUP.
    page[1] = 0x03;
    // V_SUP: there is a volatile cache.
    page[2] = u8::from(disk.write_cache);
    page[9] = SENSE_LENGTH_MAX as u8;
    page
}

/// SCSI ports: the one port of the target.
fn scsi_ports(port: &Port<'_>, data: &mut Vec<u8>) {
    let [high, low] = port.relative.to_be_bytes();
    data.extend_from_slice(&[0, 0, high, low, 0, 0, 0, 0, 0, 0]);
    let mut designators = Vec::new();
    designator(&mut designators, Association::Port, 0x3, 0x8, &port_name(port));
    data.extend_from_slice(&(designators.len() as u16).to_be_bytes());
    data.extend(designators);
}

fn designator(data: &mut Vec<u8>, association: Association, code: u8, kind: u8, body: &[u8]) {
    // PIV: the protocol identifier is valid for ports and devices.
    let (protocol, piv) = match association {
        Association::Unit => (0, 0),
        Association::Port | Association::Device => (ISCSI << 4, 0x80),
    };
    let flags = piv | (association as u8) << 4 | kind;
    data.extend_from_slice(&[protocol | code, flags, 0, body.len() as u8]);
    data.extend_from_slice(body);
}

/// A SCSI name string: ended by a zero byte and filled to a multiple of four (SPC-4 section
/// 7.8.5.11). An iSCSI name has at most 223 bytes, so the length fits a byte.
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes()[..name.len().min(247)].to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// SBC-3 section 6.6.3.
fn block_limits(disk: &DiskInfo) -> [u8; 60] {
    let mut page = [0; 60];
    // Offsets below are those of the standard less the four bytes of the header.
    // WSNZ: WRITE SAME of zero blocks is not supported.
    page[0] = u8::from(disk.max_write_same_blocks != 0);
    page[1] = disk.max_compare_and_write_blocks;
    let granularity = disk.physical_blocks();
    page[2..4].copy_from_slice(&(granularity as u16).to_be_bytes());
    page[4..8].copy_from_slice(&disk.max_transfer_blocks.to_be_bytes());
    page[8..12].copy_from_slice(&disk.optimal_transfer_blocks.to_be_bytes());
    if disk.thin {
        page[16..20].copy_from_slice(&disk.max_unmap_blocks.to_be_bytes());
        page[20..24].copy_from_slice(&disk.max_unmap_descriptors.to_be_bytes());
        page[24..28].copy_from_slice(&disk.unmap_granularity_blocks.to_be_bytes());
        // UGAVALID: the first extent of that size begins at block 0.
        page[28] = u8::from(disk.unmap_granularity_blocks != 0) << 7;
    }
    page[32..40].copy_from_slice(&disk.max_write_same_blocks.to_be_bytes());
    if disk.max_atomic_blocks != 0 {
        // Without a boundary, so the two fields behind these stay zero.
        page[40..44].copy_from_slice(&disk.max_atomic_blocks.to_be_bytes());
        page[44..48].copy_from_slice(&granularity.to_be_bytes());
        page[48..52].copy_from_slice(&granularity.to_be_bytes());
    }
    page
}
