//! The burst-credit file: what control keeps over restarts.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `weirctrl` |
//! | 8..12 | version of the format, now 1 |
//! | 12..16 | how many requests may be at the devices; 0 if that was not learnt |
//! | 16..20 | number of tenants that have saved something |
//! | 20.. | for each its burst credits in nanoseconds of its contract (8), the length of its name (2), its name |
//! | last 4 | CRC32C of everything before |
//!
//! Numbers are little-endian. The file is replaced whole, as those of volumes are. Nothing that a host was
//! told depends on it: if it is of no use, burst credits start at zero.

use crate::storage::state_file;
use crate::storage::state_file::StateError;
use std::collections::BTreeMap;
use std::path::Path;
use tracing::warn;
use weir_flow::clock::Duration;
use weir_flow::control::{CONTRACTS_MAX, PolicyHandover};

/// The contents of the file. A tenant whose name is longer than any that can be configured is left out.
pub(crate) fn encode(handover: &PolicyHandover, names: &[String]) -> Vec<u8> {
    let saved = names
        .iter()
        .zip(&handover.credits)
        .filter(|&(name, &saved)| saved > Duration::ZERO && u16::try_from(name.len()).is_ok());
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(handover.window.unwrap_or(0).to_le_bytes());
    bytes.extend((saved.clone().count() as u32).to_le_bytes());
    for (name, saved) in saved {
        bytes.extend(saved.as_nanos().to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// What the file at `path` says of tenants with these names, in their order. What is not there, or is of
/// no use, is as if nothing had been saved; the log says so. Blocks; for use before anything is served.
pub(crate) fn load(path: &Path, names: &[String]) -> Result<PolicyHandover, StateError> {
    let bytes = match state_file::read(path, LENGTH_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(PolicyHandover::default()),
        Err(problem) if problem.is_damage() => Vec::new(),
        Err(problem) => return Err(problem),
    };
    Ok(decode(&bytes, names).unwrap_or_else(|| {
        warn!(
            file = %path.display(),
            "this is not what control has saved, or it is damaged: tenants begin without burst credits, and the \
             file will be replaced"
        );
        PolicyHandover::default()
    }))
}

fn decode(bytes: &[u8], names: &[String]) -> Option<PolicyHandover> {
    let (covered, checksum) = bytes.split_last_chunk()?;
    let mut rest = covered.strip_prefix(MAGIC)?;
    if crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut number = || {
        let (number, behind) = rest.split_first_chunk()?;
        rest = behind;
        Some(u32::from_le_bytes(*number))
    };
    let (version, window, count) = (number()?, number()?, number()?);
    if version != VERSION {
        return None;
    }
    let mut saved = BTreeMap::new();
    for _ in 0..count {
        let (nanos, behind) = rest.split_first_chunk()?;
        let (length, behind) = behind.split_first_chunk()?;
        let (name, behind) = behind.split_at_checked(u16::from_le_bytes(*length).into())?;
        saved.insert(name, Duration::from_nanos(u64::from_le_bytes(*nanos)));
        rest = behind;
    }
    let of = |name: &String| saved.get(name.as_bytes()).copied().unwrap_or_default();
    let handover = PolicyHandover {
        credits: names.iter().map(of).collect(),
        window: Some(window).filter(|&window| window > 0),
    };
    rest.is_empty().then_some(handover)
}

const MAGIC: &[u8; 8] = b"weirctrl";
const VERSION: u32 = 1;

/// The longest file that is read, in bytes: of as many tenants as can have contracts, with names of half
/// a kilobyte.
const LENGTH_MAX: usize = CONTRACTS_MAX * 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::state_file::tests::Folder;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn seconds(seconds: &[u64]) -> Vec<Duration> {
        seconds.iter().map(|&seconds| Duration::from_secs(seconds)).collect()
    }

    /// Burst credits come back to the tenants of the same names, at any place; a new tenant has none,
    /// and those of a tenant that is gone are dropped.
    #[test]
    fn savings_follow_names() {
        let handover = PolicyHandover { credits: seconds(&[5, 0, 7]), window: Some(99) };
        let bytes = encode(&handover, &names(&["a", "b", "c"]));
        let found = decode(&bytes, &names(&["c", "new", "a"])).unwrap();
        assert_eq!(found, PolicyHandover { credits: seconds(&[7, 0, 5]), window: Some(99) });
        let nothing = encode(&PolicyHandover::default(), &[]);
        assert_eq!(decode(&nothing, &[]), Some(PolicyHandover::default()));
    }

    /// No byte can be changed, added or missing without notice, and a file without use begins anew.
    #[test]
    fn damage_is_noticed() {
        let names = names(&["a"]);
        let bytes = encode(&PolicyHandover { credits: seconds(&[5]), window: None }, &names);
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut], &names), None, "{cut} bytes");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&changed, &names), None, "byte {at}");
        }
        let folder = Folder::new("credits");
        let path = folder.file("control.state");
        assert_eq!(load(&path, &names).unwrap(), PolicyHandover::default());
        std::fs::write(&path, &bytes[1..]).unwrap();
        assert_eq!(load(&path, &names).unwrap(), PolicyHandover::default());
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(load(&path, &names).unwrap().credits, seconds(&[5]));
    }
}
