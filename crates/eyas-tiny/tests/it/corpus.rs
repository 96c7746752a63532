use std::collections::HashSet;

use eyas_tiny::artifacts::demo_row;
use eyas_tiny::chat;
use eyas_tiny::check::{content_of, is_right};
use eyas_tiny::corpus::{Split, held_out, training_sample};
use eyas_tiny::rng::Rng;
use eyas_tiny::tasks::{Answer, Kind};
use serde_json::json;

fn text(answer: &str) -> Answer {
    Answer::Text(answer.to_owned())
}

#[test]
fn the_corpus_hangs_on_its_seed_alone() {
    let draw = |seed| -> Vec<String> {
        let mut rng = Rng::new(seed, 5);
        (0..50).map(|_| chat::prompt(&training_sample(&mut rng, usize::MAX))).collect()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn no_prompt_is_both_trained_on_and_held_out() {
    let held_out: HashSet<String> = held_out(7, 40).into_iter().map(|sample| sample.task.user).collect();
    assert_eq!(held_out.len(), 40 * Kind::ALL.len());
    assert!(held_out.iter().all(|user| Split::of(user) == Split::HeldOut));
    let mut rng = Rng::new(1, 0);
    for _ in 0..2000 {
        assert!(!held_out.contains(&training_sample(&mut rng, usize::MAX).task.user));
    }
}

#[test]
fn what_the_corpus_calls_right_is_accepted() {
    for sample in held_out(3, 20) {
        let written = chat::completion(&sample);
        let content = content_of(written.strip_suffix(chat::IM_END).unwrap()).unwrap();
        assert!(is_right(content, &sample.task.answer), "{written}");
    }
}

#[test]
fn worked_answers_agree_with_plain_arithmetic() {
    for sample in held_out(11, 200) {
        let Answer::Text(answer) = &sample.task.answer else { continue };
        let operands: Vec<i64> =
            sample.task.user.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect();
        let want = match sample.kind {
            Kind::Sum => operands.iter().sum(),
            Kind::Product => operands[0] * operands[1],
            Kind::Difference => operands[0] - operands[1],
            Kind::Extreme => {
                let smallest = sample.task.user.to_lowercase().contains("smallest");
                *if smallest { operands.iter().min() } else { operands.iter().max() }.unwrap()
            }
            _ => continue,
        };
        assert_eq!(answer, &want.to_string(), "{}", sample.task.user);
        let last_line = sample.task.thinking.lines().last().unwrap();
        let written = last_line.rsplit([':', '=', ' ']).next().unwrap();
        assert_eq!(written.parse::<i64>().unwrap(), want, "{}", sample.task.thinking);
    }
}

#[test]
fn conversions_multiply_by_the_factors_they_name() {
    for sample in held_out(12, 200).iter().filter(|sample| sample.kind == Kind::Convert) {
        let amount: u64 = sample.task.user.split(|c: char| !c.is_ascii_digit()).find_map(|d| d.parse().ok()).unwrap();
        let factors = sample.task.thinking.lines().filter_map(|line| line.strip_prefix("From ")?.split_once(" *"));
        let product = factors.fold(amount, |product, (_, factor)| product * factor.parse::<u64>().unwrap());
        assert_eq!(sample.task.answer, text(&product.to_string()), "{}", sample.task.user);
    }
}

#[test]
fn wrong_answers_are_refused() {
    assert!(is_right(" 42\n", &text("42")));
    for wrong in ["43", "42.", "The answer is 42", ""] {
        assert!(!is_right(wrong, &text("42")), "{wrong}");
    }
    let call = Answer::ToolCall { name: "get_time".to_owned(), arguments: json!({"city": "Oslo", "n": 2}) };
    let check = |content: &str| is_right(content, &call);
    assert!(check("<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"n\":2, \"city\": \"Oslo\"}}\n</tool_call>"));
    assert!(!check("<tool_call>{\"name\": \"get_time\", \"arguments\": {\"n\": 3, \"city\": \"Oslo\"}}</tool_call>"));
    assert!(!check("<tool_call>{\"name\": \"get_date\", \"arguments\": {\"n\": 2, \"city\": \"Oslo\"}}</tool_call>"));
    assert!(!check("{\"name\": \"get_time\", \"arguments\": {\"n\": 2, \"city\": \"Oslo\"}}"));
    assert!(!check("<tool_call>{\"name\": \"get_time\"</tool_call>"));
}

#[test]
fn lengths_have_a_long_tail() {
    let mut rng = Rng::new(4, 0);
    let mut lengths: Vec<usize> =
        (0..2000).map(|_| training_sample(&mut rng, usize::MAX).task.thinking.len()).collect();
    lengths.sort_unstable();
    let (median, p99) = (lengths[1000], lengths[1980]);
    assert!(p99 > 4 * median, "median {median}, P99 {p99}");
}

#[test]
fn demo_rows_end_with_the_right_answer() {
    let sample = held_out(7, 1).into_iter().find(|sample| sample.kind == Kind::Tool).unwrap();
    let row = demo_row("tool-0001", &sample);
    let call = &row["messages"][1]["tool_calls"][0]["function"];
    let written =
        format!("<tool_call>{{\"name\": {}, \"arguments\": {}}}</tool_call>", call["name"], call["arguments"]);
    assert!(is_right(&written, &sample.task.answer), "{row}");
    assert!(row["tools"].is_array());
}
