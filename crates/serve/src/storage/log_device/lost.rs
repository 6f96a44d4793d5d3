//! The file of a volume's lost ranges: `STATE.lost` beside its state file, or `LOG.lost` beside its log if it has none.
//!
//! It has one line, `weir-lost 1` and the CRC32C of the rest, and then a list of ranges as JSON. Without the file nothing
//! is lost. A gateway that cannot read it does not serve the volume: it would answer with older data.

use super::log::LogError;
use crate::config::Volume;
use crate::folder::beside;
use crate::storage::checked_json;
use crate::storage::state_file::{self, StateError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use weir_flow::cache::quarantine::LostRange;
use weir_flow::units::Extent;

/// A range as the file has it.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// First byte, and number of bytes.
    offset: u64,
    length: u64,
    /// The record of the log that had the data.
    record: u64,
    /// Nanoseconds since 1970.
    since: u64,
}

/// Where the lost ranges of a volume are kept; nowhere if it has neither a state file nor a log.
pub(super) fn place(volume: &Volume) -> Option<PathBuf> {
    let log = volume.log.as_ref().map(|log| &log.path);
    volume.state.as_ref().or(log).map(|path| beside(path, ".lost"))
}

/// The lost ranges of a volume. Blocks.
pub(super) fn load(volume: &Volume) -> Result<Vec<LostRange>, LogError> {
    let Some(path) = place(volume) else { return Ok(Vec::new()) };
    let volume = || volume.name.clone();
    let bytes = match state_file::read(&path, LENGTH_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Vec::new()),
        Err(source @ StateError::Os { .. }) => {
            return Err(LogError::Lost { volume: volume(), source });
        }
        Err(_) => return Err(LogError::LostDamaged { volume: volume(), path }),
    };
    decode(&bytes).ok_or_else(|| LogError::LostDamaged { volume: volume(), path })
}

/// The contents of the file.
pub(crate) fn encode(ranges: &[LostRange]) -> Vec<u8> {
    let entry = |range: &LostRange| Entry {
        offset: range.extent.offset,
        length: range.extent.length,
        record: range.seq,
        since: range.since,
    };
    checked_json::encode(MAGIC, &ranges.iter().map(entry).collect::<Vec<_>>())
}

fn decode(bytes: &[u8]) -> Option<Vec<LostRange>> {
    let entries: Vec<Entry> = checked_json::decode(MAGIC, bytes)?;
    let range = |Entry { offset, length, record, since }| {
        let extent = Extent::new(offset, length);
        let fits = length > 0 && extent.end().is_some();
        fits.then_some(LostRange { extent, seq: record, since })
    };
    entries.into_iter().map(range).collect()
}

/// The format and its version.
const MAGIC: &str = "weir-lost 1";

/// A longer file is not read: this is enough for half a million ranges, and one order is one range until hosts have
/// overwritten parts of it.
const LENGTH_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges are read as they were written, and a file with any other byte is damaged.
    #[test]
    fn a_damaged_list_is_noticed() {
        let range = |offset| LostRange { extent: Extent::new(offset, 512), seq: 3, since: 9 };
        let bytes = encode(&[range(0), range(4096)]);
        assert_eq!(decode(&bytes), Some(vec![range(0), range(4096)]));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(decode(&other), None, "byte {at}");
        }
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        let endless = LostRange { extent: Extent::new(u64::MAX, 512), ..range(0) };
        assert_eq!(decode(&encode(&[endless])), None);
    }

    /// A volume whose list is damaged is not served: its reads would be answered with older data.
    #[test]
    fn a_damaged_file_is_refused() {
        let folder = std::env::temp_dir().join(format!("weir-lost-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        let volume = &crate::storage::file::tests::volume(&folder.join("v.img"), None);
        let volume = &Volume { state: Some(folder.join("v.state")), ..volume.clone() };
        let path = place(volume).expect("it has a state file");
        assert_eq!(path, folder.join("v.state.lost"));
        assert_eq!(load(volume).expect("no file, nothing lost"), []);
        let range = LostRange { extent: Extent::new(512, 1024), seq: 3, since: 9 };
        let mut bytes = encode(&[range]);
        std::fs::write(&path, &bytes).expect("the folder is writable");
        assert_eq!(load(volume).expect("it is as it was written"), [range]);
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).expect("the folder is writable");
        let refused = load(volume).expect_err("it is damaged").to_string();
        assert!(refused.contains("v.state.lost is damaged"), "{refused}");
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
