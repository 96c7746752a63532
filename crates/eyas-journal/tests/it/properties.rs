//! Append, cut anywhere, recover: what is left is a prefix.

use eyas_journal::{JournalOptions, JournalWriter, Owned, ScanOptions, scan_in};
use eyas_testkit::FakeFs;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "run/j.jsonl";

fn records(fs: &FakeFs) -> Vec<Value> {
    let mut records = Vec::new();
    scan_in::<Owned<Value>>(fs, Path::new(PATH), ScanOptions::default(), |_, record| records.push(record)).unwrap();
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_cut_at_any_byte_recovers_a_prefix(
        texts in prop::collection::vec("(?s).{0,30}", 0..12),
        cut in any::<prop::sample::Index>(),
        n_nul in 0_usize..20,
    ) {
        let written: Vec<Value> = texts.iter().enumerate().map(|(n, text)| json!({"n": n, "text": text})).collect();
        let fs = FakeFs::new();
        let mut writer = JournalWriter::open_in(Arc::new(fs.clone()), PATH, JournalOptions::default()).unwrap();
        for record in &written {
            writer.append(record).unwrap();
        }
        writer.commit().unwrap();
        drop(writer);

        let mut bytes = fs.read(PATH).unwrap_or_default();
        let full = bytes.clone();
        bytes.truncate(cut.index(bytes.len() + 1));
        let cut_at = bytes.len();
        bytes.resize(cut_at + n_nul, 0);
        fs.put(PATH, &bytes);
        let n_whole = full[..cut_at].iter().filter(|&&byte| byte == b'\n').count();
        // The last record is whole without its newline too.
        let n_expected = n_whole + usize::from(cut_at < full.len() && full[cut_at] == b'\n');

        let mut writer = JournalWriter::open_in(Arc::new(fs.clone()), PATH, JournalOptions::default()).unwrap();
        prop_assert_eq!(records(&fs), &written[..n_expected]);
        if let Some(torn) = writer.recovery().torn.clone() {
            let side = fs.read(&torn.side_file).unwrap();
            prop_assert_eq!(&side[..], &bytes[usize::try_from(torn.offset).unwrap()..], "torn bytes are kept");
        }
        let more = json!({"more": true});
        writer.append(&more).unwrap();
        writer.commit().unwrap();
        let mut expected = written[..n_expected].to_vec();
        expected.push(more);
        prop_assert_eq!(records(&fs), expected, "nothing is appended behind a torn tail");
    }
}
