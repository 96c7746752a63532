//! `tojson` as `json.dumps` prints it: that text goes into prompts, so every blank counts.

use super::python::float_repr;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// `json.dumps`' keyword arguments, as far as transformers' filter takes them.
struct Style {
    ensure_ascii: bool,
    /// Indentation of one level; `None` prints on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `x | tojson(indent=…, separators=(…), sort_keys=…, ensure_ascii=…)`.
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let style = Style::from_kwargs(&kwargs)?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    Ok(Value::from(out))
}

impl Style {
    fn from_kwargs(kwargs: &Kwargs) -> Result<Self, Error> {
        let flag = |name: &str| -> Result<bool, Error> {
            Ok(kwargs.get::<Option<Value>>(name)?.is_some_and(|value| value.is_true()))
        };
        let indent = match kwargs.get::<Option<Value>>("indent")? {
            None => None,
            Some(value) => match (value.as_str(), value.as_i64()) {
                (Some(text), _) => Some(text.to_owned()),
                (None, Some(width)) => Some(" ".repeat(usize::try_from(width).unwrap_or(0).min(64))),
                _ if value.is_none() => None,
                _ => return Err(invalid("indent must be a number or a string")),
            },
        };
        let separators = kwargs.get::<Option<Value>>("separators")?.filter(|value| !value.is_none());
        let (item_separator, key_separator) = match separators {
            Some(pair) => {
                let pair: Vec<Value> = pair.try_iter()?.collect();
                match pair.iter().map(Value::as_str).collect::<Vec<_>>().as_slice() {
                    [Some(item), Some(key)] => ((*item).to_owned(), (*key).to_owned()),
                    _ => return Err(invalid("separators must be two strings")),
                }
            }
            None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
        };
        Ok(Self {
            ensure_ascii: flag("ensure_ascii")?,
            indent,
            item_separator,
            key_separator,
            sort_keys: flag("sort_keys")?,
        })
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.write_string(out, value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                let write_pair = |style: &Self, out: &mut String, key: &Value| {
                    style.write_string(out, &key_text(key)?);
                    out.push_str(&style.key_separator);
                    style.write(out, &value.get_item(key)?, depth + 1)
                };
                self.write_items(out, ['{', '}'], &keys, depth, write_pair)?;
            }
            // A list, a tuple or a concatenation has a length; a generator has none and cannot be printed.
            ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(out, ['[', ']'], &items, depth, |style, out, item| style.write(out, item, depth + 1))?;
            }
            ValueKind::Undefined => return Err(invalid("an undefined value is not JSON serializable")),
            ValueKind::Iterable => return Err(invalid("a generator is not JSON serializable")),
            kind => return Err(invalid(&format!("a value of type {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn write_items(
        &self,
        out: &mut String,
        [open, close]: [char; 2],
        items: &[Value],
        depth: usize,
        write: impl Fn(&Self, &mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("value is nested too deeply for JSON"));
        }
        out.push(open);
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(out, depth + 1);
            write(self, out, item)?;
        }
        if !items.is_empty() {
            self.new_line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_string(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' => push_escape(out, c),
                c if self.ensure_ascii && c > '~' => push_escape(out, c),
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

const MAX_DEPTH: usize = 200;

fn push_escape(out: &mut String, c: char) {
    let escapes: Vec<String> = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    out.push_str(&escapes.concat());
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) if float.is_nan() => "NaN".to_owned(),
        Ok(float) if float.is_infinite() => (if float > 0.0 { "Infinity" } else { "-Infinity" }).to_owned(),
        Ok(float) => float_repr(float),
        Err(_) => value.to_string(),
    }
}

/// JSON keys are strings; Python turns numbers, bools and `None` into their JSON spelling.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok((if key.is_true() { "true" } else { "false" }).to_owned()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(invalid(&format!("keys must be str, int, float, bool or None, not {kind}"))),
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {message}"))
}
