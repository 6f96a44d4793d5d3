//! Binary values in text: hexadecimal after `0x`, base64 after `0b` (RFC 7143 section 6.1).

/// The bytes of a binary value. `None` if there are none, if they are more than `max`, or if the
/// value is not written as a standard says: hexadecimal digits in pairs, or base64 with its padding
/// (RFC 4648 section 4).
pub(crate) fn decode(value: &str, max: usize) -> Option<Vec<u8>> {
    let (prefix, digits) = value.as_bytes().split_at_checked(2)?;
    let bytes = match prefix {
        b"0x" | b"0X" if digits.len() <= 2 * max => hexadecimal(digits),
        b"0b" | b"0B" if digits.len() <= max.div_ceil(3) * 4 => base64(digits),
        _ => None,
    };
    bytes.filter(|bytes| (1..=max).contains(&bytes.len()))
}

/// `bytes` in hexadecimal, which every initiator reads.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    ['0', 'x'].into_iter().chain(digits).collect()
}

/// Longest text of a binary value of `max` bytes, in bytes.
pub(crate) const fn text_length(max: usize) -> usize {
    2 + 2 * max
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = digits.chunks_exact(2);
    let whole = pairs.remainder().is_empty();
    let bytes = pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?));
    if whole { bytes.collect() } else { None }
}

fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    let padding = digits.iter().rev().take_while(|&&digit| digit == b'=').count();
    if !digits.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let digits = &digits[..digits.len() - padding];
    let mut bytes = Vec::with_capacity(digits.len());
    for group in digits.chunks(4) {
        let mut bits = 0;
        for at in 0..4 {
            let sextet = group.get(at).map_or(Some(0), |&digit| sextet(digit))?;
            bits = bits << 6 | u32::from(sextet);
        }
        let [_, group_bytes @ ..] = bits.to_be_bytes();
        // A group of two or three digits holds one or two bytes, and zeros behind them.
        let (bytes_here, rest) = group_bytes.split_at(group.len() * 6 / 8);
        if rest.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(bytes_here);
    }
    Some(bytes)
}

const fn sextet(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The vectors of RFC 4648 section 10, and the same bytes in hexadecimal.
    #[test]
    fn both_notations_are_read() {
        for (hex, base64, bytes) in [
            ("0x66", "0bZg==", "f"),
            ("0x666f", "0bZm8=", "fo"),
            ("0X666F6f", "0BZm9v", "foo"),
            ("0x666f6f62", "0bZm9vYg==", "foob"),
            ("0x666f6f6261", "0bZm9vYmE=", "fooba"),
            ("0x666f6f626172", "0bZm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(hex, 6).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decode(base64, 6).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode("0b+/+/", 3), Some(vec![0xfb, 0xff, 0xbf]));
    }

    /// No prefix, no digits, wrong digits, half a byte, wrong padding, bits behind the end.
    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            "0",
            "0x",
            "0b",
            "66",
            "1x66",
            "0x6",
            "0x666",
            "0x6g",
            "0x+6",
            "0x 6",
            "0bZg",
            "0bZg=",
            "0bZ===",
            "0b====",
            "0bZh==",
            "0bZm9=",
            "0bZ=m8",
            "0bZm8=Zm8=",
            "0bZm-_",
            "é",
        ] {
            assert_eq!(decode(wrong, 100), None, "{wrong:?}");
        }
    }

    /// Longer than allowed is refused, in either notation.
    #[test]
    fn values_are_bounded() {
        assert!(decode("0x0102", 2).is_some() && decode("0x0102", 1).is_none());
        assert!(decode("0bAQI=", 2).is_some() && decode("0bAQI=", 1).is_none());
        assert_eq!(text_length(2), "0x0102".len());
    }

    proptest! {
        /// Encoded values are decoded to the same bytes, and no text makes the decoder panic.
        #[test]
        fn what_is_written_is_read(
            bytes in prop::collection::vec(any::<u8>(), 1..40),
            text in "0[xXbB][0-9a-zA-Z+/=]{0,12}",
        ) {
            prop_assert_eq!(decode(&encode(&bytes), 40), Some(bytes));
            decode(&text, 9);
        }
    }
}
