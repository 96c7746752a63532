//! What the tests share.

use eyas_prompts::prepare::{Duplicates, PrepareError, PreparePlan, PrepareReport, PromptFilter, prepare};
use eyas_prompts::reasoning::ReasoningFormat;
use eyas_prompts::source::{RawRow, ReadEnd, RowReader, SourceOptions};
use eyas_prompts::template::{ChatTemplate, PromptRenderer, PromptSettings};
use eyas_prompts::tokenizer::Tokenizer;
use eyas_prompts::{RenderError, Rendered, Renderer};
use eyas_types::{Message, Prompt, Rejected, ThinkState};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Every byte of a plain rendering is a token.
pub(crate) struct ByteRenderer;

impl Renderer for ByteRenderer {
    fn render(&self, messages: &[Message], tools: Option<&[Value]>) -> Result<Rendered, RenderError> {
        let mut text = String::new();
        if let Some(tools) = tools {
            writeln!(text, "[tools {}]", serde_json::to_string(tools).unwrap()).unwrap();
        }
        for message in messages {
            if message.content_str() == Some("refuse me") {
                return Err(RenderError { class: "template_refused", detail: "as asked".into(), source: None });
            }
            writeln!(text, "[{}] {}", message.role.as_str(), serde_json::to_string(message).unwrap()).unwrap();
        }
        self.render_text(&text)
    }

    fn render_text(&self, text: &str) -> Result<Rendered, RenderError> {
        let prompt_ids = text.bytes().map(u32::from).collect();
        Ok(Rendered { prompt_ids, think: ThinkState::Undecided, text: text.into() })
    }
}

/// The kit's tiny tokenizer with one of its templates.
pub(crate) fn tiny_renderer(common: &Path, template: &str) -> PromptRenderer {
    let tokenizer = Tokenizer::load(&common.join("tiny_tok")).unwrap();
    let special = tokenizer.special_tokens().clone();
    let template = ChatTemplate::from_file(&common.join("templates").join(template), &special, None).unwrap();
    let format = ReasoningFormat::detect(&tokenizer, template.text());
    PromptRenderer::new(template, tokenizer, format, PromptSettings::default()).unwrap()
}

/// All rows of a file.
pub(crate) fn read(path: impl AsRef<Path>) -> (Vec<RawRow>, ReadEnd) {
    read_with(path, &SourceOptions::default())
}

pub(crate) fn read_with(path: impl AsRef<Path>, options: &SourceOptions) -> (Vec<RawRow>, ReadEnd) {
    let mut reader = RowReader::open(path.as_ref(), options).unwrap();
    let rows: Vec<RawRow> = reader.by_ref().collect();
    let end = reader.end();
    assert_eq!(end.n_rows, rows.len() as u64);
    (rows, end)
}

/// Why a file cannot be read at all.
#[track_caller]
pub(crate) fn open_error(path: impl AsRef<Path>, options: &SourceOptions) -> String {
    match RowReader::open(path.as_ref(), options) {
        Ok(reader) => panic!("opened as {}", reader.layout()),
        Err(error) => error.to_string(),
    }
}

/// Rows as a picture: `1 {"a":1}`, `2 malformed_json: …`.
pub(crate) fn picture(rows: &[RawRow]) -> Vec<String> {
    let show = |row: &RawRow| match &row.value {
        Ok(map) => format!("{} {}", row.row, Value::Object(map.clone())),
        Err(bad) => format!("{} {}: {}", row.row, bad.fault, bad.detail),
    };
    rows.iter().map(show).collect()
}

/// A data set prepared into a folder of its own.
pub(crate) struct Prepared {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) plan: PreparePlan,
}

impl Prepared {
    pub(crate) fn new(paths: &[PathBuf]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plan = PreparePlan {
            dataset: "set".into(),
            paths: paths.to_vec(),
            source: SourceOptions::default(),
            schema: eyas_prompts::normalise::SchemaOptions::default(),
            filter: PromptFilter::default(),
            duplicates: Duplicates::Keep,
            seed: 7,
            out_dir: dir.path().join("out"),
            n_threads: 2,
            low_yield_percent: 50,
        };
        Self { dir, plan }
    }

    /// A data set of one file with this content.
    pub(crate) fn of(name: &str, content: impl AsRef<[u8]>) -> Self {
        let mut prepared = Self::new(&[]);
        let path = prepared.dir.path().join("in").join(name);
        eyas_testkit::write_file(&path, content);
        prepared.plan.paths = vec![path];
        prepared
    }

    pub(crate) fn run(&self) -> Result<PrepareReport, PrepareError> {
        self.run_with(&ByteRenderer)
    }

    pub(crate) fn run_with(&self, renderer: &dyn Renderer) -> Result<PrepareReport, PrepareError> {
        let result = prepare(&self.plan, renderer, &mut |_| {});
        if let Ok(report) = &result {
            assert!(report.adds_up());
            assert_eq!(report.loaded, self.prompts().len() as u64);
            assert_eq!(report.rejected, self.rejected().len() as u64);
        }
        let left: Vec<_> = std::fs::read_dir(&self.plan.out_dir)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "prompts.jsonl" && name != "rejected.jsonl")
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        result
    }

    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        lines(&self.plan.prompts_path())
    }

    pub(crate) fn rejected(&self) -> Vec<Rejected> {
        lines(&self.plan.rejected_path())
    }
}

/// Records of a file, split at 0x0A only; none when there is no file.
fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Vec<T> {
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    assert!(text.is_empty() || text.ends_with('\n'));
    text.split_terminator('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Role words of a prompt and of the answer behind it.
pub(crate) fn roles(prompt: &Prompt) -> Vec<&'static str> {
    prompt.messages.iter().chain(&prompt.reference).map(|message| message.role.as_str()).collect()
}

/// The prompt with an id.
#[track_caller]
pub(crate) fn by_id<'a>(prompts: &'a [Prompt], id: &str) -> &'a Prompt {
    prompts.iter().find(|prompt| prompt.sample_id == id).unwrap_or_else(|| panic!("no prompt `{id}`"))
}
