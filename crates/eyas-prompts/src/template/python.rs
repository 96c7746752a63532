//! What Python does where jinja2 hands through to it: how values print, and the methods of strings, lists and dicts.

use minijinja::value::{Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// Methods of Python's own types that this build has not.
pub(super) const UNSUPPORTED_METHODS: &[&str] = &[
    "encode",
    "expandtabs",
    "format_map",
    "fromkeys",
    "isidentifier",
    "isprintable",
    "istitle",
    "maketrans",
    "translate",
];

/// Methods that change their list or dict; transformers' sandbox refuses them when they are called.
const REFUSED_METHODS: &[&str] =
    &["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"];

/// Nesting beyond which a printed container is cut.
const MAX_DEPTH: usize = 100;

/// `str(value)`; undefined is the empty string.
pub(super) fn display(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        _ => {
            let mut out = String::new();
            write_repr(&mut out, value, 0);
            out
        }
    }
}

fn write_repr(out: &mut String, value: &Value, depth: usize) {
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(float) => out.push_str(&float_repr(float)),
            Err(_) => out.push_str(&value.to_string()),
        },
        ValueKind::String => write_string_repr(out, value.as_str().unwrap_or_default()),
        _ if depth > MAX_DEPTH => out.push_str("..."),
        ValueKind::Map => write_items(out, ['{', '}'], value, |out, key| {
            write_repr(out, key, depth + 1);
            out.push_str(": ");
            write_repr(out, &value.get_item(key).unwrap_or_default(), depth + 1);
        }),
        // Tuples print themselves in parentheses; inside them the engine's spelling of items is close enough to Python's.
        ValueKind::Seq if value.to_string().starts_with('(') => {
            write_items(out, ['(', ')'], value, |out, item| write_repr(out, item, depth + 1));
            if value.len() == Some(1) {
                out.insert(out.len() - 1, ',');
            }
        }
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            write_items(out, ['[', ']'], value, |out, item| write_repr(out, item, depth + 1));
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn write_items(out: &mut String, [open, close]: [char; 2], value: &Value, mut write: impl FnMut(&mut String, &Value)) {
    out.push(open);
    for (n, item) in value.try_iter().into_iter().flatten().enumerate() {
        if n > 0 {
            out.push_str(", ");
        }
        write(out, &item);
    }
    out.push(close);
}

fn write_string_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' || ('\u{7f}'..='\u{a0}').contains(&c) => {
                let escape = format!("\\x{:02x}", u32::from(c));
                out.push_str(&escape);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// `repr` of a float: the shortest digits that read back, in scientific notation below 1e-4 and from 1e16 on.
pub(super) fn float_repr(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return (if float > 0.0 { "inf" } else { "-inf" }).to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => {
            let plain = float.to_string();
            if plain.contains('.') { plain } else { format!("{plain}.0") }
        }
    }
}

/// Which ends `strip` works on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Left,
    Right,
    Both,
}

/// `str.strip` and its kin, with Python's idea of white space.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, ends: Ends) -> &'t str {
    let cut = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => is_space(c),
    };
    let text = if ends == Ends::Right { text } else { text.trim_start_matches(cut) };
    if ends == Ends::Left { text } else { text.trim_end_matches(cut) }
}

/// `str.isspace` of one character: Unicode white space and the four information separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Calls a method that the engine does not know by itself.
pub(super) fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.as_str() {
        Some(text) => string_method(text, method, args)?,
        None => container_method(value, method, args)?,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn container_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let is_container = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable);
    if is_container && REFUSED_METHODS.contains(&method) {
        return Err(invalid(format!("`.{method}()` would change its {}; transformers refuses it", value.kind())));
    }
    match (value.kind(), method) {
        (ValueKind::Seq | ValueKind::Iterable, "index") => {
            let (wanted,): (&Value,) = from_args(args)?;
            let place = value.try_iter()?.position(|item| item == *wanted);
            place.map(|place| Some(Value::from(place))).ok_or_else(|| invalid(format!("{} is not in the list", wanted)))
        }
        (ValueKind::Seq | ValueKind::Map, "copy") => Ok(Some(value.clone())),
        _ => Ok(None),
    }
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&Value>,) = from_args(args)?;
            let chars = chars.and_then(Value::as_str);
            let ends = match method {
                "strip" => Ends::Both,
                "lstrip" => Ends::Left,
                _ => Ends::Right,
            };
            Value::from(strip(text, chars, ends))
        }
        "split" | "rsplit" => {
            return split(text, args, method == "rsplit").map(Some);
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            split_lines(text, keep_ends.unwrap_or(false))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(minijinja::value::Tuple::from(parts.map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let place = if method == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let place = place.ok_or_else(|| invalid("substring not found".to_owned()))?;
            Value::from(text[..place].chars().count())
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase())
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swap = |c: char| -> String {
                if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
            };
            Value::from(text.chars().map(swap).collect::<String>())
        }
        "isdecimal" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(char::is_numeric))
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            Value::from(justify(text, method, width, fill.unwrap_or(" "))?)
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            Value::from(format!("{sign}{}", justify(digits, "rjust", width.saturating_sub(sign.len()), "0")?))
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// `str.title`: a letter is upper case unless another one stands right before it.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut within_word = false;
    for c in text.chars() {
        if within_word {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        within_word = c.is_alphabetic();
    }
    out
}

/// `int(value, base)`, then `int(float(value))`.
pub(super) fn int(value: &Value, base: u32) -> Option<Value> {
    if let Some(text) = value.as_str() {
        let text = strip(text, None, Ends::Both);
        if (2..=36).contains(&base)
            && let Ok(number) = i64::from_str_radix(text, base)
        {
            return Some(Value::from(number));
        }
    } else if value.is_integer() {
        return Some(value.clone());
    }
    let float = float(value)?.trunc();
    // i64 holds every prompt's numbers; larger ones are not worth a big integer.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    let number = (float.abs() < 9.2e18).then_some(float as i64)?;
    Some(Value::from(number))
}

/// `float(value)`.
pub(super) fn float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::String => strip(value.as_str()?, None, Ends::Both).parse().ok(),
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// Longest text that filling up may make, characters.
const MAX_WIDTH: usize = 1 << 20;

fn justify(text: &str, method: &str, width: usize, fill: &str) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    if missing > MAX_WIDTH {
        return Err(invalid(format!("width {width} is too large")));
    }
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd character left when the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left)))
}

/// `str.split(sep=None, maxsplit=-1)` and `str.rsplit`.
fn split(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let mut separator = None;
    let mut max_splits = None;
    for (n, arg) in args.iter().enumerate() {
        if arg.is_kwargs() {
            separator = separator.or(arg.get_attr("sep").ok().and_then(|value| value.as_str().map(str::to_owned)));
            max_splits = max_splits.or(arg.get_attr("maxsplit").ok().and_then(|value| value.as_i64()));
        } else if n == 0 {
            separator = arg.as_str().map(str::to_owned);
        } else {
            max_splits = arg.as_i64();
        }
    }
    let limit = max_splits.and_then(|n| usize::try_from(n).ok());
    let parts: Vec<&str> = match (&separator, limit, from_right) {
        (Some(separator), ..) if separator.is_empty() => return Err(invalid("empty separator".to_owned())),
        (Some(separator), None, _) => text.split(separator.as_str()).collect(),
        (Some(separator), Some(n), false) => text.splitn(n + 1, separator.as_str()).collect(),
        (Some(separator), Some(n), true) => {
            let mut parts: Vec<&str> = text.rsplitn(n + 1, separator.as_str()).collect();
            parts.reverse();
            parts
        }
        (None, None, _) => text.split(is_space).filter(|part| !part.is_empty()).collect(),
        (None, Some(n), false) => {
            let (mut parts, mut rest) = (Vec::new(), strip(text, None, Ends::Left));
            while parts.len() < n {
                let Some(end) = rest.find(is_space) else { break };
                parts.push(&rest[..end]);
                rest = strip(&rest[end..], None, Ends::Left);
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts
        }
        (None, Some(n), true) => {
            let (mut parts, mut rest) = (Vec::new(), strip(text, None, Ends::Right));
            while parts.len() < n {
                let Some((start, c)) = rest.char_indices().rfind(|(_, c)| is_space(*c)) else { break };
                parts.push(&rest[start + c.len_utf8()..]);
                rest = strip(&rest[..start], None, Ends::Right);
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts.reverse();
            parts
        }
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

/// `str.splitlines`: every line boundary that Python knows.
fn split_lines(text: &str, keep_ends: bool) -> Value {
    let is_break = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(is_break) {
        let width =
            if rest[end..].starts_with("\r\n") { 2 } else { rest[end..].chars().next().map_or(1, char::len_utf8) };
        lines.push(Value::from(&rest[..if keep_ends { end + width } else { end }]));
        rest = &rest[end + width..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Value::from(lines)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
