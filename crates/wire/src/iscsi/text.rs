//! Key-value text: `Key=Value`, each pair ended by a zero byte (RFC 7143 section 6.1).

use super::binary;

/// Longest text that one negotiation may carry in one direction before it is answered, in bytes.
/// A longer one is refused.
pub(crate) const TEXT_LENGTH_MAX: usize = 16 * 1024;
/// Most pairs in one text. More are refused.
pub(crate) const PAIRS_MAX: usize = 64;
/// Longest key name, in bytes. RFC 7143 section 6.1 says 63.
const KEY_LENGTH_MAX: usize = 63;
/// Longest value, in bytes, where a key does not say otherwise. RFC 7143 section 6.1 says 255.
const VALUE_LENGTH_MAX: usize = 255;
/// Longest value of the keys that carry lists, in bytes.
const LIST_LENGTH_MAX: usize = 1024;
/// Longest value of the keys that carry binary values, in bytes. RFC 7143 section 12.1.3 says 1024
/// before encoding.
const BINARY_LENGTH_MAX: usize = binary::text_length(1024);

/// The error of an invalid text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedText;

/// Every key and value of `text`, which has at most [`PAIRS_MAX`].
pub(crate) fn pairs(text: &[u8]) -> Result<impl Iterator<Item = (&str, &str)>, MalformedText> {
    pairs_up_to(text, PAIRS_MAX)
}

/// Every key and value of `text`, which has at most `most`.
pub(crate) fn pairs_up_to(
    text: &[u8],
    most: usize,
) -> Result<impl Iterator<Item = (&str, &str)>, MalformedText> {
    let split = || text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty());
    if split().count() > most {
        return Err(MalformedText);
    }
    for pair in split() {
        check(pair)?;
    }
    Ok(split().filter_map(|pair| str::from_utf8(pair).ok()?.split_once('=')))
}

fn check(pair: &[u8]) -> Result<(), MalformedText> {
    let (key, value) =
        str::from_utf8(pair).ok().and_then(|pair| pair.split_once('=')).ok_or(MalformedText)?;
    // RFC 7143 section 6.1: a key starts with a capital letter and holds letters, digits and
    // ". - + @ _"; X- and X# keys add the sharp sign. Lower case in front is let through so that
    // it can be answered as not understood.
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
    let limit = match key {
        "CHAP_C" | "CHAP_R" => BINARY_LENGTH_MAX,
        _ if value.contains(',') => LIST_LENGTH_MAX,
        _ => VALUE_LENGTH_MAX,
    };
    let fits = !key.is_empty() && key.len() <= KEY_LENGTH_MAX && value.len() <= limit;
    if fits && key.bytes().all(legal) { Ok(()) } else { Err(MalformedText) }
}

/// Appends `key=value` and its terminator.
pub(crate) fn push(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

/// A number as RFC 7143 section 6.1 writes it: decimal, or hexadecimal after `0x`.
pub(crate) fn number(value: &str) -> Option<u32> {
    let hex = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((value, 10), |digits| (digits, 16));
    // The parser of the standard library takes a sign, which is no digit here.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { u32::from_str_radix(digits, radix).ok() } else { None }
}

/// `Yes` or `No`, exactly so written.
pub(crate) fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Option<Vec<(&str, &str)>> {
        pairs(text).ok().map(Iterator::collect)
    }

    /// Pairs come out in order; the last terminator may be missing.
    #[test]
    fn pairs_come_out_in_order() {
        assert_eq!(read(b"A=1\0B=x=y\0C=").unwrap(), [("A", "1"), ("B", "x=y"), ("C", "")]);
        assert!(read(b"").unwrap().is_empty());
    }

    /// Text without an equals sign, illegal bytes, long names and floods are refused.
    #[test]
    fn malformed_text_is_refused() {
        assert!(read(b"NoEquals\0").is_none());
        assert!(read(b"=x\0").is_none());
        assert!(read(b"A b=x\0").is_none());
        assert!(read(b"A=\xff\xfe\0").is_none());
        assert!(read(&[[b'k'; 64].as_slice(), b"=x\0"].concat()).is_none());
        assert!(read(&[b"k=".as_slice(), &[b'x'; 256]].concat()).is_none());
        assert!(read(&[b"CHAP_C=0x".as_slice(), &[b'0'; 2048]].concat()).is_some());
        assert!(read(&[b"CHAP_C=0x".as_slice(), &[b'0'; 2049]].concat()).is_none());
        assert!(read(&b"A=1\0".repeat(64)).is_some());
        assert!(read(&b"A=1\0".repeat(65)).is_none());
    }

    /// Numbers are unsigned, in base ten or sixteen.
    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("262144"), Some(262_144));
        assert_eq!(number("0x1F"), Some(31));
        for wrong in ["", "+1", "-1", "0x", "ff", "4294967296", "1 "] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }
}
