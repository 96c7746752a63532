//! Opening a file: which compression, which format, and what is wrong with the file as a whole.

use super::columns::Columns;
use super::document::{Document, RootProblem};
use super::head::{Head, Replay};
use super::lines::Lines;
use super::reader::{Compression, Format, Layout, RowReader, Rows, SourceOptions};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUFFER_BYTES: usize = 256 << 10;

/// What is wrong with a file as a whole. Nothing of it was read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened or read.
    #[error("cannot read `{path}`: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A folder without data files.
    #[error(
        "no data files in `{path}` (looked for .jsonl, .ndjson, .json, .parquet, each also with .gz or .zst); it holds: {}",
        listed(found)
    )]
    NoFiles {
        /// The folder.
        path: PathBuf,
        /// What it holds.
        found: Vec<String>,
    },
    /// Named `.gz` or `.zst`, and is not.
    #[error("`{path}` is named .{named}, but its content is not {named}; it begins with {begins}")]
    NotCompressed {
        /// The file.
        path: PathBuf,
        /// The name's ending.
        named: &'static str,
        /// Its first bytes.
        begins: String,
    },
    /// The compression is damaged before the first row.
    #[error("`{path}` cannot be decompressed: {source}")]
    BadCompression {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        source: io::Error,
    },
    /// One JSON array where lines were expected.
    #[error("`{path}` line {line}: the file is a single JSON array, not JSON lines; read it with format `json`")]
    ArrayNotLines {
        /// The file.
        path: PathBuf,
        /// Where the array begins.
        line: u64,
    },
    /// One JSON object spread over lines where lines were expected.
    #[error(
        "`{path}` line {line}: the file is a single JSON object spread over many lines, not JSON lines; read it with format `json` and name the field that holds the rows"
    )]
    ObjectNotLines {
        /// The file.
        path: PathBuf,
        /// Where the object begins.
        line: u64,
    },
    /// A root object, and no field named.
    #[error(
        "`{path}` is a JSON object, not a list of rows; name the field that holds them; its keys are: {}",
        listed(keys)
    )]
    NeedsField {
        /// The file.
        path: PathBuf,
        /// Keys of the root object.
        keys: Vec<String>,
    },
    /// The named field is not there.
    #[error("`{path}` has no field `{field}`; its keys are: {}", listed(keys))]
    FieldMissing {
        /// The file.
        path: PathBuf,
        /// The field asked for.
        field: String,
        /// Keys of the root object.
        keys: Vec<String>,
    },
    /// The named field holds something else.
    #[error("the field `{field}` of `{path}` holds {found}, not a list of rows")]
    FieldNotAList {
        /// The file.
        path: PathBuf,
        /// The field asked for.
        field: String,
        /// What it holds.
        found: String,
    },
    /// A field was named for a file that has no root object.
    #[error("the field `{field}` was named, but `{path}` is {found}, which has no fields at its root")]
    FieldUnused {
        /// The file.
        path: PathBuf,
        /// The field asked for.
        field: String,
        /// What the file is.
        found: &'static str,
    },
    /// A JSON document that is neither list nor object.
    #[error("`{path}` holds {found} at its root; expected a list of rows, or an object with such a list in a field")]
    NotRows {
        /// The file.
        path: PathBuf,
        /// What stands there.
        found: String,
    },
    /// A JSON document that breaks off before its rows begin.
    #[error("`{path}` is not a whole JSON document: {problem}")]
    BrokenDocument {
        /// The file.
        path: PathBuf,
        /// Where and why.
        problem: String,
    },
    /// UTF-16.
    #[error("`{path}` is UTF-16; only UTF-8 is read")]
    Utf16 {
        /// The file.
        path: PathBuf,
    },
    /// Named or declared Parquet, and is not.
    #[error("`{path}` is not a Parquet file: it does not begin with PAR1 but with {begins}")]
    NotParquet {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        begins: String,
    },
    /// Parquet with a damaged or missing footer.
    #[error("`{path}` begins as a Parquet file, but its footer cannot be read, so it is cut or damaged: {problem}")]
    BadParquet {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        problem: String,
    },
    /// Parquet inside gzip or zstd.
    #[error("`{path}` is Parquet inside another compression; decompress it first (Parquet compresses its own pages)")]
    CompressedParquet {
        /// The file.
        path: PathBuf,
    },
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

pub(super) fn open(path: &Path, options: &SourceOptions) -> Result<RowReader, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let n_bytes = file.metadata().map_err(io)?.len();
    let begins = first_bytes(&mut file).map_err(io)?;
    let name = FileName::of(path);
    let n_bytes_read = Arc::new(AtomicU64::new(0));

    if begins == b"PAR1" && options.format.is_none_or(|format| format == Format::Parquet) {
        if let Some(field) = &options.field {
            return Err(OpenError::FieldUnused {
                path: path.to_owned(),
                field: field.clone(),
                found: "a Parquet file",
            });
        }
        let columns =
            Columns::open(file).map_err(|problem| OpenError::BadParquet { path: path.to_owned(), problem })?;
        let layout = Layout { format: Format::Parquet, compression: Compression::Plain, field: None };
        return Ok(RowReader::new(Rows::Columns(columns), layout, n_bytes, n_bytes_read));
    }

    let compression = settle_compression(path, &name, &begins)?;
    let is_parquet = options.format.map_or(name.format == Some(Format::Parquet), |format| format == Format::Parquet);
    if is_parquet {
        return Err(match compression {
            Compression::Plain => OpenError::NotParquet { path: path.to_owned(), begins: shown(&begins) },
            Compression::Gzip | Compression::Zstd => OpenError::CompressedParquet { path: path.to_owned() },
        });
    }
    let counted = Counted { input: file, n_bytes_read: Arc::clone(&n_bytes_read) };
    let mut input = decompressed(counted, compression).map_err(io)?;
    let head = Head::read(&mut input);
    head.check_text(path)?;
    let format = settle_format(path, &name, options, &head)?;
    let input: Box<dyn BufRead> = Box::new(Replay::new(head, input));
    let rows = match format {
        Format::Json => Rows::Document(open_document(path, input, options)?),
        Format::JsonLines | Format::Parquet => Rows::Lines(Lines::new(input, options)),
    };
    let field = options.field.clone();
    Ok(RowReader::new(rows, Layout { format, compression, field }, n_bytes, n_bytes_read))
}

/// What a file's name promises.
struct FileName {
    compression: Option<(Compression, &'static str)>,
    format: Option<Format>,
}

impl FileName {
    fn of(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let (name, compression) = if let Some(inner) = name.strip_suffix(".gz") {
            (inner, Some((Compression::Gzip, "gz")))
        } else if let Some(inner) = name.strip_suffix(".zst") {
            (inner, Some((Compression::Zstd, "zst")))
        } else {
            (name.as_str(), None)
        };
        let format = match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("jsonl" | "ndjson") => Some(Format::JsonLines),
            Some("json") => Some(Format::Json),
            Some("parquet") => Some(Format::Parquet),
            _ => None,
        };
        Self { compression, format }
    }
}

fn first_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut begins = Vec::with_capacity(4);
    file.by_ref().take(4).read_to_end(&mut begins)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(begins)
}

/// Content decides; a name that promises compression which is not there is an error, since the content is then not what it should be.
fn settle_compression(path: &Path, name: &FileName, begins: &[u8]) -> Result<Compression, OpenError> {
    let found = match begins {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
        _ => Compression::Plain,
    };
    match name.compression {
        Some((_, named)) if found == Compression::Plain && !begins.is_empty() => {
            Err(OpenError::NotCompressed { path: path.to_owned(), named, begins: shown(begins) })
        }
        _ => Ok(found),
    }
}

fn shown(bytes: &[u8]) -> String {
    if bytes.is_empty() { "nothing, it is empty".to_owned() } else { format!("`{}`", bytes.escape_ascii()) }
}

fn decompressed(input: Counted, compression: Compression) -> io::Result<Box<dyn BufRead>> {
    let input = BufReader::with_capacity(BUFFER_BYTES, input);
    Ok(match compression {
        Compression::Plain => Box::new(input),
        Compression::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(input)))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
            // Files written with a long window (`zstd --long`) are refused otherwise.
            decoder.window_log_max(31)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        }
    })
}

fn settle_format(path: &Path, name: &FileName, options: &SourceOptions, head: &Head) -> Result<Format, OpenError> {
    let format = match options.format.or(name.format) {
        Some(Format::JsonLines) => Format::JsonLines,
        Some(Format::Json) if options.format.is_some() || !head.looks_like_lines() => Format::Json,
        Some(_) => Format::JsonLines,
        None => match head.first_visible() {
            Some(b'[') => Format::Json,
            Some(b'{') if options.field.is_some() || !(head.is_single_line() || head.looks_like_lines()) => {
                Format::Json
            }
            _ => Format::JsonLines,
        },
    };
    let format = if options.field.is_some() && options.format.is_none() && head.first_visible() == Some(b'{') {
        // A named field says that the root is an object, whatever the file is called.
        Format::Json
    } else {
        format
    };
    if format == Format::JsonLines {
        head.check_lines(path)?;
        if let Some(field) = &options.field {
            let found = "JSON lines";
            return Err(OpenError::FieldUnused { path: path.to_owned(), field: field.clone(), found });
        }
    }
    Ok(format)
}

fn open_document(
    path: &Path,
    input: Box<dyn BufRead>,
    options: &SourceOptions,
) -> Result<Document<Box<dyn BufRead>>, OpenError> {
    let field = options.field.clone().unwrap_or_default();
    let path = path.to_owned();
    Document::open(input, options).map_err(|problem| match problem {
        RootProblem::NeedsField(keys) => OpenError::NeedsField { path, keys },
        RootProblem::FieldMissing(keys) => OpenError::FieldMissing { path, field, keys },
        RootProblem::FieldNotAList(found) => OpenError::FieldNotAList { path, field, found },
        RootProblem::FieldOfAList => OpenError::FieldUnused { path, field, found: "a JSON list" },
        RootProblem::NotAContainer(found) => OpenError::NotRows { path, found },
        RootProblem::Broken(problem) => OpenError::BrokenDocument { path, problem },
    })
}

/// Counts what is taken off the disk.
struct Counted {
    input: File,
    n_bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.input.read(out)?;
        self.n_bytes_read.fetch_add(n_bytes as u64, Ordering::Relaxed);
        Ok(n_bytes)
    }
}
