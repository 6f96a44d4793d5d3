//! Reports of ports and task management: REPORT TARGET PORT GROUPS and REPORT
//! SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4).

use super::disk::Port;

/// The one target port group. Every path to a disk is as good as any other.
pub(crate) const GROUP: u16 = 1;

/// The parameter data of REPORT TARGET PORT GROUPS, with the extended header or without.
pub(crate) fn groups(port: &Port<'_>, extended: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    if extended {
        // Format 1, and no time that a transition would take.
        data.extend_from_slice(&[0x10, 0, 0, 0]);
    }
    let (group, relative) = (GROUP.to_be_bytes(), port.relative.to_be_bytes());
    // Active/optimized; AO_SUP: that is the only state; one port.
    data.extend_from_slice(&[0x00, 0x01, group[0], group[1], 0, 0, 0, 1]);
    data.extend_from_slice(&[0, 0, relative[0], relative[1]]);
    let length = data.len() as u32 - 4;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

/// The parameter data of REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
pub(crate) fn task_management(extended: bool) -> Vec<u8> {
    // ATS, ATSS, CTSS, LURS and TRS: abort task and task set, clear task set, logical unit and
    // target reset.
    let mut data = vec![0xda, 0, 0, 0];
    if extended {
        // No timeouts are promised.
        data[3] = 12;
        data.resize(16, 0);
    }
    data
}
