//! JSON strings as text.

/// The value of the escape `\uXXXX` whose four digits begin at `digits`; `None` when they are no digits.
#[inline]
pub(crate) fn hex4(digits: &[u8]) -> Option<u16> {
    let digits = digits.first_chunk::<4>()?;
    let mut value = 0_u16;
    for digit in digits {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u16::from(digit);
    }
    Some(value)
}

/// The text of a string that the scan has accepted, without its quotes. Half a surrogate pair becomes U+FFFD.
pub(crate) fn unescape(raw: &[u8]) -> String {
    let mut text = Vec::with_capacity(raw.len());
    unescape_into(raw, &mut text);
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// As [`unescape`], into a buffer that is appended to.
pub(crate) fn unescape_into(raw: &[u8], text: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        text.extend_from_slice(&rest[..at]);
        let escape = rest.get(at + 1).copied().unwrap_or(b'\\');
        let mut used = 2;
        match escape {
            b'b' => text.push(0x08),
            b'f' => text.push(0x0c),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'u' => {
                let (value, length) = unicode_escape(&rest[at..]);
                let mut utf8 = [0; 4];
                text.extend_from_slice(value.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8).as_bytes());
                used = length;
            }
            other => text.push(other),
        }
        rest = rest.get(at + used..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
}

/// Undoes the `\u` escapes only: what writers differ in. Two spellings of one text become the same bytes, at the cost of a copy where there
/// are such escapes and at none where there are not.
pub(crate) fn decode_unicode_into(raw: &[u8], text: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        text.extend_from_slice(&rest[..at]);
        let used = if rest.get(at + 1) == Some(&b'u') {
            let (value, length) = unicode_escape(&rest[at..]);
            let mut utf8 = [0; 4];
            text.extend_from_slice(value.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8).as_bytes());
            length
        } else {
            text.extend_from_slice(&rest[at..(at + 2).min(rest.len())]);
            2
        };
        rest = rest.get(at + used..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
}

/// The character of the `\u` escape (or pair of escapes) at the start of `raw`, and how many bytes it takes; `None` for half a pair.
fn unicode_escape(raw: &[u8]) -> (Option<char>, usize) {
    let Some(first) = raw.get(2..).and_then(hex4) else { return (None, 2) };
    match first {
        0xd800..=0xdbff => {
            let low = raw.get(6..8).filter(|mark| *mark == b"\\u").and_then(|_| raw.get(8..)).and_then(hex4);
            match low {
                Some(low @ 0xdc00..=0xdfff) => {
                    let code = 0x10000 + ((u32::from(first) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
                    (char::from_u32(code), 12)
                }
                _ => (None, 6),
            }
        }
        _ => (char::from_u32(u32::from(first)), 6),
    }
}

/// A line for people: at most `limit` characters, control characters escaped, with marks where it was cut.
pub(crate) fn excerpt(bytes: &[u8], limit: usize) -> String {
    let head = &bytes[..bytes.len().min(4 * limit)];
    let text = String::from_utf8_lossy(head);
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == limit {
            out.push('…');
            return out;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if head.len() < bytes.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_text_and_half_pairs_a_replacement() {
        for (raw, text) in [
            (r"plain", "plain"),
            (r"a\nb\t\\\/\u0041", "a\nb\t\\/A"),
            (r"\ud83d\ude00!", "😀!"),
            (r"m\udcb2", "m\u{fffd}"),
            (r"\ud83dx", "\u{fffd}x"),
            (r"\ud83d\u0041", "\u{fffd}A"),
        ] {
            assert_eq!(unescape(raw.as_bytes()), text);
        }
    }

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt(b"abc", 8), "abc");
        assert_eq!(excerpt(b"abcdefghij", 4), "abcd…");
        assert_eq!(excerpt(b"a\0\x1b", 8), r"a\u{0}\u{1b}");
    }
}
