//! Reads the files of a plan and puts together what was found.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    document::{
        AcceptanceReport, AnswerCounts, ClassCount, Conflict, ConversationCounts, DriftReport, FieldReport, FileEvent,
        FileReport, Finding, GroupReport, Grouping, Inspection, LengthStats, Lengths, LocationCount, NamedCount, Place,
        ReasoningReport, RowCounts, SCHEMA, ThroughputReport, Unit, Verdict, VerdictLevel,
    },
    drift::Series,
    findings::{self, Facts},
    input::{InputFile, resolve},
    lengths::LengthCounts,
    locations::{Field, Locations, PathError},
    plan::InspectPlan,
    read::{FileRead, read_file},
    scan::{Fault, Remark, text},
    tally::{Along, CUTS, Group, Odd, Sighting, Tally},
};

/// Why nothing could be said. Bad rows are never an error: they are counted.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The plan names no path.
    #[error("no path was given")]
    NoPaths,
    /// A folder holds nothing to read.
    #[error(
        "`{path}` holds no answer files: neither `prepared/*/raw_responses.jsonl` nor `*.jsonl`, `*.ndjson`, `*.json` (plain, .gz, .zst)"
    )]
    NoAnswerFiles {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder could not be opened.
    #[error("cannot open `{path}`")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be read to its end.
    #[error("cannot read `{path}` at byte {at_byte}")]
    Read {
        /// Which.
        path: PathBuf,
        /// How far it was read.
        at_byte: u64,
        /// Why.
        source: std::io::Error,
    },
    /// A location of the plan cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// Reads the files and says what is in them. Bad input is counted and reported, never a panic; memory stays flat however large the files are.
pub fn inspect(plan: &InspectPlan) -> Result<Inspection, InspectError> {
    let locations = Locations::new(&plan.fields)?;
    let inputs = resolve(&plan.paths)?;
    let mut total = Tally::new(plan, &locations);
    let mut files = Vec::new();
    let mut along = Vec::new();
    for input in &inputs.files {
        let mut read = read_file(plan, &locations, input)?;
        set_file(&mut read.scanned.tally, files.len());
        files.push(file_report(input, &read));
        along.push(std::mem::take(&mut read.scanned.tally.along));
        total.merge(read.scanned.tally);
    }
    let given_up = given_up(plan, &locations, &inputs.failed)?;
    Ok(assemble(plan, &locations, files, &along, total, given_up))
}

/// Counts of `failed.jsonl` files: how many prompts were given up, and why.
fn given_up(
    plan: &InspectPlan,
    locations: &Locations,
    paths: &[PathBuf],
) -> Result<BTreeMap<String, u64>, InspectError> {
    let mut causes = BTreeMap::new();
    for path in paths {
        let input = InputFile { path: path.clone(), dataset: String::new() };
        let tally = read_file(plan, locations, &input)?.scanned.tally;
        // Every row of such a file is a failure, whatever else it says.
        let counted: u64 = tally.failed_by_cause.values().sum();
        for (cause, n) in tally.failed_by_cause {
            *causes.entry(cause).or_default() += n;
        }
        if tally.parsed > counted {
            *causes.entry("(none given)".to_owned()).or_default() += tally.parsed - counted;
        }
    }
    Ok(causes)
}

/// Examples know their file only now.
fn set_file(tally: &mut Tally, file: usize) {
    let sightings = tally.malformed.iter_mut().chain(&mut tally.remarks).chain(&mut tally.odd);
    let places = sightings.chain(tally.conflicts.values_mut().map(|conflict| &mut conflict.seen));
    places.flat_map(|sighting| &mut sighting.examples).for_each(|place| place.file = file);
}

fn file_report(input: &InputFile, read: &FileRead) -> FileReport {
    FileReport {
        path: input.path.to_string_lossy().into_owned(),
        dataset: input.dataset.clone(),
        layout: read.layout,
        compression: read.compression,
        bytes: read.bytes,
        text_bytes: read.scanned.text_bytes,
        rows: rows(&read.scanned.tally, read.scanned.n_lines),
        events: read.events.clone(),
    }
}

fn rows(tally: &Tally, total: u64) -> RowCounts {
    let malformed_by_class = classes(&tally.malformed, |n| (Fault::ALL[n].name(), Fault::ALL[n].meaning()));
    let malformed = malformed_by_class.iter().map(|class| class.count).sum();
    RowCounts {
        total,
        parsed: tally.parsed,
        malformed,
        blank: tally.blank,
        in_progress: tally.in_progress,
        malformed_by_class,
    }
}

/// Classes that occur, most frequent first.
fn classes(sightings: &[Sighting], name: impl Fn(usize) -> (&'static str, &'static str)) -> Vec<ClassCount> {
    let mut classes: Vec<ClassCount> = Vec::new();
    for (n, sighting) in sightings.iter().enumerate().filter(|(_, sighting)| sighting.count > 0) {
        let (class, meaning) = name(n);
        classes.push(ClassCount {
            class: class.to_owned(),
            meaning: meaning.to_owned(),
            count: sighting.count,
            recoverable: sighting.recoverable,
            examples: sighting.examples.clone(),
        });
    }
    classes.sort_by_key(|class| std::cmp::Reverse(class.count));
    classes
}

fn assemble(
    plan: &InspectPlan,
    locations: &Locations,
    files: Vec<FileReport>,
    along: &[Along],
    tally: Tally,
    given_up: BTreeMap<String, u64>,
) -> Inspection {
    let rows = rows(&tally, files.iter().map(|file| file.rows.total).sum());
    let unit = unit(&tally);
    let lengths = lengths(plan, &tally, unit);
    let (conversations, duplicate_ids, estimated) = tally.ids.clone().count();
    let mut inspection = Inspection {
        schema: SCHEMA.to_owned(),
        rows,
        remarks: classes(&tally.remarks, |n| (Remark::ALL[n].name(), Remark::ALL[n].meaning())),
        answers: answers(&tally, given_up),
        fields: fields(locations, &tally),
        conversations: ConversationCounts {
            conversations,
            requests: tally.answers(),
            prompt_tokens: tally.prompt_tokens.sum(),
            completion_tokens: if unit == Unit::Characters { 0 } else { lengths.completion.sum },
            duplicate_ids,
            estimated,
        },
        lengths,
        finish_reasons: finish_reasons(&tally),
        reasoning: reasoning(&tally),
        drift: along.iter().enumerate().flat_map(|(file, along)| drift(file, along, unit)).collect(),
        groups: CUTS.into_iter().enumerate().filter_map(|(n, cut)| grouping(plan, &tally, n, cut, unit)).collect(),
        acceptance: acceptance(&tally),
        throughput: throughput(plan, &tally, unit),
        files,
        findings: Vec::new(),
        verdict: Verdict { level: VerdictLevel::Clean, action: String::new() },
    };
    let facts = Facts { plan, odd: &tally.odd };
    let mut found: Vec<Finding> = findings::find(&inspection, &facts);
    // Worst first; within a severity the widest. The order of finding breaks ties, so the result is the same each time.
    found.sort_by(|a, b| {
        let share = |finding: &Finding| finding.share.unwrap_or(0.0);
        a.severity.cmp(&b.severity).then(share(b).total_cmp(&share(a)))
    });
    inspection.findings = found;
    inspection.verdict = findings::verdict(&inspection);
    inspection
}

/// Tokens when any row has a count; else characters.
fn unit(tally: &Tally) -> Unit {
    let counted = tally.finished_tokens.n() + tally.truncated_tokens.n();
    match (counted, tally.counted_by_tokenizer) {
        (0, _) => Unit::Characters,
        (all, own) if all == own => Unit::CountedTokens,
        _ => Unit::Tokens,
    }
}

fn lengths(plan: &InspectPlan, tally: &Tally, unit: Unit) -> Lengths {
    let (finished, truncated) = match unit {
        Unit::Characters => (&tally.finished_characters, &tally.truncated_characters),
        Unit::Tokens | Unit::CountedTokens => (&tally.finished_tokens, &tally.truncated_tokens),
    };
    let mut all = finished.clone();
    all.merge(truncated);
    let stats = |counts: &LengthCounts, population: &str, unit: Unit| counts.stats(population, unit, &plan.thresholds);
    let some = |counts: &LengthCounts, population: &str, unit: Unit| -> Option<LengthStats> {
        (counts.n() > 0).then(|| stats(counts, population, unit))
    };
    let whole = match unit {
        Unit::Characters => "answers, reasoning and content together",
        Unit::Tokens | Unit::CountedTokens => "answers with a token count, cut ones included",
    };
    Lengths {
        unit,
        completion: stats(&all, whole, unit),
        finished: stats(finished, "answers that ended by themselves", unit),
        truncated: stats(truncated, "answers that a cap cut: lower bounds", unit),
        prompt: some(&tally.prompt_tokens, "prompts of the answers", Unit::Tokens),
        reasoning: some(&tally.reasoning_tokens, "reasoning of the answers whose reasoning is counted", Unit::Tokens),
        content: some(&tally.content_tokens, "content of the answers whose reasoning is counted", Unit::Tokens),
        reasoning_characters: some(&tally.reasoning_characters, "reasoning that is not empty", Unit::Characters),
        content_characters: some(&tally.content_characters, "content that is not empty", Unit::Characters),
    }
}

fn answers(tally: &Tally, given_up: BTreeMap<String, u64>) -> AnswerCounts {
    let given_up_in_all: u64 = given_up.values().sum();
    let (repeated, repeated_estimated) = tally.texts.clone().repeated();
    AnswerCounts {
        answers: tally.answers(),
        finished: tally.finished,
        truncated: tally.truncated,
        failed: tally.failed,
        failed_by_cause: named(tally.failed_by_cause.iter().map(|(k, n)| (k.clone(), *n)), tally.failed),
        without_answer: tally.without_answer,
        empty_content: tally.odd(Odd::EmptyContent).count,
        empty_content_truncated: tally.empty_content_truncated,
        repeated,
        repeated_estimated,
        given_up: given_up_in_all,
        given_up_by_cause: named(given_up.into_iter(), given_up_in_all),
    }
}

/// Named counts with their share of `whole`, most frequent first, then by name.
fn named(counts: impl Iterator<Item = (String, u64)>, whole: u64) -> Vec<NamedCount> {
    let share = |count: u64| if whole == 0 { 0.0 } else { count as f64 / whole as f64 };
    let mut named: Vec<NamedCount> =
        counts.map(|(name, count)| NamedCount { name, count, share: share(count) }).collect();
    named.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    named
}

fn finish_reasons(tally: &Tally) -> Vec<NamedCount> {
    named(tally.finish_reasons.iter().map(|(name, n)| (word(name), *n)), tally.answers())
}

/// Raw bytes of a JSON string as a name.
fn word(raw: &[u8]) -> String {
    text::unescape(raw)
}

fn reasoning(tally: &Tally) -> ReasoningReport {
    let count = |odd| tally.odd(odd).count;
    let answers = tally.answers();
    ReasoningReport {
        captured: tally.reasoning_captured,
        capture_rate: (answers > 0).then(|| tally.reasoning_captured as f64 / answers as f64),
        empty: tally.reasoning_empty,
        null: tally.reasoning_null,
        absent: tally.reasoning_absent,
        leaked: count(Odd::ReasoningLeaked),
        leaked_closing_only: count(Odd::LeakedClosingOnly),
        leaked_beside_captured: count(Odd::LeakedBesideCaptured),
        unclosed: count(Odd::Unclosed),
        truncated_in_reasoning: count(Odd::TruncatedInReasoning),
        counted_but_missing: count(Odd::CountedButMissing),
    }
}

fn fields(locations: &Locations, tally: &Tally) -> Vec<FieldReport> {
    let report = |field: Field| {
        let slots = locations.slots.iter().enumerate().filter(|(_, location)| location.field == field);
        let mut used: Vec<LocationCount> = slots
            .map(|(slot, location)| LocationCount { path: location.path.clone(), rows: tally.wins[slot] })
            .filter(|count| count.rows > 0)
            .collect();
        used.sort_by_key(|count| std::cmp::Reverse(count.rows));
        let absent = tally.answers() - used.iter().map(|count| count.rows).sum::<u64>();
        FieldReport { field: field.name().to_owned(), used, absent, conflicts: conflicts(locations, tally, field) }
    };
    let always = [Field::CompletionTokens, Field::Reasoning, Field::Content, Field::FinishReason, Field::Id];
    let all = Field::PLACEABLE.into_iter().map(|field| (field, report(field)));
    all.filter(|(field, report)| !report.used.is_empty() || always.contains(field)).map(|(_, report)| report).collect()
}

fn conflicts(locations: &Locations, tally: &Tally, field: Field) -> Vec<Conflict> {
    let path = |slot: u16| locations.slots[usize::from(slot)].path.clone();
    let mut conflicts: Vec<Conflict> = Vec::new();
    for ((winner, other), disagreement) in &tally.conflicts {
        if locations.slots[usize::from(*winner)].field == field {
            conflicts.push(Conflict {
                used: path(*winner),
                other: path(*other),
                rows: disagreement.seen.count,
                off_by_one: disagreement.off_by_one,
                examples: disagreement.seen.examples.clone(),
            });
        }
    }
    conflicts.sort_by_key(|conflict| std::cmp::Reverse(conflict.rows));
    conflicts
}

fn drift(file: usize, along: &Along, unit: Unit) -> Vec<DriftReport> {
    let length = if unit == Unit::Characters { &along.characters } else { &along.tokens };
    let report = |name: &str, series: &Series| {
        let windows = series.windows();
        (!windows.is_empty()).then(|| DriftReport {
            file,
            series: name.to_owned(),
            first_n: series.first_n(),
            windows,
            change_point: series.change_point(),
        })
    };
    [("length", length), ("reasoning_captured", &along.captured), ("truncated", &along.truncated)]
        .into_iter()
        .filter_map(|(name, series)| report(name, series))
        .collect()
}

fn grouping(plan: &InspectPlan, tally: &Tally, n: usize, cut: Field, unit: Unit) -> Option<Grouping> {
    let groups = &tally.groups[n];
    let report = |(name, group): (&Vec<u8>, &Group)| GroupReport {
        name: word(name),
        answers: group.answers,
        failed: group.failed,
        truncated: group.truncated,
        empty_content: group.empty_content,
        reasoning_captured: group.captured,
        completion: {
            let counts = if unit == Unit::Characters { &group.characters } else { &group.tokens };
            counts.stats("answers of this group", unit, &plan.thresholds)
        },
    };
    let reports: Vec<GroupReport> = groups.by_name.iter().map(report).collect();
    (!reports.is_empty()).then(|| Grouping { by: cut.name().to_owned(), groups: reports, folded: groups.folded })
}

fn acceptance(tally: &Tally) -> Option<AcceptanceReport> {
    (tally.verify_rows > 0).then(|| AcceptanceReport {
        rows: tally.verify_rows,
        completion_tokens: tally.verify_tokens,
        verify_steps: tally.verify_steps,
        pooled: tally.verify_tokens as f64 / tally.verify_steps as f64,
        per_request_mean: tally.verify_ratios / tally.verify_rows as f64,
    })
}

fn throughput(plan: &InspectPlan, tally: &Tally, unit: Unit) -> Option<ThroughputReport> {
    let timed =
        tally.first_sent_ms.zip(tally.last_done_ms).map(|(first, last)| (last.saturating_sub(first)) as f64 / 1e3);
    let (wall_s, wall_from) = match (plan.wall_s, timed) {
        (Some(wall_s), _) => (wall_s, "given"),
        (None, Some(wall_s)) => (wall_s, "first request sent to last answer received, by the rows' own timing"),
        (None, None) => return None,
    };
    if unit == Unit::Characters || wall_s <= 0.0 {
        return None;
    }
    let answered = tally.finished_tokens.sum() + tally.truncated_tokens.sum();
    // Tokens of failed rows were generated too, but are not among the answers.
    let failed_tokens = tally.failed_tokens;
    let generated = answered + failed_tokens;
    let kept = generated - tally.discarded_tokens;
    Some(ThroughputReport {
        wall_s,
        wall_from: wall_from.to_owned(),
        generated_per_s: generated as f64 / wall_s,
        kept_per_s: kept as f64 / wall_s,
        discarded_share: if generated == 0 { 0.0 } else { tally.discarded_tokens as f64 / generated as f64 },
    })
}

/// Whether a file has an event of this kind.
pub(crate) fn has_event(files: &[FileReport], is: impl Fn(&FileEvent) -> bool) -> Vec<Place> {
    let files = files.iter().enumerate().filter(|(_, file)| file.events.iter().any(&is));
    files.map(|(file, _)| Place { file, line: 0, byte: 0, at_byte: None, excerpt: String::new() }).collect()
}
