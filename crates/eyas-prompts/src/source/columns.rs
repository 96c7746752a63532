//! Parquet rows as JSON objects, types kept.

use super::fault::{BadRow, RowFault};
use super::reader::{RawRow, ReadEnd};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use serde_json::{Map, Number, Value};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(super) struct Columns {
    /// `None` once the end or a break is reached.
    rows: Option<RowIter<'static>>,
    /// Rows that the footer promises.
    n_promised: u64,
    end: ReadEnd,
}

impl Columns {
    /// Reads the footer.
    pub(super) fn open(file: File) -> Result<Self, String> {
        guarded(|| {
            let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
            let n_promised = u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or_default();
            let rows = RowIter::from_file_into(Box::new(reader));
            Ok(Self { rows: Some(rows), n_promised, end: ReadEnd::default() })
        })
    }

    pub(super) fn end(&self) -> &ReadEnd {
        &self.end
    }

    /// How many of `n_bytes` stand for the rows read so far, for progress.
    pub(super) fn share_of(&self, n_bytes: u64) -> u64 {
        match (self.n_promised, &self.rows) {
            (0, _) | (_, None) => n_bytes,
            (n_promised, Some(_)) => n_bytes.saturating_mul(self.end.n_rows.min(n_promised)) / n_promised,
        }
    }

    pub(super) fn next_row(&mut self) -> Option<RawRow> {
        let rows = self.rows.as_mut()?;
        let next = guarded(|| rows.next().transpose().map_err(|error| error.to_string()));
        match next {
            Ok(Some(row)) => {
                self.end.n_rows += 1;
                let value = object(row, Nulls::Keep);
                Some(RawRow { row: self.end.n_rows, value, repairs: Vec::new() })
            }
            Ok(None) => {
                self.rows = None;
                if self.end.n_rows != self.n_promised {
                    let (found, promised) = (self.end.n_rows, self.n_promised);
                    self.end.broken = Some(format!("{found} rows found, the footer promises {promised}"));
                }
                None
            }
            Err(why) => {
                self.rows = None;
                let (found, promised) = (self.end.n_rows, self.n_promised);
                let n_lost = promised.saturating_sub(found);
                let why = shortened(&why);
                self.end.broken =
                    Some(format!("{why}, after row {found}; {n_lost} rows that the footer promises are not read"));
                None
            }
        }
    }
}

/// The decoder asserts some things of schemas and pages; on a damaged file that must stay an error of the file.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|cause| {
        let words = cause.downcast_ref::<String>().map(String::as_str).or(cause.downcast_ref::<&str>().copied());
        Err(format!("the Parquet decoder gave up: {}", words.unwrap_or("no reason given")))
    })
}

/// Decoder errors can quote whole pages.
fn shortened(why: &str) -> String {
    match why.char_indices().nth(300) {
        Some((cut, _)) => format!("{}…", &why[..cut]),
        None => why.to_owned(),
    }
}

/// Whether a key whose value is null stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// A column: the row really has it as null.
    Keep,
    /// Inside a struct, where null also stands for "not there".
    LeaveOut,
}

fn object(row: Row, nulls: Nulls) -> Result<Map<String, Value>, BadRow> {
    let mut map = Map::new();
    for (key, field) in row.into_columns() {
        if field == Field::Null && nulls == Nulls::LeaveOut {
            continue;
        }
        let value = value(field)?;
        if map.insert(key.clone(), value).is_some() {
            return Err(BadRow::new(RowFault::DuplicateKey, format!("two columns are named `{key}`")));
        }
    }
    Ok(map)
}

fn value(field: Field) -> Result<Value, BadRow> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => value.into(),
        Field::Byte(value) => value.into(),
        Field::Short(value) => value.into(),
        Field::Int(value) => value.into(),
        Field::Long(value) => value.into(),
        Field::UByte(value) => value.into(),
        Field::UShort(value) => value.into(),
        Field::UInt(value) => value.into(),
        Field::ULong(value) => value.into(),
        Field::Float16(value) => float(f64::from(value))?,
        // The shortest spelling that gives the 32-bit value back: 0.1, not 0.10000000149011612.
        Field::Float(value) => float(value.to_string().parse().unwrap_or(f64::from(value)))?,
        Field::Double(value) => float(value)?,
        Field::Str(text) => Value::String(text),
        // Older writers leave the mark for text away.
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => Field::Bytes(bytes).to_json_value(),
        },
        Field::Group(row) => Value::Object(object(row, Nulls::LeaveOut)?),
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().map(|item| value(item.clone())).collect::<Result<_, _>>()?)
        }
        Field::MapInternal(entries) => {
            let mut map = Map::new();
            for (key, item) in entries.entries() {
                let key = match value(key.clone())? {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                if map.insert(key.clone(), value(item.clone())?).is_some() {
                    return Err(BadRow::new(
                        RowFault::DuplicateKey,
                        format!("the key `{key}` occurs twice in one map"),
                    ));
                }
            }
            Value::Object(map)
        }
        dated @ (Field::Decimal(_)
        | Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_)) => dated.to_json_value(),
    })
}

fn float(value: f64) -> Result<Value, BadRow> {
    Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| BadRow::new(RowFault::NotFinite, format!("`{value}` is not a JSON number")))
}
