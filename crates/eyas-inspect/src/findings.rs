//! What is wrong or odd about the answers, and what to do about it.

use crate::{
    document::{DriftReport, FileEvent, Finding, Inspection, Place, Severity, Unit, Verdict, VerdictLevel},
    inspect::has_event,
    plan::InspectPlan,
    tally::{Odd, Sighting},
};

/// Share of cut answers from which the cap is a warning.
const MANY_TRUNCATED: f64 = 0.05;
/// Share of answers without reasoning from which it is an error, when the target reasons.
const MANY_WITHOUT_REASONING: f64 = 0.5;

/// What findings are drawn from, besides the document itself.
pub(crate) struct Facts<'a> {
    pub(crate) plan: &'a InspectPlan,
    pub(crate) odd: &'a [Sighting],
}

impl Facts<'_> {
    fn odd(&self, odd: Odd) -> &Sighting {
        &self.odd[odd as usize]
    }
}

/// All findings, in no order.
pub(crate) fn find(inspection: &Inspection, facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    files(inspection, &mut found);
    rows(inspection, &mut found);
    answers(inspection, facts, &mut found);
    reasoning(inspection, facts, &mut found);
    counts(inspection, facts, &mut found);
    mixtures(inspection, &mut found);
    inspection.drift.iter().for_each(|drift| found.extend(change(inspection, drift)));
    found
}

fn finding(kind: &str, severity: Severity, count: u64, whole: u64, message: String, advice: &str) -> Finding {
    Finding {
        kind: kind.to_owned(),
        severity,
        count,
        share: (whole > 0).then(|| count as f64 / whole as f64),
        message,
        advice: advice.to_owned(),
        examples: Vec::new(),
    }
}

/// `1 row`, `2 rows`.
fn n(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", thousands(count))
}

/// Digits in groups of three.
fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share of a whole in per cent, with as many places as it needs not to be 0 or 100 by rounding.
fn percent(count: u64, whole: u64) -> String {
    let percent = 100.0 * count as f64 / whole.max(1) as f64;
    if count == whole || count == 0 {
        format!("{percent:.0} %")
    } else if !(0.1..=99.9).contains(&percent) {
        format!("{percent:.3} %")
    } else {
        format!("{percent:.1} %")
    }
}

fn files(inspection: &Inspection, found: &mut Vec<Finding>) {
    let whole = inspection.files.len() as u64;
    let mut file_finding = |kind: &str, severity, message: &str, advice: &str, is: &dyn Fn(&FileEvent) -> bool| {
        let places: Vec<Place> = has_event(&inspection.files, is);
        if let Some(first) = places.first() {
            let name = &inspection.files[first.file].path;
            let others = if places.len() > 1 { format!(" (and {} more)", places.len() - 1) } else { String::new() };
            let count = places.len() as u64;
            let message = format!("`{name}`{others} {message}");
            found.push(Finding { examples: places, ..finding(kind, severity, count, whole, message, advice) });
        }
    };
    file_finding(
        "not_text",
        Severity::Error,
        "holds no text that JSON can be read from",
        "convert it to UTF-8 JSON lines",
        &|event| matches!(event, FileEvent::NotText { .. }),
    );
    file_finding(
        "stream_damaged",
        Severity::Error,
        "is damaged: what lies behind the damage was not read",
        "take a copy that decompresses to its end",
        &|event| matches!(event, FileEvent::CompressedStreamDamaged { .. }),
    );
    file_finding(
        "stream_cut",
        Severity::Warning,
        "ends in the middle of its compressed stream",
        "wait until its writer is done, or take a whole copy",
        &|event| matches!(event, FileEvent::CompressedStreamCut),
    );
    file_finding(
        "unsettled",
        Severity::Error,
        "was cut or replaced during every look at it",
        "inspect a copy, or stop its writer",
        &|event| matches!(event, FileEvent::Unsettled { .. }),
    );
    file_finding("replaced", Severity::Notice, "was cut or replaced while it was read, and read again", "", &|event| {
        matches!(event, FileEvent::Shrank | FileEvent::Replaced)
    });
}

fn rows(inspection: &Inspection, found: &mut Vec<Finding>) {
    let rows = &inspection.rows;
    for class in &rows.malformed_by_class {
        let mut message = format!("{}: {}", n(class.count, "unreadable row"), class.meaning);
        if class.recoverable > 0 {
            let records = n(class.recoverable, "whole record");
            message.extend(["; ", &records, " could be had back out of them"]);
        }
        let advice = match class.class.as_str() {
            "torn" | "fused" | "nul" => {
                "a writer was killed or two wrote at once: ask again for the ids that are missing"
            }
            "not_an_object" | "syntax" => "check that this is a file of JSON objects, one a line",
            _ => "leave these rows out, or write them anew",
        };
        let kind = format!("malformed_{}", class.class);
        let base = finding(&kind, Severity::Error, class.count, rows.total, message, advice);
        found.push(Finding { examples: class.examples.clone(), ..base });
    }
    for remark in &inspection.remarks {
        let (severity, advice) = match remark.class.as_str() {
            "not_a_number" | "lone_surrogate" => {
                (Severity::Warning, "mend or drop them before a strict reader meets them")
            }
            "duplicate_key" => (Severity::Warning, "readers differ in which value they take"),
            _ => (Severity::Notice, ""),
        };
        let what = if remark.class == "byte_order_mark" { "file" } else { "row" };
        let whole = if what == "file" { inspection.files.len() as u64 } else { rows.parsed };
        let message = format!("{}: {}", n(remark.count, what), remark.meaning);
        let base = finding(&remark.class, severity, remark.count, whole, message, advice);
        found.push(Finding { examples: remark.examples.clone(), ..base });
    }
    if rows.in_progress > 0 {
        let message = format!("{} in progress: the last line is not finished", n(rows.in_progress, "row"));
        found.push(finding("in_progress", Severity::Notice, rows.in_progress, rows.total, message, ""));
    }
}

fn answers(inspection: &Inspection, facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let answers = &inspection.answers;
    let whole = answers.answers;
    let parsed = inspection.rows.parsed;
    let mut push = |odd: Option<Odd>, base: Finding| {
        let examples = odd.map(|odd| facts.odd(odd).examples.clone()).unwrap_or_default();
        found.push(Finding { examples, ..base });
    };
    if answers.failed > 0 {
        let severity = if answers.failed * 2 > parsed { Severity::Error } else { Severity::Warning };
        let cause = answers.failed_by_cause.first().map(|cause| cause.name.as_str()).unwrap_or_default();
        let message = format!(
            "{} failed ({}); most often: {cause}",
            n(answers.failed, "request"),
            percent(answers.failed, parsed)
        );
        push(
            None,
            finding(
                "failed",
                severity,
                answers.failed,
                parsed,
                message,
                "ask again for these prompts; they are in no statistic",
            ),
        );
    }
    if answers.given_up > 0 {
        let cause = answers.given_up_by_cause.first().map(|cause| cause.name.as_str()).unwrap_or_default();
        let message = format!("{} given up by the run; most often: {cause}", n(answers.given_up, "prompt"));
        let severity = Severity::Warning;
        push(
            None,
            finding(
                "given_up",
                severity,
                answers.given_up,
                whole + answers.given_up,
                message,
                "see failed.jsonl; resume the run to try them again",
            ),
        );
    }
    if answers.without_answer > 0 {
        let message = format!("{} without any answer", n(answers.without_answer, "row"));
        push(
            None,
            finding(
                "without_answer",
                Severity::Warning,
                answers.without_answer,
                parsed,
                message,
                "these are prompts, or rows in a layout that is not known: name the place with --field content=PATH",
            ),
        );
    }
    if answers.truncated > 0 {
        let share = answers.truncated as f64 / whole as f64;
        let severity = if share >= MANY_TRUNCATED { Severity::Warning } else { Severity::Notice };
        let message =
            format!("{} cut by the token cap ({})", n(answers.truncated, "answer"), percent(answers.truncated, whole));
        push(
            Some(Odd::Truncated),
            finding(
                "truncated",
                severity,
                answers.truncated,
                whole,
                message,
                "raise the cap or leave them out of training; their lengths are lower bounds",
            ),
        );
    }
    if answers.empty_content > 0 {
        let by_cap = answers.empty_content_truncated;
        let also = if by_cap > 0 {
            format!(", {} of them because the cap fell inside the reasoning", thousands(by_cap))
        } else {
            String::new()
        };
        let severity = if answers.empty_content > by_cap { Severity::Warning } else { Severity::Notice };
        let message = format!("{} without content{also}", n(answers.empty_content, "answer"));
        push(
            Some(Odd::EmptyContent),
            finding("empty_content", severity, answers.empty_content, whole, message, "leave them out of training"),
        );
    }
    let duplicates = inspection.conversations.duplicate_ids;
    if duplicates > 0 {
        let message = format!(
            "{} an id and turn that another row has too",
            n(duplicates, "row").replace("rows", "rows have").replace("1 row", "1 row has")
        );
        push(
            None,
            finding(
                "duplicate_ids",
                Severity::Warning,
                duplicates,
                whole,
                message,
                "keep one row of each: a resume by position, or two writers, wrote them twice",
            ),
        );
    }
    if answers.repeated > 0 {
        let about = if answers.repeated_estimated { "about " } else { "" };
        let message = format!(
            "{about}{} that repeat an earlier one word for word (of 200 characters and more)",
            n(answers.repeated, "answer")
        );
        push(
            None,
            finding(
                "repeated_answers",
                Severity::Warning,
                answers.repeated,
                whole,
                message,
                "keep one of each, unless the prompts differ and the target answers them alike",
            ),
        );
    }
    let choices = facts.odd(Odd::SeveralChoices);
    if choices.count > 0 {
        let message = format!("{} with more than one choice; only the first is looked at", n(choices.count, "row"));
        push(
            Some(Odd::SeveralChoices),
            finding("several_choices", Severity::Notice, choices.count, whole, message, ""),
        );
    }
}

fn reasoning(inspection: &Inspection, facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let report = &inspection.reasoning;
    let whole = inspection.answers.answers;
    let mut push = |odd: Odd, base: Finding| found.push(Finding { examples: facts.odd(odd).examples.clone(), ..base });
    let expected = facts.plan.expect_reasoning;
    let missing = report.empty + report.null + report.absent;
    if missing > 0 && expected != Some(false) {
        let parts = [(report.absent, "no field"), (report.null, "null"), (report.empty, "empty")];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what} {}", thousands(count)))
            .collect();
        let share = missing as f64 / whole as f64;
        let none_at_all = report.captured + report.leaked == 0;
        let severity = match (expected, none_at_all) {
            (None, true) => Severity::Warning,
            _ if share >= MANY_WITHOUT_REASONING => Severity::Error,
            _ => Severity::Warning,
        };
        let (message, advice) = if none_at_all {
            let message = format!("no answer has any reasoning ({})", parts.join(", "));
            (
                message,
                "if the target reasons, the server ran without its reasoning parser, or thinking was off: check before going on",
            )
        } else {
            let message = format!(
                "{} without reasoning ({}): {}",
                n(missing, "answer"),
                percent(missing, whole),
                parts.join(", ")
            );
            (message, "ask again for them, or leave them out: they do not belong to the same kind")
        };
        push(Odd::ReasoningMissing, finding("reasoning_missing", severity, missing, whole, message, advice));
    }
    if report.leaked > 0 {
        let closing = if report.leaked_closing_only > 0 {
            format!(" ({} with the closing marker only)", thousands(report.leaked_closing_only))
        } else {
            String::new()
        };
        let message = format!("{} with the reasoning left in the content{closing}", n(report.leaked, "answer"));
        push(
            Odd::ReasoningLeaked,
            finding(
                "reasoning_leaked",
                Severity::Error,
                report.leaked,
                whole,
                message,
                "no parser split it: split on token ids, or start the server with its reasoning parser",
            ),
        );
    }
    if report.leaked_beside_captured > 0 {
        let message = format!(
            "{} with think markers in the content although the reasoning has its own field",
            n(report.leaked_beside_captured, "answer")
        );
        push(
            Odd::LeakedBesideCaptured,
            finding(
                "think_markers_in_content",
                Severity::Warning,
                report.leaked_beside_captured,
                whole,
                message,
                "look at a few: the target may think twice, or quote the markers",
            ),
        );
    }
    if report.unclosed > 0 {
        let message = format!("{} with a think block that is never closed", n(report.unclosed, "answer"));
        push(
            Odd::Unclosed,
            finding(
                "reasoning_unclosed",
                Severity::Warning,
                report.unclosed,
                whole,
                message,
                "leave them out of training",
            ),
        );
    }
    if report.counted_but_missing > 0 {
        let message = format!(
            "{} whose reasoning was counted by the server and is not there",
            n(report.counted_but_missing, "answer")
        );
        push(
            Odd::CountedButMissing,
            finding(
                "reasoning_lost",
                Severity::Error,
                report.counted_but_missing,
                whole,
                message,
                "the client threw it away: read the field that this server uses",
            ),
        );
    }
    if report.truncated_in_reasoning > 0 {
        let message = format!("{} cut inside the reasoning", n(report.truncated_in_reasoning, "answer"));
        push(
            Odd::TruncatedInReasoning,
            finding("truncated_in_reasoning", Severity::Notice, report.truncated_in_reasoning, whole, message, ""),
        );
    }
    let channels = facts.odd(Odd::ChannelMarkup);
    if channels.count > 0 {
        let message = format!("{} with channel markup in the content", n(channels.count, "answer"));
        push(
            Odd::ChannelMarkup,
            finding(
                "unparsed_markup",
                Severity::Error,
                channels.count,
                whole,
                message,
                "the server's parser does not know this target's format",
            ),
        );
    }
}

fn counts(inspection: &Inspection, facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let whole = inspection.answers.answers;
    let no_count = facts.odd(Odd::NoCount);
    if whole > 0 && inspection.lengths.unit == Unit::Characters {
        let message = "no row has a token count or token ids: lengths are in characters".to_owned();
        found.push(finding(
            "no_token_counts",
            Severity::Notice,
            whole,
            whole,
            message,
            "give a tokenizer to count tokens, or name the place with --field completion_tokens=PATH",
        ));
    } else if no_count.count > 0 {
        let message =
            format!("{} without a token count ({})", n(no_count.count, "answer"), percent(no_count.count, whole));
        let base = finding(
            "no_token_count",
            Severity::Notice,
            no_count.count,
            whole,
            message,
            "they are in no length statistic",
        );
        found.push(Finding { examples: no_count.examples.clone(), ..base });
    }
    for field in &inspection.fields {
        for conflict in &field.conflicts {
            let by_one = match conflict.off_by_one {
                0 => String::new(),
                all if all == conflict.rows => ", always by one (the stop token)".to_owned(),
                some => format!(", {} of them by one", thousands(some)),
            };
            let message = format!(
                "{}: `{}` and `{}` disagree in {}{by_one}",
                field.field,
                conflict.used,
                conflict.other,
                n(conflict.rows, "row"),
            );
            let severity = if conflict.off_by_one == conflict.rows { Severity::Notice } else { Severity::Warning };
            let base = finding("field_conflict", severity, conflict.rows, whole, message, "the first one was used");
            found.push(Finding { examples: conflict.examples.clone(), ..base });
        }
    }
}

/// Answers of unlike origin in one set.
fn mixtures(inspection: &Inspection, found: &mut Vec<Finding>) {
    for (by, kind, what, severity, advice) in [
        (
            "fingerprint",
            "mixed_fingerprints",
            "fingerprints",
            Severity::Error,
            "they were made under different settings: keep one, or redo the others",
        ),
        ("model", "mixed_models", "models", Severity::Warning, "train on the answers of one target only"),
    ] {
        let Some(grouping) = inspection.groups.iter().find(|grouping| grouping.by == by && grouping.groups.len() > 1)
        else {
            continue;
        };
        let answers: u64 = grouping.groups.iter().map(|group| group.answers).sum();
        let most = grouping.groups.iter().map(|group| group.answers).max().unwrap_or(0);
        let largest: Vec<String> = grouping
            .groups
            .iter()
            .take(4)
            .map(|group| format!("{} {}", group.name, thousands(group.answers)))
            .collect();
        let message = format!("answers of {} {what}: {}", thousands(grouping.groups.len() as u64), largest.join(", "));
        found.push(finding(kind, severity, answers - most, answers, message, advice));
    }
}

/// A file whose parts differ beyond chance.
fn change(inspection: &Inspection, drift: &DriftReport) -> Option<Finding> {
    let change = drift.change_point.as_ref()?;
    let unit = if inspection.lengths.unit == Unit::Characters { "characters" } else { "tokens" };
    let number = |value: f64| thousands(rounded(value));
    let (before, after) = (thousands(change.n_before), thousands(change.n_after));
    let message = match drift.series.as_str() {
        "length" => format!(
            "the first {before} answers average {} {unit}, the other {after} {}: the file is not homogeneous",
            number(change.mean_before),
            number(change.mean_after),
        ),
        "reasoning_captured" => format!(
            "{:.1} % of the first {before} answers have reasoning, {:.1} % of the other {after}",
            100.0 * change.mean_before,
            100.0 * change.mean_after,
        ),
        _ => format!(
            "{:.1} % of the first {before} answers were cut by the cap, {:.1} % of the other {after}",
            100.0 * change.mean_before,
            100.0 * change.mean_after,
        ),
    };
    let of_file =
        if inspection.files.len() > 1 { format!(" (`{}`)", inspection.files[drift.file].path) } else { String::new() };
    let advice = match drift.series.as_str() {
        "length" => "short answers come back first, or settings changed on the way: do not extrapolate from a part",
        _ => "settings changed on the way: the parts do not belong in one file",
    };
    let wide = (change.mean_before - change.mean_after).abs() >= 0.1;
    let severity = if drift.series == "reasoning_captured" && wide { Severity::Error } else { Severity::Warning };
    let smaller = change.n_before.min(change.n_after);
    let whole = change.n_before + change.n_after;
    Some(finding(&format!("drift_{}", drift.series), severity, smaller, whole, message + &of_file, advice))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of lengths, not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// What it comes to; findings are in their final order.
pub(crate) fn verdict(inspection: &Inspection) -> Verdict {
    let answers = inspection.answers.answers;
    let worst = inspection.findings.first();
    if answers == 0 {
        let rows = &inspection.rows;
        let action = match worst {
            _ if rows.total == 0 => "no rows at all: is this the right file?".to_owned(),
            _ if rows.total == rows.blank => "nothing but blank lines: is this the right file?".to_owned(),
            Some(finding) if !finding.advice.is_empty() => {
                format!("no answers in {}: {}", n(rows.total, "row"), finding.advice)
            }
            _ => format!("no answers in {}", n(rows.total, "row")),
        };
        return Verdict { level: VerdictLevel::Nothing, action };
    }
    let with_advice = inspection.findings.iter().find(|finding| !finding.advice.is_empty());
    let (level, action) = match (worst, with_advice) {
        (Some(worst), Some(finding)) => {
            let level = if worst.severity == Severity::Error { VerdictLevel::Damaged } else { VerdictLevel::Findings };
            (level, format!("{} ({})", finding.advice, finding.kind))
        }
        (Some(_), None) => (VerdictLevel::Findings, "nothing that needs doing".to_owned()),
        (None, _) => (VerdictLevel::Clean, "nothing to mend: ready for training".to_owned()),
    };
    Verdict { level, action }
}
