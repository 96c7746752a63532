//! Every format and compression, whole and damaged.

use crate::kit::{open_error, picture, read, read_with};
use eyas_prompts::source::{Format, SourceOptions, list_data_files};
use eyas_testkit::write_file;
use std::io::Write;
use std::path::{Path, PathBuf};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(dir: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    write_file(&path, content);
    path
}

fn check(name: &str, content: impl AsRef<[u8]>, expect: &[&str]) {
    let dir = dir();
    let (rows, end) = read(file(&dir, name, content));
    assert_eq!(picture(&rows), expect, "{name}");
    assert_eq!(end.broken, None, "{name}");
}

fn check_broken(name: &str, content: impl AsRef<[u8]>, expect: &[&str], why: &str) {
    let dir = dir();
    let (rows, end) = read(file(&dir, name, content));
    assert_eq!(picture(&rows), expect, "{name}");
    let broken = end.broken.unwrap_or_default();
    assert!(broken.contains(why), "{name}: {broken}");
}

fn check_unreadable(name: &str, content: impl AsRef<[u8]>, options: &SourceOptions, why: &str) {
    let dir = dir();
    let error = open_error(file(&dir, name, content), options);
    assert!(error.contains(why), "{name}: {error}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[test]
fn json_lines_of_every_ending() {
    check("a.jsonl", "{\"a\":1}\n{\"a\":2}\n", &[r#"1 {"a":1}"#, r#"2 {"a":2}"#]);
    check("a.jsonl", "{\"a\":1}\r\n\r\n \t\n{\"a\":2}", &[r#"1 {"a":1}"#, r#"4 {"a":2}"#]);
    check("a.ndjson", "\u{feff}{\"a\":1}\n\u{feff}{\"a\":2}\n", &[r#"1 {"a":1}"#, r#"2 {"a":2}"#]);
    check("a.jsonl", "", &[]);
    check("a.jsonl", "\n\n", &[]);
    check("unknown", "{\"a\":1}\n{\"a\":2}\n", &[r#"1 {"a":1}"#, r#"2 {"a":2}"#]);
    check("one.txt", "{\"a\":1}", &[r#"1 {"a":1}"#]);
}

#[test]
fn blank_lines_and_byte_order_marks_are_counted() {
    let dir = dir();
    let (_, end) = read(file(&dir, "a.jsonl", "\u{feff}{\"a\":1}\n\n  \n{\"a\":2}\n\u{feff}\n"));
    assert_eq!((end.n_rows, end.n_blank_lines, end.n_byte_order_marks), (2, 3, 2));
}

#[test]
fn bad_rows_are_named_and_the_others_are_read() {
    let content = b"{\"a\":1}\n{\"a\":\n{\"a\":\"\xff\"}\n\0\0\0\n[1]\n7\n{\"a\":NaN}\n{\"a\":1e400}\n{\"a\":99999999999999999999}\n{\"a\":1,\"a\":2}\n{\"b\":2}";
    check(
        "a.jsonl",
        content,
        &[
            r#"1 {"a":1}"#,
            "2 malformed_json: malformed JSON at byte 5: expected a value, but the row ends",
            "3 invalid_utf8: not UTF-8 at byte 6 (0xff)",
            "4 nul_byte: 3 raw NUL bytes, the first at byte 0; a crash while the file was written leaves such rows",
            "5 not_an_object: expected an object, found a list",
            "6 not_an_object: expected an object, found a number",
            "7 not_finite: `NaN` at byte 5 is not a JSON number",
            "8 number_out_of_range: the number 1e400 at byte 5 does not fit a double without changing its value",
            "9 number_out_of_range: the number 99999999999999999999 at byte 5 does not fit a 64-bit integer without changing its value",
            "10 duplicate_key: the key `a` occurs twice in one object, again at byte 7",
            r#"11 {"b":2}"#,
        ],
    );
}

#[test]
fn rows_past_the_limit_are_skipped_without_being_held() {
    let dir = dir();
    let options = SourceOptions { max_row_bytes: 20, ..SourceOptions::default() };
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let path = file(&dir, "a.jsonl", format!("{{\"a\":1}}\n{long}\n{{\"a\":2}}\n"));
    let expect = [r#"1 {"a":1}"#, "2 row_too_large: the row has 1048584 bytes, the limit is 20", r#"3 {"a":2}"#];
    assert_eq!(picture(&read_with(path, &options).0), expect);
    let path = file(&dir, "a.json", format!("[{{\"a\":1}},{long},{{\"a\":2}}]"));
    assert_eq!(picture(&read_with(path, &options).0), expect);
}

#[test]
fn long_rows_are_read() {
    let dir = dir();
    let text = "x".repeat(8 << 20);
    let (rows, _) = read(file(&dir, "a.jsonl", format!("{{\"a\":\"{text}\"}}\n{{\"a\":1}}")));
    assert_eq!(rows[0].value.as_ref().unwrap()["a"], text.as_str());
    assert_eq!(rows.len(), 2);
}

#[test]
fn json_documents() {
    check(
        "a.json",
        "[{\"a\":1},\n {\"a\":[1,{\"b\":\"],}\\\"\"}]}]\n",
        &[r#"1 {"a":1}"#, r#"2 {"a":[1,{"b":"],}\""}]}"#],
    );
    check("a.json", "[]", &[]);
    check("a.json", "", &[]);
    check("unknown", "[\n{\"a\":1}\n]", &[r#"1 {"a":1}"#]);
    check(
        "a.json",
        r#"[{"a":1},{"a":tru},"x",7,{"a":"\udc00"},{"a":2}]"#,
        &[
            r#"1 {"a":1}"#,
            "2 malformed_json: malformed JSON at byte 5: expected a value, found 't'",
            "3 not_an_object: expected an object, found a string",
            "4 not_an_object: expected an object, found a number",
            "5 lone_surrogate: lone surrogate: the escape \\udc00 at byte 6 is the second half of a pair whose other half is missing",
            r#"6 {"a":2}"#,
        ],
    );
    // JSON lines under the name of a document.
    check("a.json", "{\"a\":1}\n{\"a\":2}\n", &[r#"1 {"a":1}"#, r#"2 {"a":2}"#]);
    check(
        "a.json",
        "{\"a\":\n{\"a\":2}\n",
        &["1 malformed_json: malformed JSON at byte 5: expected a value, but the row ends", r#"2 {"a":2}"#],
    );
}

#[test]
fn json_documents_that_break_off_keep_their_whole_rows() {
    check_broken(
        "a.json",
        "[{\"a\":1},{\"a\":",
        &[r#"1 {"a":1}"#, "2 torn_row: the file breaks off inside the row: the file ends before the list is closed"],
        "inside element 2",
    );
    check_broken("a.json", "[{\"a\":1},", &[r#"1 {"a":1}"#], "behind element 1");
    check_broken("a.json", "[{\"a\":1} {\"a\":2}]", &[r#"1 {"a":1}"#], "expected `,` or `]`, found `{`");
    check_broken("a.json", "[{\"a\":1},]", &[r#"1 {"a":1}"#], "expected an element, found `]`");
    check_broken(
        "a.json",
        "[{\"a\":1}][{\"a\":2}]",
        &[r#"1 {"a":1}"#],
        "the end of the file behind the list, found `[`",
    );
}

#[test]
fn documents_that_are_no_list_of_rows_are_named() {
    let plain = SourceOptions::default();
    let field = SourceOptions { field: Some("data".into()), ..SourceOptions::default() };
    let lines = SourceOptions { format: Some(Format::JsonLines), ..SourceOptions::default() };
    check_unreadable(
        "a.json",
        r#"{"v":1,"rows":[]}"#,
        &plain,
        "name the field that holds them; its keys are: `v`, `rows`",
    );
    check_unreadable("a.json", r#"{"v":1,"rows":[]}"#, &field, "has no field `data`; its keys are: `v`, `rows`");
    check_unreadable("a.json", r#"{"data":{"a":[]}}"#, &field, "holds an object, not a list of rows");
    check_unreadable("a.json", "[1]", &field, "the field `data` was named, but");
    check_unreadable("a.jsonl", "[1]\n[2]", &field, "is JSON lines, which has no fields at its root");
    check_unreadable("a.json", "\"x\"", &plain, "holds a string at its root");
    check_unreadable(
        "a.json",
        "{\"a\":1",
        &plain,
        "is not a whole JSON document: the file ends before the list is closed",
    );
    check_unreadable("a.jsonl", "\n [ {\"a\":1},\n{\"a\":2}]", &plain, "line 2: the file is a single JSON array");
    check_unreadable("a.txt", "[{\"a\":1}]", &lines, "line 1: the file is a single JSON array");
    check_unreadable(
        "a.jsonl",
        "{\n \"data\": [\n]}",
        &plain,
        "line 1: the file is a single JSON object spread over many lines",
    );
    check_unreadable("a.jsonl", b"\xff\xfe{\0", &plain, "is UTF-16");
    check_unreadable("a.parquet", "{}", &plain, "is not a Parquet file: it does not begin with PAR1 but with `{}`");
    check_unreadable("a.parquet", "PAR1 and no more", &plain, "its footer cannot be read, so it is cut or damaged");
    let dir = dir();
    assert!(open_error(dir.path().join("no.jsonl"), &plain).contains("cannot read"));
}

#[test]
fn a_named_field_is_enough_to_read_a_document_of_any_name() {
    let dir = dir();
    let field = SourceOptions { field: Some("data".into()), ..SourceOptions::default() };
    for name in ["a.json", "a.jsonl", "a"] {
        let (rows, end) = read_with(file(&dir, name, r#"{"v":{"data":[]},"data":[{"a":1}],"w":2}"#), &field);
        assert_eq!(picture(&rows), [r#"1 {"a":1}"#], "{name}");
        assert_eq!(end.broken, None);
    }
}

#[test]
fn gzip_and_zstd_of_several_parts() {
    let parts = ["{\"a\":1}\n{\"a\"", ":2}\n", "{\"a\":3}"];
    let expect = [r#"1 {"a":1}"#, r#"2 {"a":2}"#, r#"3 {"a":3}"#];
    let members: Vec<u8> = parts.iter().flat_map(|part| gzip(part.as_bytes())).collect();
    let frames: Vec<u8> = parts.iter().flat_map(|part| zst(part.as_bytes())).collect();
    check("a.jsonl.gz", &members, &expect);
    check("a.jsonl.zst", &frames, &expect);
    // Content decides where the name promises nothing.
    check("a.jsonl", &members, &expect);
    check("a.json.gz", gzip(b"[{\"a\":1}]"), &[r#"1 {"a":1}"#]);
    check("a.json.zst", zst(b"[{\"a\":1}]"), &[r#"1 {"a":1}"#]);
    check("a.jsonl.gz", b"", &[]);
}

#[test]
fn damaged_compression_keeps_the_whole_rows_before() {
    let plain = SourceOptions::default();
    let rows: Vec<String> = (0..20_000).map(|n| format!("{{\"n\":{n},\"x\":\"{}\"}}", (n * 7919) % 10_007)).collect();
    let text = rows.join("\n");
    for (name, packed) in [("a.jsonl.gz", gzip(text.as_bytes())), ("a.jsonl.zst", zst(text.as_bytes()))] {
        let dir = dir();
        let (read_rows, end) = read(file(&dir, name, &packed[..packed.len() * 4 / 5]));
        let why = end.broken.unwrap_or_default();
        assert!(why.contains("after line"), "{name}: {why}");
        assert!(read_rows.len() > 1000, "{name}: {}", read_rows.len());
        let (last, whole) = read_rows.split_last().unwrap();
        for (n, row) in whole.iter().enumerate() {
            assert_eq!(row.value.as_ref().unwrap()["n"], n);
        }
        if let Err(bad) = &last.value {
            assert_eq!(bad.fault.as_str(), "torn_row");
        }
    }
    check_unreadable(
        "a.jsonl.gz",
        "{\"a\":1}",
        &plain,
        "is named .gz, but its content is not gz; it begins with `{\\\"a",
    );
    check_unreadable("a.jsonl.zst", gzip(b"x").get(2..).unwrap_or_default(), &plain, "is named .zst");
    check_unreadable("a.jsonl.gz", b"\x1f\x8b\x08\xff damaged", &plain, "cannot be decompressed");
    check_unreadable("a.jsonl.zst", &zst(b"{\"a\":1}")[..7], &plain, "cannot be decompressed");
    check_unreadable("a.parquet.gz", gzip(b"PAR1"), &plain, "Parquet inside another compression");
}

#[test]
fn folders_are_their_data_files_by_name() {
    let dir = dir();
    for name in ["b.jsonl", "a.json.gz", "README.md", ".hidden.jsonl", "deep/c.jsonl"] {
        write_file(dir.path().join(name), "");
    }
    let list = list_data_files(&[dir.path().to_owned(), Path::new("other.txt").to_owned()]).unwrap();
    let base = |path: &String| path.rsplit('/').next().unwrap().to_owned();
    assert_eq!(
        list.files.iter().map(|file| base(&file.name)).collect::<Vec<_>>(),
        ["a.json.gz", "b.jsonl", "other.txt"]
    );
    assert_eq!(list.passed_over.iter().map(base).collect::<Vec<_>>(), [".hidden.jsonl", "README.md", "deep"]);

    let error = list_data_files(&[dir.path().join("deep"), dir.path().join("none")]).unwrap();
    assert_eq!(error.files.len(), 2, "a path that is not there is an error when it is opened");
    write_file(dir.path().join("empty/notes.txt"), "");
    let error = list_data_files(&[dir.path().join("empty")]).unwrap_err().to_string();
    assert!(error.contains("no data files in") && error.ends_with("it holds: `notes.txt`"), "{error}");
}
