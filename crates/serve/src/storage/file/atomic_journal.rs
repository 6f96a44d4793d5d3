//! The journal of atomic writes: one record that keeps a write whole over a loss of power.
//!
//! | step | what is durable afterwards | after a crash here |
//! |---|---|---|
//! | 1 | the record: place, length, data, checksum | the old data; a torn record counts for nothing |
//! | 2 | the data in its place | the record is applied again: the new data |
//! | 3 | the record is gone | the new data |
//!
//! The command is answered after the third step, and nothing else that touches its blocks runs before
//! that. So a record that is found at the start is never older than what it is applied to.
//!
//! Layout of the record, little-endian: magic (8 bytes), offset in the volume (8), length (8), CRC32C
//! of the data (4), CRC32C of these 28 bytes (4), zeroes up to [`HEADER`], then the data.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes in front of the data.
pub(crate) const HEADER: usize = 4096;

/// Most bytes of one atomic write.
pub(crate) const ATOMIC_MAX: u64 = 256 << 10;

const MAGIC: &[u8; 8] = b"WEIRATM\x01";
/// Bytes of the header that the last checksum covers.
const COVERED: usize = 28;

/// Where the journal is, beside the state file.
pub(crate) fn path(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".journal");
    PathBuf::from(name)
}

/// Fills the front of `buffer` with the record of a write.
pub(crate) fn record(buffer: &mut [u8], offset: u64, data: &[u8]) {
    buffer[..HEADER].fill(0);
    buffer[..8].copy_from_slice(MAGIC);
    buffer[8..16].copy_from_slice(&offset.to_le_bytes());
    buffer[16..24].copy_from_slice(&(data.len() as u64).to_le_bytes());
    buffer[24..28].copy_from_slice(&crc32c::crc32c(data).to_le_bytes());
    let sum = crc32c::crc32c(&buffer[..COVERED]);
    buffer[COVERED..COVERED + 4].copy_from_slice(&sum.to_le_bytes());
    buffer[HEADER..HEADER + data.len()].copy_from_slice(data);
}

/// Opens the journal at `path`, made if need be, and finishes the write to the file or device
/// `volume`, of `capacity` bytes, that it may hold. True if there was one. After an error there is no journal that was not
/// there before.
pub(crate) fn open(path: &Path, volume: &Path, capacity: u64) -> io::Result<(File, bool)> {
    let exists = path.try_exists()?;
    open_or_make(path, volume, capacity).inspect_err(|_| {
        if !exists {
            // The error says why it is of no use; it may not be there.
            let _ = std::fs::remove_file(path);
        }
    })
}

fn open_or_make(path: &Path, volume: &Path, capacity: u64) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    let journal =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if journal.metadata()?.len() < HEADER as u64 {
        journal.set_len(HEADER as u64 + ATOMIC_MAX)?;
        journal.sync_all()?;
        // A new file is only durable together with its name.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    }
    let Some((offset, data)) = read(&journal, capacity)? else { return Ok((journal, false)) };
    let volume = OpenOptions::new().write(true).open(volume)?;
    volume.write_all_at(&data, offset)?;
    volume.sync_data()?;
    journal.write_all_at(&[0; HEADER], 0)?;
    journal.sync_data()?;
    Ok((journal, true))
}

/// Overwrites what the journal holds of the volume's data.
pub(crate) fn wipe(journal: &File) -> io::Result<()> {
    journal.write_all_at(&vec![0; HEADER + ATOMIC_MAX as usize], 0)?;
    journal.sync_data()
}

/// The write that the journal holds, if its record is whole.
fn read(journal: &File, capacity: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut header = [0; HEADER];
    journal.read_exact_at(&mut header, 0)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    let sum = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    if header[..8] != *MAGIC || sum(COVERED) != crc32c::crc32c(&header[..COVERED]) {
        return Ok(None);
    }
    let (offset, length) = (word(8), word(16));
    if length > ATOMIC_MAX || offset.checked_add(length).is_none_or(|end| end > capacity) {
        return Ok(None);
    }
    let mut data = vec![0; length as usize];
    match journal.read_exact_at(&mut data, HEADER as u64) {
        // The file ends in the record: it was torn.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    Ok((sum(24) == crc32c::crc32c(&data)).then_some((offset, data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole record is applied and gone afterwards; one with any flipped bit counts for nothing.
    #[test]
    fn a_whole_record_is_applied_once() {
        let folder = std::env::temp_dir();
        let name = |what| folder.join(format!("weir-journal-{what}-{}", std::process::id()));
        let (path, volume) = (name("record"), name("volume"));
        let mut buffer = vec![0; HEADER + 1024];
        record(&mut buffer, 512, &[7; 1024]);
        for flipped in [None, Some(0), Some(9), Some(20), Some(25), Some(30), Some(HEADER + 1000)] {
            std::fs::write(&volume, vec![1; 2048]).unwrap();
            let mut bytes = buffer.clone();
            if let Some(at) = flipped {
                bytes[at] ^= 4;
            }
            std::fs::write(&path, &bytes).unwrap();
            let (_, applied) = open(&path, &volume, 2048).unwrap();
            assert_eq!(applied, flipped.is_none(), "{flipped:?}");
            let now = std::fs::read(&volume).unwrap();
            let expected = if applied { 7 } else { 1 };
            assert!(now[..512].iter().chain(&now[1536..]).all(|&byte| byte == 1));
            assert!(now[512..1536].iter().all(|&byte| byte == expected));
            assert!(!open(&path, &volume, 2048).unwrap().1, "applied twice");
        }
        // The volume has become smaller than the record says: it is not for this volume.
        std::fs::write(&path, &buffer).unwrap();
        assert!(!open(&path, &volume, 1024).unwrap().1);
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(volume).unwrap();
    }
}
