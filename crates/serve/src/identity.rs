//! The names of this machine and of its volumes.

use crate::config;
use weir_flow::rng::mix;

/// The identity of this machine, for the names of its disks: the machine id, or else the host
/// name.
pub(crate) fn identity() -> String {
    let read = |path| std::fs::read_to_string(path).ok().filter(|text| !text.trim().is_empty());
    let text = read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname"));
    text.unwrap_or_default().trim().to_owned()
}

/// The name of this machine for people.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The worldwide number of a volume.
pub(crate) fn id_of(volume: &config::Volume, node: &str) -> u64 {
    match &volume.identity {
        Some(identity) => identity_of(&[identity]),
        None => identity_of(&[node, &volume.name]),
    }
}

/// The name of a volume for its log, which no other volume has.
pub(crate) fn volume_id(volume: &config::Volume, node: &str) -> [u8; 16] {
    bytes_of(id_of(volume, node))
}

/// A worldwide number in 16 bytes.
pub(crate) fn bytes_of(id: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.to_be_bytes());
    bytes[8..].copy_from_slice(&mix(id).to_be_bytes());
    bytes
}

/// A worldwide number made of texts.
pub(crate) fn identity_of(parts: &[&str]) -> u64 {
    let fold = |id, byte: u8| mix(id ^ mix(u64::from(byte) + 1));
    parts.iter().fold(0, |id, part| part.bytes().chain([0]).fold(id, fold))
}
