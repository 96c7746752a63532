//! Why a line could not be read, and what is odd about lines that could.

/// Why a line is malformed. Each is a class of its own in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    Torn,
    Fused,
    Trailing,
    InvalidUtf8,
    ControlCharacter,
    Nul,
    BadEscape,
    Syntax,
    NotAnObject,
    TooDeep,
    TooLong,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::Torn,
        Self::Fused,
        Self::Trailing,
        Self::InvalidUtf8,
        Self::ControlCharacter,
        Self::Nul,
        Self::BadEscape,
        Self::Syntax,
        Self::NotAnObject,
        Self::TooDeep,
        Self::TooLong,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Torn => "torn",
            Self::Fused => "fused",
            Self::Trailing => "trailing",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::ControlCharacter => "control_character",
            Self::Nul => "nul",
            Self::BadEscape => "bad_escape",
            Self::Syntax => "syntax",
            Self::NotAnObject => "not_an_object",
            Self::TooDeep => "too_deep",
            Self::TooLong => "too_long",
        }
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Torn => "the line ends before its record does",
            Self::Fused => "a record follows on the same line, behind a cut or whole one",
            Self::Trailing => "something stands behind the record",
            Self::InvalidUtf8 => "bytes that are not UTF-8",
            Self::ControlCharacter => "a raw control character inside a string",
            Self::Nul => "NUL bytes, as a crash or a hole in the file leaves them",
            Self::BadEscape => "an escape that JSON does not know",
            Self::Syntax => "not JSON",
            Self::NotAnObject => "JSON, but no object: a record has named fields",
            Self::TooDeep => "nested deeper than 1,024 levels",
            Self::TooLong => "longer than the limit for one line",
        }
    }
}

/// What is odd about a line that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Remark {
    NotANumber,
    LoneSurrogate,
    DuplicateKey,
    CarriageReturn,
    ByteOrderMark,
    HugeLine,
}

impl Remark {
    pub(crate) const ALL: [Self; 6] = [
        Self::NotANumber,
        Self::LoneSurrogate,
        Self::DuplicateKey,
        Self::CarriageReturn,
        Self::ByteOrderMark,
        Self::HugeLine,
    ];

    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NotANumber => "not_a_number",
            Self::LoneSurrogate => "lone_surrogate",
            Self::DuplicateKey => "duplicate_key",
            Self::CarriageReturn => "crlf",
            Self::ByteOrderMark => "byte_order_mark",
            Self::HugeLine => "huge_line",
        }
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::NotANumber => "NaN or Infinity: Python reads it, strict readers refuse the row",
            Self::LoneSurrogate => {
                "half of a surrogate pair: Python reads it and cannot write it, strict readers refuse the row"
            }
            Self::DuplicateKey => "a key occurs twice in one object: the last one counts",
            Self::CarriageReturn => "the line ends in CR LF",
            Self::ByteOrderMark => "the file begins with a byte order mark",
            Self::HugeLine => "a very long line",
        }
    }
}
