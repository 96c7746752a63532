//! Filters, order, ids, output files.

use crate::kit::{Prepared, by_id};
use eyas_prompts::prepare::{Duplicates, PrepareError, PrepareEvent, PrepareKey, prepare};
use eyas_types::FingerprintInputs;
use std::collections::HashSet;

fn rows(n: usize) -> String {
    (0..n).map(|n| format!("{{\"id\":\"r{n}\",\"prompt\":\"{}\"}}\n", "x".repeat(n))).collect()
}

fn ids(prepared: &Prepared) -> Vec<String> {
    prepared.prompts().into_iter().map(|prompt| prompt.sample_id).collect()
}

#[test]
fn the_order_depends_on_seed_and_ids_alone() {
    let forward = Prepared::of("a.jsonl", rows(60));
    forward.run().unwrap();
    let mut reversed: Vec<String> = rows(60).lines().map(str::to_owned).collect();
    reversed.reverse();
    let reversed = Prepared::of("a.jsonl", reversed.join("\n"));
    reversed.run().unwrap();
    assert_eq!(ids(&forward), ids(&reversed));
    let unshuffled: Vec<String> = (1..60).map(|n| format!("r{n}")).collect();
    assert_ne!(ids(&forward), unshuffled);
    assert_eq!(ids(&forward).into_iter().collect::<HashSet<_>>(), unshuffled.into_iter().collect());

    // More rows do not change the order of the others.
    let more = Prepared::of("a.jsonl", rows(90));
    more.run().unwrap();
    let before = ids(&forward);
    let kept: Vec<String> = ids(&more).into_iter().filter(|id| before.contains(id)).collect();
    assert_eq!(kept, before);

    let mut other_seed = Prepared::of("a.jsonl", rows(60));
    other_seed.plan.seed = 8;
    other_seed.run().unwrap();
    assert_ne!(ids(&other_seed), before);
}

#[test]
fn a_cap_keeps_a_prefix_of_the_shuffle_and_names_the_rest() {
    let all = Prepared::of("a.jsonl", rows(40));
    all.run().unwrap();
    let mut capped = Prepared::of("a.jsonl", rows(40));
    capped.plan.filter.max_prompts = Some(10);
    let report = capped.run().unwrap();
    assert_eq!(ids(&capped), ids(&all)[..10]);
    assert_eq!(report.rejected_by_reason["over_max_prompts"], 29);
    assert_eq!(report.rejected_by_reason["empty_prompt"], 1);
    assert!(!report.low_yield, "a cap is a wish, not a loss");
}

#[test]
fn length_filters_are_counted_with_their_figures() {
    let mut prepared = Prepared::of("a.jsonl", rows(100));
    prepared.run().unwrap();
    let base = u32::try_from(by_id(&prepared.prompts(), "r1").prompt_ids.len()).unwrap() - 1;
    prepared.plan.filter.min_tokens = Some(base + 10);
    prepared.plan.filter.max_tokens = Some(base + 30);
    let report = prepared.run().unwrap();
    assert_eq!(report.loaded, 21);
    let (low, high) = (base + 9, base + 31);
    let last = base + 99;
    let (min, max) = (base + 10, base + 30);
    assert_eq!(
        report.to_string(),
        format!(
            "read 100 = loaded 21 + rejected 79: too_long 69 ({high} to {last} tokens, limit {max}), \
             too_short 9 (longest {low} tokens, limit {min}), empty_prompt 1"
        )
    );
    assert!(report.low_yield);
    let lengths = report.prompt_tokens.unwrap();
    assert_eq!((lengths.n, lengths.shortest, lengths.longest), (21, base + 10, base + 30));
    assert!((lengths.mean - f64::from(base + 20)).abs() < 1e-9);
    assert_eq!(report.examples.iter().filter(|row| row.reason == "too_long").count(), 3);
}

#[test]
fn equal_prompts_are_counted_and_kept_or_dropped() {
    let content = "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"c\",\"prompt\":\"y\"}\n{\"id\":\"c\",\"prompt\":\"z\"}\n";
    let mut prepared = Prepared::of("a.jsonl", content);
    let report = prepared.run().unwrap();
    let mut found = ids(&prepared);
    found.sort();
    assert_eq!(found[..3], ["a", "a#2", "b"]);
    assert!(found[3].starts_with("c#") && found[4].starts_with("c#") && found[3] != found[4]);
    assert_eq!((report.ids.equal_prompts, report.ids.repeated, report.ids.conflicting), (2, 1, 2));
    assert_eq!(report.ids.field.as_deref(), Some("id"));

    prepared.plan.duplicates = Duplicates::Drop;
    let report = prepared.run().unwrap();
    assert_eq!((report.loaded, report.rejected_by_reason["duplicate"]), (3, 2));
}

#[test]
fn a_row_that_the_template_refuses_is_one_row() {
    let prepared = Prepared::of("a.jsonl", "{\"prompt\":\"refuse me\"}\n{\"prompt\":\"x\"}\n");
    let report = prepared.run().unwrap();
    assert_eq!((report.loaded, report.rejected_by_reason["template_refused"]), (1, 1));
    let rejected = &prepared.rejected()[0];
    assert_eq!((rejected.source.row, rejected.detail.as_str()), (1, "as asked"));
    assert!(rejected.source.file.ends_with("in/a.jsonl"));
}

#[test]
fn files_and_threads_do_not_change_the_prompts() {
    let one = Prepared::of("a.jsonl", rows(700));
    one.run().unwrap();
    let mut many = Prepared::of("x/a.jsonl", rows(700).lines().take(300).collect::<Vec<_>>().join("\n"));
    let second = many.dir.path().join("in/x/b.jsonl.gz");
    let rest = rows(700).lines().skip(300).collect::<Vec<_>>().join("\n");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, rest.as_bytes()).unwrap();
    eyas_testkit::write_file(&second, packed.finish().unwrap());
    many.plan.paths = vec![many.dir.path().join("in/x")];
    many.plan.n_threads = 5;
    let report = many.run().unwrap();
    assert_eq!(report.files.len(), 2);
    assert_eq!((report.files[0].read, report.files[1].read), (300, 400));
    assert_eq!(ids(&one), ids(&many));
    let at = |prepared: &Prepared, id: &str| by_id(&prepared.prompts(), id).clone();
    assert_eq!(at(&one, "r650").prompt_ids, at(&many, "r650").prompt_ids);
    assert_eq!(at(&many, "r650").source.row, 351);
    assert_eq!(report.files[1].layout, "JSON lines, gzip");
}

#[test]
fn a_file_that_breaks_off_is_reported_and_its_whole_rows_are_taken() {
    let prepared = Prepared::of("a.json", "[{\"prompt\":\"x\"},{\"prompt\":\"y");
    let report = prepared.run().unwrap();
    assert_eq!((report.loaded, report.rejected_by_reason["torn_row"]), (1, 1));
    assert!(report.files[0].broken.as_ref().unwrap().contains("inside element 2"));
}

#[test]
fn all_rows_bad_is_an_error_that_counts_them() {
    let prepared = Prepared::of("a.jsonl", "{\n{\"a\n");
    let error = prepared.run().unwrap_err();
    assert_eq!(error.to_string(), "data set `set`: 0 of 2 rows kept: malformed_json 2");
    assert_eq!(prepared.rejected().len(), 2);
}

#[test]
fn nothing_kept_leaves_earlier_prompts_alone() {
    let mut prepared = Prepared::of("a.jsonl", rows(5));
    prepared.run().unwrap();
    let before = (prepared.prompts(), prepared.rejected());
    prepared.plan.filter.min_tokens = Some(100_000);
    assert!(matches!(prepared.run(), Err(PrepareError::NothingKept { .. })));
    assert_eq!((prepared.prompts(), prepared.rejected()), before);
}

#[test]
fn a_broken_file_is_found_before_the_first_is_read() {
    let mut prepared = Prepared::of("a.jsonl", rows(5));
    prepared.plan.paths.push(prepared.dir.path().join("gone.jsonl"));
    let mut events = 0;
    let error = prepare(&prepared.plan, &crate::kit::ByteRenderer, &mut |_| events += 1).unwrap_err();
    assert!(matches!(error, PrepareError::Open(_)), "{error}");
    assert_eq!(events, 0);
    assert!(!prepared.plan.out_dir.exists());
}

#[test]
fn events_tell_what_is_going_on() {
    let prepared = Prepared::of("a.jsonl", rows(3));
    let mut seen = Vec::new();
    let mut note = |event: &PrepareEvent<'_>| {
        if matches!(event, PrepareEvent::Progress { n_rows: 0..3, .. }) {
            // On a crowded machine a second passes within three rows.
            return;
        }
        seen.push(match event {
            PrepareEvent::File { layout, .. } => format!("file {layout}"),
            PrepareEvent::Mapping { description } => format!("mapping {description}"),
            PrepareEvent::Progress { n_rows, n_bytes, n_bytes_total, .. } => {
                format!("progress {n_rows} rows, {}", n_bytes == n_bytes_total)
            }
            PrepareEvent::Writing { n_prompts } => format!("writing {n_prompts}"),
        });
    };
    prepare(&prepared.plan, &crate::kit::ByteRenderer, &mut note).unwrap();
    assert_eq!(
        seen,
        ["file JSON lines", "progress 3 rows, true", "mapping `prompt` as the user's turn; ids from `id`", "writing 2"]
    );
}

#[test]
fn the_key_names_what_changed() {
    let mut prepared = Prepared::of("a.jsonl", rows(5));
    let mut target = FingerprintInputs::default();
    target.set("template", "one");
    let key = PrepareKey::of(&prepared.plan, &target, None).unwrap();
    let text = serde_json::to_string(&key).unwrap();
    assert_eq!(serde_json::from_str::<PrepareKey>(&text).unwrap(), key);

    target.set("template", "two");
    prepared.plan.seed = 9;
    prepared.plan.n_threads = 40;
    eyas_testkit::write_file(&prepared.plan.paths[0], rows(6));
    let now = PrepareKey::of(&prepared.plan, &target, Some(&key)).unwrap();
    let changes = now.changes_since(&key);
    assert_eq!(changes[..2], ["`prepare.seed` was 7 and is 9", "`template` was \"one\" and is \"two\""]);
    assert!(changes[2].starts_with("the content of `") && changes[2].ends_with(" now)"), "{}", changes[2]);
    assert_eq!(changes.len(), 3);
}
