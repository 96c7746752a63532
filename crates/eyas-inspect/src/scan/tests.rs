use super::*;
use crate::{
    lines::{LineScan, Scanned},
    locations::{Field, Locations},
    plan::InspectPlan,
};
use proptest::{prelude::*, strategy::ValueTree};

/// Scans `text` in pieces of `piece` bytes.
fn scan(text: &[u8], piece: usize) -> Scanned {
    let plan = InspectPlan::new(["unused"]);
    let locations = Locations::new(&[]).unwrap();
    let mut rows = LineScan::new(&plan, &locations, "d");
    for bytes in text.chunks(piece.max(1)) {
        rows.space()[..bytes.len()].copy_from_slice(bytes);
        rows.filled(bytes.len());
    }
    rows.finish()
}

/// `parsed`, the names of remarks, or the class of the only line.
fn class(line: &[u8]) -> String {
    let mut text = line.to_vec();
    text.push(b'\n');
    let scanned = scan(&text, 1 << 16);
    assert_eq!(scanned.n_lines, 1, "{}", String::from_utf8_lossy(line));
    let tally = scanned.tally;
    let fault = Fault::ALL.into_iter().find(|fault| tally.malformed[*fault as usize].count == 1);
    let remarks = Remark::ALL.into_iter().filter(|remark| tally.remarks[*remark as usize].count == 1);
    match (tally.parsed, tally.blank, fault) {
        (1, 0, None) => [vec!["parsed"], remarks.map(Remark::name).collect()].concat().join(" "),
        (0, 1, None) => "blank".to_owned(),
        (0, 0, Some(fault)) => fault.name().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_line_has_its_own_class() {
    let deep = |n: usize| [b"{\"a\":".to_vec(), vec![b'['; n], vec![b']'; n], b"}".to_vec()].concat();
    let cases: Vec<(&[u8], &str)> = vec![
        (br#"{"id":"a","text":"x"}"#, "parsed"),
        (br#" { "id" : [ ] , "n" : [ -1.5e+3 , 0 , {} ] } "#, "parsed"),
        (b"{\"id\":\"a\"}\r", "parsed crlf"),
        (b"", "blank"),
        (b" \t\r", "blank"),
        (br#"{"id":"a","text":"x"#, "torn"),
        (br#"{"id":"a","#, "torn"),
        (br#"{"id":tru"#, "torn"),
        (br#"{"id":1"#, "torn"),
        (br#"{"id":-"#, "torn"),
        (br#"{"id":"a\"#, "torn"),
        (br#"{"id":"a\u00"#, "torn"),
        (br#"{"id":[1,2"#, "torn"),
        (br#"{"id":"a","text":"x{"id":"b","text":"y"}"#, "fused"),
        (br#"{"id":"a"}{"id":"b"}"#, "fused"),
        (br#"{"id":"a"}x"#, "trailing"),
        (br#"{"id":"a"},"#, "trailing"),
        (b"{\"id\":\"a\xff\"}", "invalid_utf8"),
        (b"{\"id\":\"\xed\xa0\x80\"}", "invalid_utf8"),
        (b"{\"id\":\"\xe2\x82\"}", "invalid_utf8"),
        (b"{\xff\"id\":1}", "invalid_utf8"),
        (b"{\"id\":\"a\tb\"}", "control_character"),
        (b"\0\0\0\0", "nul"),
        (b"\0\0{\"id\":\"a\"}", "nul"),
        (b"{\"id\":\"a\0\"}", "nul"),
        (b"{\"id\":\"a\"}\0\0", "nul"),
        (br#"{"id":"\x"}"#, "bad_escape"),
        (br#"{"id":"\u12g4"}"#, "bad_escape"),
        (br#"{"id":01}"#, "syntax"),
        (br#"{"id":1.}"#, "syntax"),
        (br#"{"id":[1,]}"#, "syntax"),
        (br#"{"id":[1,,2]}"#, "syntax"),
        (br#"{"id":[1, 02]}"#, "syntax"),
        (br#"{"id":1,}"#, "syntax"),
        (br#"{id:1}"#, "syntax"),
        (br#"{"id" 1}"#, "syntax"),
        (br#"{"id":tree}"#, "syntax"),
        (br#"hello"#, "syntax"),
        (br#"total 5"#, "syntax"),
        (br#"[{"id":1}]"#, "not_an_object"),
        (br#""text""#, "not_an_object"),
        (br#"17"#, "not_an_object"),
        (br#"{"p":NaN,"q":-Infinity}"#, "parsed not_a_number"),
        (br#"{"t":"area 5 m\udcb2"}"#, "parsed lone_surrogate"),
        (br#"{"t":"\ud83dx"}"#, "parsed lone_surrogate"),
        (br#"{"t":"ok \ud83d\ude00"}"#, "parsed"),
        (br#"{"a":1,"b":2,"a":3}"#, "parsed duplicate_key"),
        (br#"{"a":{"b":2,"\u0062":3}}"#, "parsed duplicate_key"),
        ("{\"t\":\"x\u{2028}y\u{2029}z\u{85}w\\u000bv\"}".as_bytes(), "parsed"),
        (br#"{"n":123456789012345678901234567890123456789}"#, "parsed"),
    ];
    for (line, expect) in cases {
        assert_eq!(class(line), expect, "{}", String::from_utf8_lossy(line));
    }
    assert_eq!(class(&deep(600)), "parsed");
    assert_eq!(class(&deep(1023)), "parsed");
    assert_eq!(class(&deep(1024)), "too_deep");
    assert_eq!(class(&deep(100_000)), "too_deep");
    let deep_objects = [b"{\"a\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat();
    assert_eq!(class(&deep_objects), "too_deep");
}

#[test]
fn the_last_line_is_in_progress_unless_it_is_whole() {
    let check = |text: &str, expect: (u64, u64, u64, bool)| {
        for piece in [1, 3, 1000] {
            let scanned = scan(text.as_bytes(), piece);
            let got = (scanned.n_lines, scanned.tally.parsed, scanned.tally.in_progress, scanned.no_final_newline);
            assert_eq!(got, expect, "{text} in pieces of {piece}");
        }
    };
    check("", (0, 0, 0, false));
    check("{\"id\":1}\n", (1, 1, 0, false));
    check("{\"id\":1}\n{\"id\":2}", (2, 2, 0, true));
    check("{\"id\":1}\n{\"id\":2", (2, 1, 1, false));
    check("{\"id\": \"c\", \"status\": \"success\", \"tex", (1, 0, 1, false));
}

#[test]
fn many_keys_and_long_strings_are_compared_whole() {
    let keys: Vec<String> = (0..5000).map(|n| format!("\"a_rather_long_key_{n}\":{n}")).collect();
    assert_eq!(class(format!("{{{}}}", keys.join(",")).as_bytes()), "parsed");
    let twice = format!("{{{},\"a_rather_long_key_17\":0}}", keys.join(","));
    assert_eq!(class(twice.as_bytes()), "parsed duplicate_key");
}

#[test]
fn code_points_are_counted_whatever_their_spelling() {
    for text in ["plain", "é ü 漢字 😀", "a\nb\t\"c\"\\", &"x€".repeat(100), &"😀".repeat(33)] {
        for json in [serde_json::to_string(text).unwrap(), ascii_json(text)] {
            let line = format!("{{\"content\":{json}}}\n");
            let tally = scan(line.as_bytes(), 1 << 16).tally;
            assert_eq!(tally.finished_characters.sum(), text.chars().count() as u64, "{line}");
        }
    }
}

/// As Python's `json.dumps` writes it by default.
fn ascii_json(text: &str) -> String {
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

#[test]
fn integer_arrays_of_any_length_are_counted() {
    for n in [1_usize, 2, 12, 13, 14, 63, 64, 65, 200, 5000] {
        for separator in [",", ", ", " , "] {
            let ids: Vec<String> = (0..n).map(|id| (id * 7919 % 150_000).to_string()).collect();
            let line = format!("{{\"output_ids\":[{}]}}\n", ids.join(separator));
            let tally = scan(line.as_bytes(), 1 << 16).tally;
            assert_eq!((tally.parsed, tally.finished_tokens.sum()), (1, n as u64), "{n} {separator:?}");
        }
    }
}

#[test]
fn a_line_beyond_the_limit_is_counted_and_the_next_one_read() {
    let mut plan = InspectPlan::new(["unused"]);
    plan.max_line_bytes = 1 << 20;
    let locations = Locations::new(&[]).unwrap();
    let text = format!("{{\"id\":1}}\n{{\"id\":\"{}\"}}\n{{\"id\":3}}\n", "x".repeat(3 << 20));
    for piece in [1000, 100_000] {
        let mut rows = LineScan::new(&plan, &locations, "d");
        for bytes in text.as_bytes().chunks(piece) {
            rows.space()[..bytes.len()].copy_from_slice(bytes);
            rows.filled(bytes.len());
        }
        let scanned = rows.finish();
        let too_long = &scanned.tally.malformed[Fault::TooLong as usize];
        assert_eq!((scanned.n_lines, scanned.tally.parsed, too_long.count), (3, 2, 1), "{piece}");
        assert_eq!((too_long.examples[0].line, too_long.examples[0].byte), (2, 9));
        assert_eq!(scanned.text_bytes, text.len() as u64);
    }
}

/// What a reader that is not ours says of a line: JSON by serde_json and UTF-8 by the standard library.
fn oracle(line: &[u8]) -> bool {
    let object = line.trim_ascii().first() == Some(&b'{');
    object && std::str::from_utf8(line).is_ok() && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

fn agrees_with_oracle(line: &[u8]) {
    let line: Vec<u8> = line.iter().copied().filter(|byte| *byte != b'\n').collect();
    let class = class(&line);
    let parsed = class.starts_with("parsed") && !class.contains("not_a_number");
    assert_eq!(parsed, oracle(&line), "{class}: {:?}", String::from_utf8_lossy(&line));
}

/// JSON values with the spellings that occur in the wild.
fn json_value() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        "[ -~]{0,90}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        "\\PC{0,40}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        "\\PC{0,20}".prop_map(|text| ascii_json(&text)),
        Just(r#""\ud83d""#.to_owned()),
    ];
    let leaf = prop_oneof![
        4 => text,
        2 => any::<i32>().prop_map(|n| n.to_string()),
        1 => any::<f32>().prop_map(|n| format!("{n:e}")),
        1 => prop::sample::select(vec!["true", "false", "null", "NaN", "-Infinity", "0", "-0.0", "1E9"]).prop_map(str::to_owned),
        2 => prop::collection::vec(0_u32..200_000, 0..70).prop_map(|ids| format!("{ids:?}")),
        1 => prop::collection::vec(0_u32..9, 0..70).prop_map(|ids| format!("{ids:?}").replace(' ', "")),
    ];
    let key = prop::sample::select(vec![
        "id",
        "content",
        "usage",
        "messages",
        "role",
        "completion_tokens",
        "output_ids",
        "x",
    ]);
    leaf.prop_recursive(3, 40, 6, move |inner| {
        let member = (key.clone(), inner.clone()).prop_map(|(key, value)| format!("\"{key}\": {value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(|values| format!("[{}]", values.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(", "))),
        ]
    })
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    (json_value(), json_value())
        .prop_map(|(a, b)| format!("{{\"id\":\"r\",\"content\":{a},\"extra\":{b}}}").into_bytes())
}

/// Records with a few bytes changed, put in or taken out.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"\"\\{}[],:\n\0 0e.u-".to_vec()),
        prop::sample::select(vec![0xff_u8, 0xc3, 0xa9, 0xed, 0xa0, 0x80, 0xf0]),
    ];
    let edit = (any::<prop::sample::Index>(), 0..3_u8, byte);
    (record(), prop::collection::vec(edit, 0..4)).prop_map(|(mut line, edits)| {
        for (place, what, byte) in edits {
            let at = place.index(line.len().max(1));
            match what {
                0 if at < line.len() => line[at] = byte,
                1 if at < line.len() => drop(line.remove(at)),
                _ => line.insert(at.min(line.len()), byte),
            }
        }
        line
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn validity_is_what_serde_json_says(line in damaged()) {
        agrees_with_oracle(&line);
    }

    #[test]
    fn validity_of_noise_is_what_serde_json_says(line in prop::collection::vec(prop::sample::select(b"{}[]\",:\\u0019e+-.aNtrufalsenl \xc3\xa9\xff".to_vec()), 0..40)) {
        agrees_with_oracle(&line);
    }

    #[test]
    fn lines_always_add_up_however_the_bytes_come(
        lines in prop::collection::vec(damaged(), 0..12), noise in prop::collection::vec(any::<u8>(), 0..40), piece in 1_usize..300,
    ) {
        let mut text = lines.join(&b'\n');
        text.extend(noise);
        let whole = scan(&text, 1 << 16);
        let tally = &whole.tally;
        let malformed: u64 = tally.malformed.iter().map(|class| class.count).sum();
        prop_assert_eq!(whole.n_lines, tally.parsed + malformed + tally.blank + tally.in_progress);
        let n_newlines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        let unfinished = u64::from(!text.is_empty() && text.last() != Some(&b'\n'));
        prop_assert_eq!(whole.n_lines, n_newlines + unfinished);
        prop_assert_eq!(whole.text_bytes, text.len() as u64);

        let pieces = scan(&text, piece);
        prop_assert_eq!(format!("{:?}", pieces.tally), format!("{:?}", whole.tally));
    }
}

#[test]
fn the_portable_twin_sees_the_same() {
    let locations = Locations::new(&[]).unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..500 {
        let mut line = damaged().new_tree(&mut runner).unwrap().current();
        line.push(b'\n');
        let end = line.len();
        line.resize(end + PADDING, 0);
        struct One<'a, 'l>(&'a mut Scanner<'l>, &'a [u8], usize);
        impl WithBlocks for One<'_, '_> {
            type Out = Row;
            #[inline(always)]
            fn run<B: Blocks>(self, blocks: B) -> Row {
                self.0.row(blocks, self.1, 0, self.2)
            }
        }
        let (mut best, mut portable) = (Scanner::new(&locations), Scanner::new(&locations));
        let a = with_best(One(&mut best, &line, end));
        let b = portable.row(Portable, &line, 0, end);
        assert_eq!(format!("{a:?} {:?}", best.captures), format!("{b:?} {:?}", portable.captures));
    }
}

#[test]
fn the_last_assistant_message_counts_and_only_as_the_last() {
    let locations = Locations::new(&[]).unwrap();
    let check = |line: &str, path: &str, expect: Option<&str>| {
        let mut region = format!("{line}\n").into_bytes();
        let end = region.len();
        region.resize(end + PADDING, 0);
        let mut scanner = Scanner::new(&locations);
        assert_eq!(scanner.row(Portable, &region, 0, end).outcome, Outcome::Parsed, "{line}");
        let slot = locations.slots.iter().position(|slot| slot.path == path && slot.field != Field::Role).unwrap();
        let got = scanner.captures.get(u16::try_from(slot).unwrap());
        assert_eq!(got.map(|value| std::str::from_utf8(value.of(&region)).unwrap()), expect, "{line}");
    };
    let two = r#"{"messages":[{"role":"user","content":"q"},{"content":"a1","reasoning_content":"r1","role":"assistant"},{"role":"user","content":"q2"},{"role":"assistant","content":"a2"}]}"#;
    check(two, "messages[last].content", Some("a2"));
    check(two, "messages[last].reasoning_content", None);
    let ends_with_user = r#"{"messages":[{"role":"assistant","content":"a1"},{"role":"user","content":"q2"}]}"#;
    check(ends_with_user, "messages[last].content", None);
    let sharegpt = r#"{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}"#;
    check(sharegpt, "conversations[last].value", Some("a"));
    check(
        r#"{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}}]}"#,
        "choices[0].message.content",
        Some("a"),
    );
    check(r#"{"usage":{"completion_tokens":7}}"#, "usage.completion_tokens", Some("7"));
}
