//! Parquet, written column by column with definition and repetition levels.

use crate::kit::{Prepared, picture, read, roles};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A column: definition levels, repetition levels, values.
struct Column(Vec<i16>, Vec<i16>, Values);

enum Values {
    Text(Vec<&'static [u8]>),
    Long(Vec<i64>),
    Int(Vec<i32>),
    Double(Vec<f64>),
    Float(Vec<f32>),
    Bool(Vec<bool>),
}

fn write(path: &Path, schema: &str, compression: Compression, row_groups: Vec<Vec<Column>>) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    for columns in row_groups {
        let mut group = writer.next_row_group().unwrap();
        for Column(def, rep, values) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            let (def, rep) = (Some(def.as_slice()), Some(rep.as_slice()));
            match (column.untyped(), values) {
                (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(texts)) => {
                    let texts: Vec<ByteArray> = texts.into_iter().map(ByteArray::from).collect();
                    writer.write_batch(&texts, def, rep).unwrap();
                }
                (ColumnWriter::Int64ColumnWriter(writer), Values::Long(values)) => {
                    writer.write_batch(&values, def, rep).unwrap();
                }
                (ColumnWriter::Int32ColumnWriter(writer), Values::Int(values)) => {
                    writer.write_batch(&values, def, rep).unwrap();
                }
                (ColumnWriter::DoubleColumnWriter(writer), Values::Double(values)) => {
                    writer.write_batch(&values, def, rep).unwrap();
                }
                (ColumnWriter::FloatColumnWriter(writer), Values::Float(values)) => {
                    writer.write_batch(&values, def, rep).unwrap();
                }
                (ColumnWriter::BoolColumnWriter(writer), Values::Bool(values)) => {
                    writer.write_batch(&values, def, rep).unwrap();
                }
                _ => panic!("the values do not fit the schema"),
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

const CHATS: &str = "message chats {
    optional binary id (STRING);
    optional group conversations (LIST) {
        repeated group list {
            optional group element {
                optional binary from (STRING);
                optional binary value (STRING);
                optional int64 weight;
            }
        }
    }
}";

/// Three rows: two turns (the second with a weight), null, no turns.
fn chats() -> Vec<Column> {
    vec![
        Column(vec![1, 1, 1], vec![0, 0, 0], Values::Text(vec![b"a", b"b", b"c"])),
        Column(vec![4, 4, 0, 1], vec![0, 1, 0, 0], Values::Text(vec![b"human", b"gpt"])),
        Column(vec![4, 4, 0, 1], vec![0, 1, 0, 0], Values::Text(vec!["hé\u{2028}".as_bytes(), b"yo"])),
        Column(vec![3, 4, 0, 1], vec![0, 1, 0, 0], Values::Long(vec![5])),
    ]
}

#[test]
fn nested_lists_become_conversations() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chats.parquet");
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())] {
        write(&path, CHATS, compression, vec![chats(), chats()]);
        let (rows, end) = read(&path);
        assert_eq!(end.broken, None);
        let group = [
            "{\"id\":\"a\",\"conversations\":[{\"from\":\"human\",\"value\":\"hé\u{2028}\"},{\"from\":\"gpt\",\"value\":\"yo\",\"weight\":5}]}",
            "{\"id\":\"b\",\"conversations\":null}",
            "{\"id\":\"c\",\"conversations\":[]}",
        ];
        let expect: Vec<String> =
            group.iter().chain(&group).enumerate().map(|(n, row)| format!("{} {row}", n + 1)).collect();
        assert_eq!(picture(&rows), expect);
    }
    let prepared = Prepared::new(std::slice::from_ref(&path));
    let report = prepared.run().unwrap();
    assert_eq!((report.read, report.loaded, report.rejected), (6, 2, 4));
    assert_eq!(report.files[0].layout, "Parquet");
    assert_eq!(report.rejected_by_reason.keys().collect::<Vec<_>>(), ["empty_conversation", "null_conversation"]);
    assert_eq!(roles(&prepared.prompts()[0]), ["user", "assistant"]);
    assert_eq!(prepared.prompts()[0].reference.as_ref().unwrap().extra["weight"], 5);
}

#[test]
fn types_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("types.parquet");
    let schema = "message types {
        required int64 long; required int32 int; required int32 small (INTEGER(8,true)); required int64 big (INTEGER(64,false));
        required double double; required float float; required boolean yes; required binary raw; required binary old_text;
        required int32 day (DATE); required int64 price (DECIMAL(10,2));
    }";
    let one = || vec![0];
    let column = |values| Column(one(), one(), values);
    let row = |double: f64| {
        vec![
            column(Values::Long(vec![1_690_876_800])),
            column(Values::Int(vec![-7])),
            column(Values::Int(vec![5])),
            column(Values::Long(vec![-1])),
            column(Values::Double(vec![double])),
            column(Values::Float(vec![0.1])),
            column(Values::Bool(vec![true])),
            column(Values::Text(vec![b"\xff\x00"])),
            column(Values::Text(vec!["é".as_bytes()])),
            column(Values::Int(vec![19_723])),
            column(Values::Long(vec![1234])),
        ]
    };
    write(&path, schema, Compression::UNCOMPRESSED, vec![row(2.0), row(f64::NAN)]);
    let (rows, _) = read(&path);
    assert_eq!(
        picture(&rows),
        [
            "1 {\"long\":1690876800,\"int\":-7,\"small\":5,\"big\":18446744073709551615,\"double\":2.0,\"float\":0.1,\
             \"yes\":true,\"raw\":\"/wA=\",\"old_text\":\"é\",\"day\":\"2024-01-01\",\"price\":\"12.34\"}",
            "2 not_finite: `NaN` is not a JSON number",
        ]
    );
}

#[test]
fn a_damaged_file_never_stops_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chats.parquet");
    write(&path, CHATS, Compression::SNAPPY, vec![chats(), chats()]);
    let whole = std::fs::read(&path).unwrap();
    let damaged = dir.path().join("damaged.parquet");
    // Text that is not UTF-8 ends the file's reading, and says how much is lost.
    let at = whole.windows(5).position(|bytes| bytes == b"human").unwrap();
    for (at, byte) in (4..whole.len()).step_by(3).map(|at| (at, 0x5a)).chain([(at, 0xff)]) {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        eyas_testkit::write_file(&damaged, &bytes);
        if let Ok(reader) = eyas_prompts::source::RowReader::open(&damaged, &Default::default()) {
            assert!(reader.take(1000).count() < 1000, "byte {at}");
        }
    }
    for len in (4..whole.len()).step_by(7) {
        eyas_testkit::write_file(&damaged, &whole[..len]);
        assert!(eyas_prompts::source::RowReader::open(&damaged, &Default::default()).is_err(), "{len} bytes");
    }
}
