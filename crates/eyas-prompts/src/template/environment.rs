//! A minijinja environment that behaves as transformers' jinja2 environment does.

use super::{PinnedDate, generator, python, tojson};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};
use std::fmt;

/// Work that one rendering may do, in the engine's units (an instruction, or 64 bytes of text): seconds, not minutes.
const FUEL: u64 = 20_000_000;

/// What `raise_exception` was called with.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub(super) fn new(date: Option<PinnedDate>) -> Environment<'static> {
    let mut environment = Environment::new();
    // The default delimiters cannot clash, so building the syntax cannot fail; the defaults would show at once in every render.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(|out, _state, value| {
        match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&python::display(value)),
        }
        .map_err(Error::from)
    });
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        let message = message.to_string();
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    environment.add_function("strftime_now", move |format: &str| {
        let date = date.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "the template asks for the date, and none was pinned")
        })?;
        date.format(format).map_err(|directive| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now: `{directive}` is not known"))
        })
    });
    environment.add_filter("tojson", tojson::tojson);
    environment.add_filter("trim", |value: &Value, chars: Option<&str>| {
        python::strip(&python::display(value), chars, python::Ends::Both).to_owned()
    });
    environment.add_filter("string", |value: &Value| python::display(value));
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
            || (value.kind() == ValueKind::Iterable && value.len().is_some())
    });
    environment.add_test("iterable", |value: &Value| {
        let kinds = [ValueKind::Undefined, ValueKind::String, ValueKind::Seq, ValueKind::Map, ValueKind::Iterable];
        kinds.contains(&value.kind())
    });
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment.add_filter("int", |value: &Value, default: Option<i64>, base: Option<u32>| {
        python::int(value, base.unwrap_or(10)).unwrap_or(Value::from(default.unwrap_or(0)))
    });
    environment.add_filter("float", |value: &Value, default: Option<f64>| {
        python::float(value).unwrap_or(default.unwrap_or(0.0))
    });
    environment.add_filter("<dictsort>", minijinja::filters::dictsort);
    environment.add_filter("dictsort", dictsort);
    generator::add(&mut environment);
    environment
}

fn length(_state: &mut State, value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, format!("a value of type {} has no length", value.kind()))
    })
}

/// markupsafe's spelling of the five characters.
fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let mut text = python::display(value);
    for (plain, escaped) in [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")] {
        text = text.replace(plain, escaped);
    }
    Value::from_safe_string(text)
}

/// `dictsort(case_sensitive=false, by='key', reverse=false)`: the engine takes these by name only.
fn dictsort(state: &mut State, value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let mut named = Vec::new();
    for (n, arg) in args.0.into_iter().map(ValueOrKwargs::into_value).enumerate() {
        if arg.is_kwargs() {
            for name in arg.try_iter()? {
                named.push((name.to_string(), arg.get_item(&name)?));
            }
        } else if let Some(name) = ["case_sensitive", "by", "reverse"].get(n) {
            named.push(((*name).to_owned(), arg));
        }
    }
    let kwargs: Kwargs = named.into_iter().collect();
    state.apply_filter("<dictsort>", &[value, kwargs.into()])
}

/// The words of `raise_exception`, when it is what ended the rendering.
pub(super) fn refusal(e: &Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(e) = source {
        if let Some(raised) = e.downcast_ref::<Raised>() {
            return Some(raised.0.clone());
        }
        source = e.source();
    }
    None
}

/// What happened, without the place, which is told apart.
pub(super) fn describe(e: &Error) -> String {
    match e.detail() {
        Some(detail) => format!("{}: {detail}", e.kind()),
        None => e.kind().to_string(),
    }
}
