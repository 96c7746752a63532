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
    "center", "filesizeformat", "forceescape", "random", "striptags", "truncate", "urlencode", "urlize", "wordcount",
    "wordwrap", "xmlattr",
];
const UNSUPPORTED_TESTS: &[&str] = &["callable"];

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
                end
            }
            Some(b'%') => {
                let end = scanner.end_of_tag(start + 2, "%}");
                let name = scanner.name_of_block(start + 2);
                match &text[name.clone()] {
                    "raw" => scanner.end_of_raw(end),
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
                        end
                    }
                    _ => {
                        scanner.check(name.end..end)?;
                        end
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
    /// One past the closing delimiter; strings and brackets inside are skipped over.
    fn end_of_tag(&self, from: usize, close: &str) -> usize {
        let mut depth = 0_usize;
        let mut at = from;
        while let Some(c) = self.text[at..].chars().next() {
            if depth == 0 && self.text[at..].starts_with(close) {
                return at + close.len();
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
                return self.end_of_tag(start + 2, "%}");
            }
            at = start + 2;
        }
        self.text.len()
    }

    /// Looks for filters, tests and methods that are missing.
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
                _ => continue,
            };
            return Err(TemplateError::Unsupported {
                origin: self.origin.to_owned(),
                line: self.line(*at),
                construct: format!("{construct} `{word}`"),
            });
        }
        Ok(())
    }

    /// Names and single signs of an expression, strings left out.
    fn words(&self, range: Range<usize>) -> Vec<(usize, &str)> {
        let mut words = Vec::new();
        let mut at = range.start;
        while let Some(c) = self.text.get(at..range.end).and_then(|rest| rest.chars().next()) {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            if c == '\'' || c == '"' {
                at = self.end_of_string(at);
                // A string ends a word: `'a' is b` must not join with what stands before it.
                words.push((at, ""));
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

    fn syntax(&self, at: usize, message: &str) -> TemplateError {
        TemplateError::Syntax { origin: self.origin.to_owned(), line: self.line(at), message: message.to_owned() }
    }
}
