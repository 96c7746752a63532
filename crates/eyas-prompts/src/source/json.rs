//! A JSON parser that says what it cannot hold, where common ones change the value or give up without naming the reason.
//!
//! It differs from `serde_json` in: lone surrogates have a class of their own and can be replaced; integers beyond 64 bits are an error
//! instead of a float; repeated keys are an error; rounding of fractions is noticed; `NaN` and `Infinity` are named. What it accepts,
//! `serde_json` accepts too, with the same value.

use super::fault::{BadRow, Repair, RowFault};
use super::reader::Surrogates;
use serde_json::{Map, Number, Value};

/// Deepest nesting of lists and objects that is accepted. The prompt record adds a few levels, and common readers stop at 128.
pub const MAX_DEPTH: usize = 96;

/// A value and what was mended in it.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) value: Value,
    pub(crate) repairs: Vec<Repair>,
}

/// Parses one whole JSON value; white space around it is allowed.
pub(crate) fn parse(text: &str, surrogates: Surrogates) -> Result<Parsed, BadRow> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0, surrogates, replaced: false, rounded: false };
    parser.skip_white_space();
    let value = parser.value(0)?;
    parser.skip_white_space();
    if parser.at < parser.bytes.len() {
        return Err(parser.malformed("more data after the end of the value"));
    }
    let mut repairs = Vec::new();
    if parser.replaced {
        repairs.push(Repair::LoneSurrogateReplaced);
    }
    if parser.rounded {
        repairs.push(Repair::FloatRounded);
    }
    Ok(Parsed { value, repairs })
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    surrogates: Surrogates,
    replaced: bool,
    rounded: bool,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, BadRow> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'{') => self.object(self.deeper(depth)?),
            Some(b'[') => self.array(self.deeper(depth)?),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'N') if self.starts_with("NaN") => Err(self.not_finite("NaN")),
            Some(b'I') if self.starts_with("Infinity") => Err(self.not_finite("Infinity")),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, BadRow> {
        if depth < MAX_DEPTH {
            return Ok(depth + 1);
        }
        Err(BadRow::new(RowFault::TooDeep, format!("nested deeper than {MAX_DEPTH} levels at byte {}", self.at)))
    }

    fn object(&mut self, depth: usize) -> Result<Value, BadRow> {
        self.at += 1;
        let mut map = Map::new();
        self.skip_white_space();
        if self.take(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            self.skip_white_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key_at = self.at;
            let key = self.string()?;
            self.skip_white_space();
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            self.skip_white_space();
            let value = self.value(depth)?;
            if map.contains_key(&key) {
                let key: String = key.chars().take(60).collect();
                let detail = format!("the key `{key}` occurs twice in one object, again at byte {key_at}");
                return Err(BadRow::new(RowFault::DuplicateKey, detail));
            }
            map.insert(key, value);
            self.skip_white_space();
            if self.take(b'}') {
                return Ok(Value::Object(map));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, BadRow> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_white_space();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_white_space();
            items.push(self.value(depth)?);
            self.skip_white_space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn string(&mut self) -> Result<String, BadRow> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.bytes[self.at..];
            let Some(len) = memchr::memchr2(b'"', b'\\', rest) else {
                self.at = self.bytes.len();
                return Err(self.malformed("the row ends inside a string"));
            };
            if let Some(control) = rest[..len].iter().position(|byte| *byte < 0x20) {
                self.at += control;
                return Err(self.malformed(&format!("unescaped control character 0x{:02x} in a string", rest[control])));
            }
            // Both ends stand at ASCII bytes, so the slice falls on character boundaries.
            out.push_str(&self.text[self.at..self.at + len]);
            self.at += len + 1;
            if rest[len] == b'"' {
                return Ok(out);
            }
            out.push(self.escape()?);
        }
    }

    /// The character behind a backslash, which has been taken.
    fn escape(&mut self) -> Result<char, BadRow> {
        let Some(byte) = self.peek() else { return Err(self.malformed("the row ends inside a string")) };
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => {
                self.at -= 1;
                return Err(self.unexpected("an escape (one of \" \\ / b f n r t u)"));
            }
        })
    }

    fn unicode_escape(&mut self) -> Result<char, BadRow> {
        let start = self.at - 2;
        let first = self.four_hex_digits()?;
        if let Some(character) = char::from_u32(first) {
            return Ok(character);
        }
        let is_high = first < 0xdc00;
        if is_high && self.starts_with("\\u") {
            let after_first = self.at;
            self.at += 2;
            let second = self.four_hex_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(code).ok_or_else(|| self.malformed("not a surrogate pair"));
            }
            self.at = after_first;
        }
        match self.surrogates {
            Surrogates::Repair => {
                self.replaced = true;
                Ok(char::REPLACEMENT_CHARACTER)
            }
            Surrogates::Reject => {
                let half = if is_high { "first" } else { "second" };
                let detail = format!(
                    "lone surrogate: the escape \\u{first:04x} at byte {start} is the {half} half of a pair whose other half is missing"
                );
                Err(BadRow::new(RowFault::LoneSurrogate, detail))
            }
        }
    }

    fn four_hex_digits(&mut self) -> Result<u32, BadRow> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return Err(self.unexpected("four hexadecimal digits after \\u")) };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value, BadRow> {
        let start = self.at;
        let negative = self.take(b'-');
        if negative && self.starts_with("Infinity") {
            return Err(self.not_finite("-Infinity"));
        }
        if !self.take(b'0') && self.digits() == 0 {
            return Err(self.unexpected("a digit"));
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            if self.digits() == 0 {
                return Err(self.unexpected("a digit after the decimal point"));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            if self.digits() == 0 {
                return Err(self.unexpected("a digit in the exponent"));
            }
        }
        let literal = &self.text[start..self.at];
        let number = if is_integer { integer(literal, negative) } else { self.float(literal) };
        number.map(Value::Number).ok_or_else(|| {
            let shown: String = literal.chars().take(40).collect();
            let dots = if shown.len() < literal.len() { "…" } else { "" };
            let kind = if is_integer { "a 64-bit integer" } else { "a double" };
            let detail =
                format!("the number {shown}{dots} at byte {start} does not fit {kind} without changing its value");
            BadRow::new(RowFault::NumberOutOfRange, detail)
        })
    }

    fn float(&mut self, literal: &str) -> Option<Number> {
        let value: f64 = literal.parse().ok()?;
        let digits = SignificantDigits::of(literal);
        if !value.is_finite() || (value == 0.0 && !digits.is_zero()) {
            return None;
        }
        // Up to 15 digits always survive the way through a double (above the subnormals, which the comparison covers as well).
        let number = Number::from_f64(value)?;
        if digits.len() > 15 || value.abs() < f64::MIN_POSITIVE {
            // Rounded is what is not written as it was read; where two shortest spellings exist, the writer's choice decides.
            self.rounded |= digits != SignificantDigits::of(&number.to_string());
        }
        Some(number)
    }

    fn digits(&mut self) -> usize {
        let n = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += n;
        n
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, BadRow> {
        if !self.starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn starts_with(&self, word: &str) -> bool {
        self.bytes[self.at..].starts_with(word.as_bytes())
    }

    fn skip_white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn not_finite(&self, word: &str) -> BadRow {
        BadRow::new(RowFault::NotFinite, format!("`{word}` at byte {} is not a JSON number", self.at))
    }

    fn unexpected(&self, expected: &str) -> BadRow {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => self.malformed(&format!("expected {expected}, found {found:?}")),
            None => self.malformed(&format!("expected {expected}, but the row ends")),
        }
    }

    fn malformed(&self, what: &str) -> BadRow {
        BadRow::new(RowFault::MalformedJson, format!("malformed JSON at byte {}: {what}", self.at))
    }
}

fn integer(literal: &str, negative: bool) -> Option<Number> {
    if negative { literal.parse::<i64>().ok().map(Number::from) } else { literal.parse::<u64>().ok().map(Number::from) }
}

/// A decimal literal as digits without leading and trailing zeros, and the power of ten of the last of them; sign left out.
#[derive(PartialEq, Eq)]
struct SignificantDigits {
    digits: Vec<u8>,
    exponent: i64,
}

impl SignificantDigits {
    fn of(literal: &str) -> Self {
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let exponent: i64 = exponent.parse().unwrap_or(i64::from(i32::MAX));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = whole.bytes().chain(fraction.bytes()).filter(u8::is_ascii_digit);
        let mut digits: Vec<u8> = all.skip_while(|digit| *digit == b'0').collect();
        let mut exponent = exponent.saturating_sub(i64::try_from(fraction.len()).unwrap_or(i64::MAX));
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent = exponent.saturating_add(1);
        }
        if digits.is_empty() {
            exponent = 0;
        }
        Self { digits, exponent }
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    fn len(&self) -> usize {
        self.digits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &str) {
        match parse(text, Surrogates::Reject) {
            Ok(parsed) => assert_eq!(parsed.value.to_string(), expect, "{text}"),
            Err(bad) => panic!("{text}: {}", bad.detail),
        }
    }

    fn check_fault(text: &str, fault: RowFault, words: &str) {
        let bad = parse(text, Surrogates::Reject).expect_err(text);
        assert_eq!(bad.fault, fault, "{text}: {}", bad.detail);
        assert!(bad.detail.contains(words), "{text}: {}", bad.detail);
    }

    #[test]
    fn values_keep_type_and_spelling() {
        check(r#"{"b":[1,-2,1.5,true,null,"x"],"a":{}}"#, r#"{"b":[1,-2,1.5,true,null,"x"],"a":{}}"#);
        check("18446744073709551615", "18446744073709551615");
        check("-9223372036854775808", "-9223372036854775808");
        check("1690876800", "1690876800");
        check("-0", "0");
        check("1.10", "1.1");
        check(r#""\ud83d\ude00 \u00e9\/""#, "\"😀 é/\"");
        check("\"\\u2028\u{2028}\"", "\"\u{2028}\u{2028}\"");
    }

    #[test]
    fn what_cannot_be_held_is_named() {
        check_fault("18446744073709551616", RowFault::NumberOutOfRange, "18446744073709551616 at byte 0");
        check_fault("[-9223372036854775809]", RowFault::NumberOutOfRange, "at byte 1");
        check_fault("1e999", RowFault::NumberOutOfRange, "a double");
        check_fault("1e-999", RowFault::NumberOutOfRange, "a double");
        check_fault(r#"{"a":NaN}"#, RowFault::NotFinite, "`NaN`");
        check_fault("[-Infinity]", RowFault::NotFinite, "`-Infinity`");
        check_fault(r#"{"a":1,"b":{"a":1,"a":1}}"#, RowFault::DuplicateKey, "`a`");
        check_fault(r#""m\udcb2""#, RowFault::LoneSurrogate, "lone surrogate: the escape \\udcb2 at byte 2");
        check_fault(r#""\ud83d""#, RowFault::LoneSurrogate, "first half");
        check_fault(r#""\ud83d\u0041""#, RowFault::LoneSurrogate, "first half");
        check_fault(&"[".repeat(5000), RowFault::TooDeep, "96 levels");
        for text in [
            "", "{", "[1,]", "{\"a\"}", "{'a':1}", "01", "1.", ".5", "+1", "1e", "tru", "\"", "\"\\x\"", "\"\t\"",
            "1 2",
        ] {
            check_fault(text, RowFault::MalformedJson, "malformed JSON at byte");
        }
    }

    #[test]
    fn repair_puts_one_replacement_for_each_half() {
        let parsed = parse(r#"["m\udcb2","\ud83d\ud83d\ude00","\ud83dx"]"#, Surrogates::Repair).expect("repaired");
        assert_eq!(parsed.value, serde_json::json!(["m\u{fffd}", "\u{fffd}😀", "\u{fffd}x"]));
        assert_eq!(parsed.repairs, [Repair::LoneSurrogateReplaced]);
    }

    #[test]
    fn rounding_is_noticed_only_where_it_happens() {
        for text in
            ["0.1", "0.30000000000000004", "1.7976931348623157e308", "5e-324", "123456789012345680.0", "0.0", "0e999"]
        {
            assert_eq!(parse(text, Surrogates::Reject).expect(text).repairs, [], "{text}");
        }
        assert_eq!(
            parse("2036587202800326.2", Surrogates::Reject).expect("a number").repairs,
            [],
            "a tie between two spellings"
        );
        for text in ["3.14159265358979323846", "0.1000000000000000055511151231257827", "4e-324", "12345678901234567.8"]
        {
            assert_eq!(parse(text, Surrogates::Reject).expect(text).repairs, [Repair::FloatRounded], "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(value in any_json()) {
            let parsed = parse(&value.to_string(), Surrogates::Reject).expect("own output");
            prop_assert_eq!(parsed.value, value);
            prop_assert!(parsed.repairs.is_empty());
        }

        #[test]
        fn it_accepts_nothing_that_serde_json_refuses(text in r#"[\[\]{}:,"\\ue0-9.+\-a-fntrslNI \n]{0,24}"#) {
            if let Ok(parsed) = parse(&text, Surrogates::Reject) {
                let theirs: Value = serde_json::from_str(&text).expect("serde_json accepts it too");
                // serde_json reads `-0` as the float -0.0.
                prop_assert!(parsed.value == theirs || text.contains("-0"), "{} {}", parsed.value, theirs);
            }
        }
    }
}
