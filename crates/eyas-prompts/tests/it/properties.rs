//! read = loaded + rejected over anything, and values that come through unchanged.

use crate::kit::{Prepared, read};
use eyas_prompts::prepare::{PrepareError, PrepareReport};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const GOOD: &str = r#"{"id":"a","messages":[{"role":"user","content":"1 é 😀"},{"role":"assistant","content":"x","tool_calls":"[{\"name\":\"f\",\"arguments\":\"{}\"}]"}],"tools":[{"a":1.5}]}
{"id":"b","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"}]}]}
{"id":7,"conversations":[{"from":"human","value":"q"}],"messages":[{"role":"human","content":"\ud83d\ude00"},{"role":"model","content":null}]}
{"messages":[{"role":"user","content":"e"},{"role":"assistant","content":"","function_call":{"name":"g"}},{"role":"function","name":"g","content":"{}"}]}
"#;

/// A file with some bytes put in, taken out or changed.
fn mutated(text: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let bytes = text.as_bytes().to_vec();
    let len = bytes.len();
    let change = (0..len, prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\\n\0 untf0".to_vec())], 0..3u8);
    prop::collection::vec(change, 0..6).prop_map(move |changes| {
        let mut bytes = bytes.clone();
        for (at, byte, kind) in changes {
            let at = at.min(bytes.len().saturating_sub(1));
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

/// Counts of a run, whatever its outcome; `None` when the file is refused as a whole.
fn counted(prepared: &Prepared) -> Option<PrepareReport> {
    match prepared.run() {
        Ok(report) => Some(report),
        Err(PrepareError::NothingKept { report }) => {
            assert!(report.adds_up());
            Some(*report)
        }
        Err(PrepareError::Write { path, source }) => panic!("{}: {source}", path.display()),
        Err(PrepareError::Open(_) | PrepareError::NoSchema { .. } | PrepareError::NothingRead { .. }) => None,
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\u{2028}é\"\\\\]{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_line_of_a_damaged_file_is_loaded_or_rejected(bytes in mutated(GOOD)) {
        let n_lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count() as u64;
        let prepared = Prepared::of("a.jsonl", &bytes);
        if let Some(report) = counted(&prepared) {
            prop_assert_eq!(report.read, n_lines);
        }
    }

    #[test]
    fn a_damaged_document_never_stops_the_program(bytes in mutated(&format!("[{}]", GOOD.trim().replace('\n', ",\n")))) {
        for name in ["a.json", "a.jsonl", "a"] {
            counted(&Prepared::of(name, &bytes));
        }
    }

    #[test]
    fn damaged_compression_never_stops_the_program(at in 0usize..10_000, byte in 1u8..) {
        let text = GOOD.repeat(20);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
        for (name, mut packed) in [("a.jsonl.gz", gz.finish().unwrap()), ("a.jsonl.zst", zstd::encode_all(text.as_bytes(), 3).unwrap())] {
            let at = at % packed.len();
            packed[at] ^= byte;
            counted(&Prepared::of(name, &packed));
        }
    }

    #[test]
    fn values_come_through_unchanged(values in prop::collection::vec(any_value(), 1..5)) {
        let rows: Vec<Value> = values.iter().map(|value| json!({"v": value, "w": 1})).collect();
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [("a.jsonl", lines), ("a.json", Value::from(rows.clone()).to_string()), ("b.json", format!("{:#}", Value::from(rows.clone())))] {
            let path = dir.path().join(name);
            eyas_testkit::write_file(&path, content);
            let (found, end) = read(&path);
            prop_assert_eq!(end.broken, None);
            let found: Vec<Value> = found.into_iter().map(|row| Value::Object(row.value.unwrap())).collect();
            prop_assert_eq!(&found, &rows);
        }
    }

    #[test]
    fn the_order_is_a_permutation_and_caps_are_prefixes(n in 1usize..40, seed in any::<u64>(), cap in 0u64..50) {
        let content: String = (0..n).map(|n| format!("{{\"prompt\":\"{}\"}}\n", n / 2)).collect();
        let mut prepared = Prepared::of("a.jsonl", content);
        prepared.plan.seed = seed;
        prepared.run().unwrap();
        let mut all = prepared.prompts();
        prepared.plan.filter.max_prompts = Some(cap);
        if cap == 0 {
            let nothing_kept = matches!(prepared.run(), Err(PrepareError::NothingKept { .. }));
            prop_assert!(nothing_kept);
        } else {
            prepared.run().unwrap();
            let capped = prepared.prompts();
            prop_assert_eq!(&capped[..], &all[..capped.len()]);
            prop_assert_eq!(capped.len() as u64, cap.min(n as u64));
        }
        all.sort_by_key(|prompt| prompt.source.row);
        let rows: Vec<u64> = all.iter().map(|prompt| prompt.source.row).collect();
        prop_assert_eq!(rows, (1..=n as u64).collect::<Vec<_>>());
    }
}
