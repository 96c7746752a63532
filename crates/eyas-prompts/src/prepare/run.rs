//! The work itself: read, map, render, filter, order, write.

use super::error::{PrepareError, write_error};
use super::files::{NewFile, Place, Spill};
use super::ids::{self, Identity};
use super::lengths::{Lengths, percent};
use super::plan::{DropReason, Duplicates, PreparePlan};
use super::record::{line_of, with_sample_id};
use super::rejections::Rejections;
use super::report::{FileReport, IdReport, PrepareReport, ThinkReport};
use crate::normalise::{Conversation, ConversationBody, Mapping, Reason, Refusal};
use crate::render::{RenderError, Rendered, Renderer};
use crate::source::{DataFiles, RawRow, Repair, RowReader, list_data_files};
use eyas_types::{Message, Prompt, Schema, Source, ThinkState};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// Rows looked at to settle the mapping.
const SAMPLE_ROWS: usize = 500;
/// Rows rendered in one go, for each thread.
const BATCH_ROWS: usize = 128;
/// Time between two reports of progress within a file.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What is going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrepareEvent<'a> {
    /// A file is begun.
    File {
        /// Path as the recipe names it.
        path: &'a str,
        /// Layout in words.
        layout: String,
    },
    /// It is settled how rows are read.
    Mapping {
        /// In words.
        description: String,
    },
    /// So far; about once a second, and at the end of each file.
    Progress {
        /// Rows read, over all files.
        n_rows: u64,
        /// Rows rejected so far.
        n_rejected: u64,
        /// Bytes read, over all files.
        n_bytes: u64,
        /// Bytes of all files.
        n_bytes_total: u64,
    },
    /// All rows are read; prompts are being written.
    Writing {
        /// How many.
        n_prompts: u64,
    },
}

/// Prepares one data set: files in, `prompts.jsonl` and `rejected.jsonl` out. See [`prepare`](super) for what is promised.
pub fn prepare(
    plan: &PreparePlan,
    renderer: &dyn Renderer,
    on_event: &mut dyn FnMut(&PrepareEvent<'_>),
) -> Result<PrepareReport, PrepareError> {
    let files = list_data_files(&plan.paths)?;
    // What is wrong with the last file should not be found after hours with the first.
    for file in &files.files {
        RowReader::open(&file.path, &plan.source)?;
    }
    let mut run = Run::begin(plan, renderer, on_event, &files)?;
    for (file_idx, file) in files.files.iter().enumerate() {
        let reader = RowReader::open(&file.path, &plan.source)?;
        run.read_file(file_idx, reader)?;
    }
    run.settle_mapping()?;
    run.flush()?;
    run.finish(files)
}

/// A row with its place.
struct Placed<T> {
    file_idx: usize,
    row: u64,
    what: T,
}

/// A row read and not mapped yet.
struct Unmapped {
    map: Map<String, Value>,
    repairs: Vec<Repair>,
}

/// A row to be rendered.
struct Job {
    id: Option<String>,
    ask: Ask,
    tools: Option<Vec<Value>>,
    reference: Option<Message>,
    repairs: Vec<Repair>,
}

/// What is rendered.
enum Ask {
    Messages(Vec<Message>),
    Text(String),
}

/// A prompt that passed the filters and waits in the spill.
struct Waiting {
    own_id: Option<Box<str>>,
    content: u128,
    place: Place,
    file_idx: usize,
    row: u64,
    n_tokens: u32,
    think: ThinkState,
    repairs: Vec<Repair>,
}

struct Run<'a> {
    plan: &'a PreparePlan,
    renderer: &'a dyn Renderer,
    on_event: &'a mut dyn FnMut(&PrepareEvent<'_>),
    file_reports: Vec<FileReport>,
    n_bytes_before: u64,
    n_bytes_total: u64,
    told_at: Instant,
    mapping: Option<Mapping>,
    sample: Vec<Placed<Unmapped>>,
    batch: Vec<Placed<Job>>,
    spill: Spill,
    waiting: Vec<Waiting>,
    contents: HashSet<u128>,
    ids: IdReport,
    rejections: Rejections<'a>,
    too_short: Lengths,
    too_long: Lengths,
}

impl<'a> Run<'a> {
    fn begin(
        plan: &'a PreparePlan,
        renderer: &'a dyn Renderer,
        on_event: &'a mut dyn FnMut(&PrepareEvent<'_>),
        files: &DataFiles,
    ) -> Result<Self, PrepareError> {
        let prompts = plan.prompts_path();
        std::fs::create_dir_all(&plan.out_dir).map_err(|source| write_error(&plan.out_dir, source))?;
        let size = |path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        Ok(Self {
            plan,
            renderer,
            on_event,
            file_reports: Vec::new(),
            n_bytes_before: 0,
            n_bytes_total: files.files.iter().map(|file| size(&file.path)).sum(),
            told_at: Instant::now(),
            mapping: None,
            sample: Vec::new(),
            batch: Vec::new(),
            spill: Spill::create(&prompts).map_err(|source| write_error(&prompts, source))?,
            waiting: Vec::new(),
            contents: HashSet::new(),
            ids: IdReport::default(),
            rejections: Rejections::begin(plan, files)?,
            too_short: Lengths::default(),
            too_long: Lengths::default(),
        })
    }

    fn read_file(&mut self, file_idx: usize, mut reader: RowReader) -> Result<(), PrepareError> {
        let path = self.rejections.names[file_idx].clone();
        let layout = reader.layout().to_string();
        (self.on_event)(&PrepareEvent::File { path: &path, layout: layout.clone() });
        self.file_reports.push(FileReport { path, layout, n_bytes: reader.n_bytes(), ..FileReport::default() });
        while let Some(RawRow { row, value, repairs }) = reader.next_row() {
            self.file_reports[file_idx].read += 1;
            match value {
                Err(bad) => self.rejections.add(file_idx, row, bad.into())?,
                Ok(map) => self.take(Placed { file_idx, row, what: Unmapped { map, repairs } })?,
            }
            if self.told_at.elapsed() >= PROGRESS_EVERY {
                self.tell_progress(&reader);
            }
        }
        self.tell_progress(&reader);
        self.n_bytes_before += reader.n_bytes();
        let end = reader.end();
        let report = &mut self.file_reports[file_idx];
        report.blank_lines = end.n_blank_lines;
        report.byte_order_marks = end.n_byte_order_marks;
        report.broken = end.broken;
        Ok(())
    }

    fn tell_progress(&mut self, reader: &RowReader) {
        let event = PrepareEvent::Progress {
            n_rows: self.file_reports.iter().map(|file| file.read).sum(),
            n_rejected: self.rejections.n(),
            n_bytes: self.n_bytes_before + reader.n_bytes_read(),
            n_bytes_total: self.n_bytes_total,
        };
        (self.on_event)(&event);
        self.told_at = Instant::now();
    }

    /// Takes a good row: into the sample while the mapping is open, else on to rendering.
    fn take(&mut self, row: Placed<Unmapped>) -> Result<(), PrepareError> {
        if self.mapping.is_some() {
            return self.map(row);
        }
        self.sample.push(row);
        if self.sample.len() >= SAMPLE_ROWS { self.settle_mapping() } else { Ok(()) }
    }

    /// Settles the mapping from the rows at hand, and sends these on.
    fn settle_mapping(&mut self) -> Result<(), PrepareError> {
        if self.mapping.is_some() || self.sample.is_empty() {
            return Ok(());
        }
        let sample = std::mem::take(&mut self.sample);
        let rows: Vec<Map<String, Value>> = sample.iter().map(|row| row.what.map.clone()).collect();
        let mapping = Mapping::detect(&rows, &self.plan.schema)
            .map_err(|source| PrepareError::NoSchema { dataset: self.plan.dataset.clone(), source })?;
        (self.on_event)(&PrepareEvent::Mapping { description: mapping.describe() });
        self.ids.field.clone_from(&mapping.id);
        self.mapping = Some(mapping);
        sample.into_iter().try_for_each(|row| self.map(row))
    }

    fn map(&mut self, row: Placed<Unmapped>) -> Result<(), PrepareError> {
        let Some(mapping) = &self.mapping else { return Ok(()) };
        let Placed { file_idx, row, what: Unmapped { map, repairs } } = row;
        match mapping.conversation(map, self.plan.source.surrogates, repairs) {
            Err(refusal) => self.rejections.add(file_idx, row, refusal),
            Ok(conversation) => {
                self.batch.push(Placed { file_idx, row, what: Job::of(conversation) });
                if self.batch.len() >= BATCH_ROWS * self.plan.n_threads.max(1) { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Renders the batch and keeps what passes the filters.
    fn flush(&mut self) -> Result<(), PrepareError> {
        let batch = std::mem::take(&mut self.batch);
        let rendered = render_all(&batch, self.renderer, self.plan.n_threads);
        for (job, rendered) in batch.into_iter().zip(rendered) {
            match rendered {
                Err(error) => {
                    let refusal = Refusal { reason: error.class, detail: error.detail };
                    self.rejections.add(job.file_idx, job.row, refusal)?;
                }
                Ok(rendered) => self.keep(job, rendered)?,
            }
        }
        Ok(())
    }

    fn keep(&mut self, job: Placed<Job>, rendered: Rendered) -> Result<(), PrepareError> {
        let Placed { file_idx, row, what: job } = job;
        let n_tokens = u32::try_from(rendered.prompt_ids.len()).unwrap_or(u32::MAX);
        let content = ids::content_hash(&rendered.prompt_ids);
        if let Some(refusal) = self.filtered(n_tokens, content) {
            return self.rejections.add(file_idx, row, refusal);
        }
        let prompt = Prompt {
            schema: Schema::PROMPT,
            sample_id: String::new(),
            dataset: self.plan.dataset.clone(),
            source: Source { file: self.rejections.names[file_idx].clone(), row },
            messages: match job.ask {
                Ask::Messages(messages) => messages,
                Ask::Text(_) => Vec::new(),
            },
            tools: job.tools,
            prompt_ids: rendered.prompt_ids,
            think: rendered.think,
            reference: job.reference,
            repairs: job.repairs.iter().map(|repair| repair.as_str().to_owned()).collect(),
        };
        let place = self.spill.push(&line_of(&prompt));
        let place = place.map_err(|source| write_error(&self.plan.prompts_path(), source))?;
        let own_id = job.id.map(String::into_boxed_str);
        let think = prompt.think;
        self.waiting.push(Waiting { own_id, content, place, file_idx, row, n_tokens, think, repairs: job.repairs });
        Ok(())
    }

    /// Why a rendered prompt is not kept.
    fn filtered(&mut self, n_tokens: u32, content: u128) -> Option<Refusal> {
        let filter = &self.plan.filter;
        if n_tokens == 0 {
            return Some(Refusal::new(Reason::EmptyPrompt, "the prompt renders to no token at all"));
        }
        if let Some(limit) = filter.min_tokens.filter(|limit| n_tokens < *limit) {
            self.too_short.add(n_tokens);
            return Some(
                DropReason::TooShort
                    .refusal(format!("the prompt has {n_tokens} tokens, at least {limit} are asked for")),
            );
        }
        if let Some(limit) = filter.max_tokens.filter(|limit| n_tokens > *limit) {
            self.too_long.add(n_tokens);
            return Some(
                DropReason::TooLong.refusal(format!("the prompt has {n_tokens} tokens, at most {limit} are allowed")),
            );
        }
        if !self.contents.insert(content) {
            self.ids.equal_prompts += 1;
            if self.plan.duplicates == Duplicates::Drop {
                return Some(DropReason::Duplicate.refusal("the same prompt was read before".to_owned()));
            }
        }
        None
    }

    fn finish(mut self, files: DataFiles) -> Result<PrepareReport, PrepareError> {
        let n_read: u64 = self.file_reports.iter().map(|file| file.read).sum();
        if n_read == 0 {
            let files =
                self.file_reports.iter().map(|file| format!("`{}` ({})", file.path, file.emptiness())).collect();
            return Err(PrepareError::NothingRead { dataset: self.plan.dataset.clone(), files });
        }
        let names = {
            let identities: Vec<Identity<'_>> = self
                .waiting
                .iter()
                .map(|prompt| Identity { own: prompt.own_id.as_deref(), content: prompt.content })
                .collect();
            ids::assign(&identities, &mut self.ids)
        };
        let n_passed = self.waiting.len();
        let order = self.ordered(&names);
        let max_prompts = self.plan.filter.max_prompts.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let (kept, left_out) = order.split_at(max_prompts.min(order.len()));
        self.reject_left_out(left_out)?;

        let report = self.report(kept, n_passed, files.passed_over);
        if kept.is_empty() {
            let Self { plan, rejections, .. } = self;
            // Reasons are worth having, but must not be taken for those of prompts that lie there from before.
            if !plan.prompts_path().exists() {
                rejections.publish()?;
            }
            return Err(PrepareError::NothingKept { report: Box::new(report) });
        }
        (self.on_event)(&PrepareEvent::Writing { n_prompts: report.loaded });
        let prompts = self.write_prompts(kept, &names)?;
        let path = prompts.path().to_owned();
        self.rejections.publish()?;
        prompts.publish().map_err(|source| write_error(&path, source))?;
        Ok(report)
    }

    /// Indices of the waiting prompts in the order of the shuffle.
    fn ordered(&self, names: &[String]) -> Vec<usize> {
        let key = |idx: &usize| ids::order_key(self.plan.seed, &self.plan.dataset, &names[*idx]);
        let mut order: Vec<(u64, usize)> = (0..names.len()).map(|idx| (key(&idx), idx)).collect();
        order.sort_unstable_by(|(a, a_idx), (b, b_idx)| a.cmp(b).then_with(|| names[*a_idx].cmp(&names[*b_idx])));
        order.into_iter().map(|(_, idx)| idx).collect()
    }

    fn reject_left_out(&mut self, left_out: &[usize]) -> Result<(), PrepareError> {
        let mut left_out = left_out.to_vec();
        left_out.sort_unstable();
        let limit = self.plan.filter.max_prompts.unwrap_or_default();
        for idx in left_out {
            let prompt = &self.waiting[idx];
            let refusal = DropReason::OverMaxPrompts
                .refusal(format!("good, but not among the first {limit} prompts of the shuffle"));
            self.rejections.add(prompt.file_idx, prompt.row, refusal)?;
        }
        Ok(())
    }

    fn write_prompts(&mut self, kept: &[usize], names: &[String]) -> Result<NewFile, PrepareError> {
        let path = self.plan.prompts_path();
        let failed = |source| write_error(&path, source);
        let mut out = NewFile::create(&path).map_err(failed)?;
        let mut line = Vec::new();
        for idx in kept {
            self.spill.read(self.waiting[*idx].place, &mut line).map_err(failed)?;
            out.write_line(&with_sample_id(&line, &names[*idx])).map_err(failed)?;
        }
        Ok(out)
    }

    fn report(&mut self, kept: &[usize], n_passed: usize, passed_over: Vec<String>) -> PrepareReport {
        let mut files = std::mem::take(&mut self.file_reports);
        let mut lengths = Lengths::default();
        let mut think = ThinkReport::default();
        let mut repaired_by_kind: BTreeMap<String, u64> = BTreeMap::new();
        for idx in kept {
            let prompt = &self.waiting[*idx];
            files[prompt.file_idx].loaded += 1;
            lengths.add(prompt.n_tokens);
            think.add(prompt.think);
            for repair in &prompt.repairs {
                *repaired_by_kind.entry(repair.as_str().to_owned()).or_default() += 1;
            }
        }
        for (file, n_rejected) in files.iter_mut().zip(&self.rejections.n_by_file) {
            file.rejected = *n_rejected;
        }
        let read = files.iter().map(|file| file.read).sum();
        let kept_percent = percent(n_passed as u64, read);
        let report = PrepareReport {
            schema: PrepareReport::SCHEMA.to_owned(),
            dataset: self.plan.dataset.clone(),
            mapping: self.mapping.as_ref().map(Mapping::describe),
            read,
            loaded: kept.len() as u64,
            rejected: self.rejections.n(),
            rejected_by_reason: self.rejections.by_reason.clone(),
            repaired_by_kind,
            files,
            passed_over,
            prompt_tokens: lengths.report(None),
            too_short: self.too_short.report(self.plan.filter.min_tokens),
            too_long: self.too_long.report(self.plan.filter.max_tokens),
            think,
            ids: self.ids.clone(),
            kept_percent,
            low_yield: kept_percent < f64::from(self.plan.low_yield_percent),
            examples: self.rejections.examples.clone(),
            seed: self.plan.seed,
        };
        assert!(report.adds_up(), "read = loaded + rejected is broken: {report:?}");
        report
    }
}

impl Job {
    fn of(conversation: Conversation) -> Self {
        let Conversation { id, body, tools, repairs } = conversation;
        let (ask, reference) = match body {
            ConversationBody::Text(text) => (Ask::Text(text), None),
            ConversationBody::Turns(turns) => {
                let (prompt, answer) = Conversation::split_last_answer(turns);
                (Ask::Messages(prompt), answer)
            }
        };
        Self { id, ask, tools, reference, repairs }
    }

    fn render(&self, renderer: &dyn Renderer) -> Result<Rendered, RenderError> {
        match &self.ask {
            Ask::Messages(messages) => renderer.render(messages, self.tools.as_deref()),
            Ask::Text(text) => renderer.render_text(text),
        }
    }
}

/// Renders on several threads; results in the order of the jobs.
fn render_all(batch: &[Placed<Job>], renderer: &dyn Renderer, n_threads: usize) -> Vec<Result<Rendered, RenderError>> {
    let render = |jobs: &[Placed<Job>]| jobs.iter().map(|job| job.what.render(renderer)).collect::<Vec<_>>();
    let chunk = batch.len().div_ceil(n_threads.max(1));
    if n_threads <= 1 || batch.len() < 2 * n_threads {
        return render(batch);
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = batch.chunks(chunk).map(|jobs| scope.spawn(move || render(jobs))).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
            .collect()
    })
}
