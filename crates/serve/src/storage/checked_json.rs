//! A small file of JSON with a checksum: one line, the format and the CRC32C of the rest, and then the JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The contents of a file of this format.
pub(crate) fn encode<T: Serialize + ?Sized>(magic: &str, value: &T) -> Vec<u8> {
    let json = serde_json::to_string(value).expect("numbers and strings can be written as JSON");
    format!("{magic} {:08x}\n{json}", crc32c::crc32c(json.as_bytes())).into_bytes()
}

/// What a file of this format says; `None` if it is damaged, or has another format.
pub(crate) fn decode<T: DeserializeOwned>(magic: &str, bytes: &[u8]) -> Option<T> {
    let (head, json) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    let sum = head.strip_prefix(magic)?.strip_prefix(' ')?;
    let intact = sum == format!("{:08x}", crc32c::crc32c(json.as_bytes()));
    serde_json::from_str(json).ok().filter(|_| intact)
}
