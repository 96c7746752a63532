//! One pass over a template's text before it is parsed: `{% generation %}` becomes something that the engine knows, and constructs that
//! jinja2 has and the engine has not are found while there is still a line to name.

use super::TemplateError;
use super::python::UNSUPPORTED_METHODS;
use std::ops::Range;

/// Variables that hold the marks around generated text; undefined, and so printed as nothing, unless spans are wanted.
pub(super) const GENERATION_OPEN: &str = "eyas_generation_open";
pub(super) const GENERATION_CLOSE: &str = "eyas_generation_close";

/// jinja2's filters and tests that this build has not. What jinja2 does not know either fails when it is reached, as it does there.
const UNSUPPORTED_FILTERS: &[&str] = &[
    "center",
    "filesizeformat",
    "forceescape",
    "random",
    "striptags",
    "truncate",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];
const UNSUPPORTED_TESTS: &[&str] = &["callable"];

/// Stands for a string literal among the words of an expression.
const STRING: &str = "''";

/// A template with its tags located.
struct Scanner<'t> {
    origin: &'t str,
    text: &'t str,
}

/// The text that the engine is given. Line numbers stay as they are.
pub(super) fn rewrite(origin: &str, text: &str) -> Result<String, TemplateError> {
    let scanner = Scanner { origin, text };
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut open_generations = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('{') {
        let start = at + found;
        at = match text.as_bytes().get(start + 1) {
            Some(b'#') => text[start..].find("#}").map_or(text.len(), |end| start + end + 2),
            Some(b'{') => {
                let end = scanner.end_of_tag(start + 2, "}}");
                scanner.check(start + 2..end)?;
                copied = scanner.copy_strings(start + 2..end, copied, &mut out)?;
                scanner.after(end)
            }
            Some(b'%') => {
                let end = scanner.end_of_tag(start + 2, "%}");
                let name = scanner.name_of_block(start + 2);
                match &text[name.clone()] {
                    "raw" => scanner.end_of_raw(scanner.after(end)),
                    keyword @ ("generation" | "endgeneration") => {
                        let opens = keyword == "generation";
                        if opens {
                            open_generations.push(start);
                        } else if open_generations.pop().is_none() {
                            return Err(scanner.syntax(start, "`endgeneration` without `generation`"));
                        }
                        out.push_str(&text[copied..name.start]);
                        // An included template prints its mark and takes part in white-space control like any other block.
                        out.push_str(if opens { "include '<generation>'" } else { "include '<endgeneration>'" });
                        copied = name.end;
                        scanner.after(end)
                    }
                    _ => {
                        scanner.check(name.end..end)?;
                        copied = scanner.copy_strings(name.end..end, copied, &mut out)?;
                        scanner.after(end)
                    }
                }
            }
            _ => start + 1,
        };
    }
    if let Some(start) = open_generations.pop() {
        return Err(scanner.syntax(start, "`generation` is never closed"));
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// The templates that stand for the marks, by name.
pub(super) fn mark_templates() -> [(&'static str, String); 2] {
    [
        ("<generation>", format!("{{{{ {GENERATION_OPEN} }}}}")),
        ("<endgeneration>", format!("{{{{ {GENERATION_CLOSE} }}}}")),
    ]
}

impl Scanner<'_> {
    /// Where the closing delimiter begins; strings and brackets inside are skipped over.
    fn end_of_tag(&self, from: usize, close: &str) -> usize {
        let mut depth = 0_usize;
        let mut at = from;
        while let Some(c) = self.text[at..].chars().next() {
            if depth == 0 && self.text[at..].starts_with(close) {
                return at;
            }
            match c {
                '\'' | '"' => {
                    at = self.end_of_string(at);
                    continue;
                }
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += c.len_utf8();
        }
        self.text.len()
    }

    /// One past a closing delimiter of two bytes.
    fn after(&self, delimiter: usize) -> usize {
        (delimiter + 2).min(self.text.len())
    }

    fn end_of_string(&self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let quote = bytes[start];
        let mut at = start + 1;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\\' => at += 2,
                byte if byte == quote => return at + 1,
                _ => at += 1,
            }
        }
        self.text.len()
    }

    /// The block's keyword, after the sign of white-space control.
    fn name_of_block(&self, from: usize) -> Range<usize> {
        let rest = &self.text[from..];
        let start = rest.len() - rest.trim_start_matches(['-', '+']).trim_start().len();
        let rest = &rest[start..];
        let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        from + start..from + start + len
    }

    fn end_of_raw(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(found) = self.text[at..].find("{%") {
            let start = at + found;
            if &self.text[self.name_of_block(start + 2)] == "endraw" {
                return self.after(self.end_of_tag(start + 2, "%}"));
            }
            at = start + 2;
        }
        self.text.len()
    }

    /// Copies what was not copied yet, with the string literals of an expression spelt so that the engine reads them as Python does.
    /// Returns how far it came.
    fn copy_strings(&self, range: Range<usize>, mut copied: usize, out: &mut String) -> Result<usize, TemplateError> {
        let mut at = range.start;
        while let Some(found) = self.text.get(at..range.end).and_then(|rest| rest.find(['\'', '"'])) {
            let start = at + found;
            let end = self.end_of_string(start).min(range.end);
            at = end;
            let literal = &self.text[start..end];
            if literal.contains('\\') && literal.len() >= 2 {
                out.push_str(&self.text[copied..start]);
                out.push_str(&string_literal(literal).map_err(|construct| self.unsupported(start, construct))?);
                copied = end;
            }
        }
        Ok(copied)
    }

    /// Looks for filters, tests, methods and operators that are missing.
    fn check(&self, expression: Range<usize>) -> Result<(), TemplateError> {
        let words = self.words(expression);
        for (n, (at, word)) in words.iter().enumerate() {
            let before = |back: usize| n.checked_sub(back).and_then(|n| words.get(n)).map_or("", |(_, word)| *word);
            let after = words.get(n + 1).map_or("", |(_, word)| *word);
            let is_test = before(1) == "is" || (before(1) == "not" && before(2) == "is");
            let construct = match before(1) {
                "|" if UNSUPPORTED_FILTERS.contains(word) => "filter",
                "." if after == "(" && UNSUPPORTED_METHODS.contains(word) => "method",
                _ if is_test && UNSUPPORTED_TESTS.contains(word) => "test",
                STRING if *word == "%" => "formatting a string with operator",
                _ if *word == "varargs" => "macro variable",
                _ => continue,
            };
            return Err(self.unsupported(*at, format!("{construct} `{word}`")));
        }
        Ok(())
    }

    /// Names and single signs of an expression; every string literal is [`STRING`].
    fn words(&self, range: Range<usize>) -> Vec<(usize, &str)> {
        let mut words = Vec::new();
        let mut at = range.start;
        while let Some(c) = self.text.get(at..range.end).and_then(|rest| rest.chars().next()) {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            if c == '\'' || c == '"' {
                at = self.end_of_string(at);
                words.push((at, STRING));
            } else if is_name(c) {
                let rest = &self.text[at..range.end];
                let len = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
                words.push((at, &rest[..len]));
                at += len;
            } else {
                if !c.is_whitespace() {
                    words.push((at, &self.text[at..at + c.len_utf8()]));
                }
                at += c.len_utf8();
            }
        }
        words
    }

    fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    fn unsupported(&self, at: usize, construct: String) -> TemplateError {
        TemplateError::Unsupported { origin: self.origin.to_owned(), line: self.line(at), construct }
    }

    fn syntax(&self, at: usize, message: &str) -> TemplateError {
        TemplateError::Syntax { origin: self.origin.to_owned(), line: self.line(at), message: message.to_owned() }
    }
}

/// A string literal as Python reads it, spelt again with the few escapes that Python and the engine share. The error names an escape that
/// is not supported. Raw line breaks stay, so that lines keep their numbers.
fn string_literal(literal: &str) -> Result<String, String> {
    let quote = &literal[..1];
    let body = literal[1..].strip_suffix(quote).unwrap_or(&literal[1..]);
    let mut out = quote.to_owned();
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let rest = chars.as_str();
        let number = |digits: usize, radix: u32| -> Option<char> {
            let digits = rest.get(..digits)?;
            u32::from_str_radix(digits, radix).ok().and_then(char::from_u32)
        };
        let (decoded, width) = match rest.chars().next() {
            Some('\n') => {
                // A line break that Python leaves out: the engine would keep it, and a line would be lost without it.
                return Err("a string literal that goes on after a backslash at the end of a line".to_owned());
            }
            Some(c @ ('\\' | '\'' | '"')) => (c, 1),
            Some('a') => ('\u{7}', 1),
            Some('b') => ('\u{8}', 1),
            Some('f') => ('\u{c}', 1),
            Some('n') => ('\n', 1),
            Some('r') => ('\r', 1),
            Some('t') => ('\t', 1),
            Some('v') => ('\u{b}', 1),
            Some('N') => return Err("escape `\\N{…}` in a string".to_owned()),
            Some('x') => (number_after_letter(rest, 2)?, 3),
            Some('u') => match surrogate_pair(rest) {
                Some(c) => (c, 11),
                None => (number_after_letter(rest, 4)?, 5),
            },
            Some('U') => (number_after_letter(rest, 8)?, 9),
            Some('0'..='7') => {
                let digits = rest.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                (number(digits, 8).unwrap_or_default(), digits)
            }
            // Python keeps the backslash of an escape that it does not know.
            _ => ('\\', 0),
        };
        match decoded {
            '\n' => out.push_str("\\n"),
            '\\' => out.push_str("\\\\"),
            c if quote.contains(c) => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        chars = rest[width..].chars();
    }
    out.push_str(quote);
    Ok(out)
}

/// The character of `xHH`, `uHHHH` or `UHHHHHHHH`.
fn number_after_letter(escape: &str, digits: usize) -> Result<char, String> {
    let number = escape.get(1..=digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.and_then(char::from_u32).ok_or_else(|| {
        let shown: String = escape.chars().take(digits + 1).collect();
        format!("escape `\\{shown}` in a string")
    })
}

/// The character of `uD83D\uDE00`, which jinja2 reads as two halves that a later encoding joins.
fn surrogate_pair(escape: &str) -> Option<char> {
    let half = |from: usize| u16::from_str_radix(escape.get(from..from + 4)?, 16).ok();
    let halves = [half(1)?, escape.get(5..7).filter(|next| *next == "\\u").and(half(7))?];
    char::decode_utf16(halves).next()?.ok().filter(|c| c.len_utf16() == 2)
}
