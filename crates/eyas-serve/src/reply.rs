//! Bodies of answers: the object of `/generate`, in SGLang's key order.

use crate::json::Json;
use crate::request::Job;
use eyas_types::{FinishReason, Matched};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The parts of an answer that a backend renders.
pub(crate) trait Rendered {
    /// `"text":"…","output_ids":[…]`, or what a fault leaves of it.
    fn write_output(&self, out: &mut Json);
    /// Tokens so far, the stop token included.
    fn n_tokens(&self) -> usize;
    /// The rest of `meta_info`.
    fn meta(&self) -> Meta;
}

/// What else goes into `meta_info`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meta {
    pub(crate) cached_tokens: u64,
    pub(crate) reasoning_tokens: u64,
    pub(crate) num_retractions: u64,
    /// Added to `completion_tokens`: not zero only where a script lies about its counts.
    pub(crate) miscount: u64,
    /// Whether a script answers under another request's id.
    pub(crate) wrong_rid: bool,
}

/// Where in the life of an answer it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// `None` while it is being generated.
    pub(crate) finish: Option<&'a FinishReason>,
    pub(crate) elapsed: Duration,
    /// Position in the batch; only in batch streams.
    pub(crate) index: Option<usize>,
}

/// Writes one answer object.
pub(crate) fn write_answer(
    out: &mut Json,
    answer: &impl Rendered,
    job: &Job,
    moment: Moment<'_>,
    weight_version: &str,
) {
    let meta = answer.meta();
    let completion_tokens = answer.n_tokens() as u64 + meta.miscount;
    out.raw("{");
    answer.write_output(out);
    out.raw(",\"meta_info\":{\"id\":");
    if meta.wrong_rid {
        out.value(&format!("other-{}", job.rid));
    } else {
        out.value(&job.rid);
    }
    out.raw(",\"finish_reason\":");
    write_finish(out, moment.finish);
    out.raw(",\"prompt_tokens\":").int(job.input_ids.len() as u64);
    out.raw(",\"weight_version\":").value(weight_version);
    out.raw(",\"num_retractions\":").int(meta.num_retractions);
    out.raw(",\"reasoning_tokens\":").int(meta.reasoning_tokens);
    out.raw(",\"completion_tokens\":").int(completion_tokens);
    out.raw(",\"cached_tokens\":").int(meta.cached_tokens);
    if moment.finish.is_some() {
        out.raw(",\"weight_versions\":[{\"version\":").value(weight_version);
        out.raw(",\"start\":0,\"end\":").int(completion_tokens).raw("}]");
    }
    if meta.cached_tokens > 0 {
        out.raw(",\"cached_tokens_details\":{\"device\":").int(meta.cached_tokens).raw(",\"host\":0}");
    } else {
        out.raw(",\"cached_tokens_details\":null");
    }
    out.raw(",\"dp_rank\":null");
    if moment.finish.is_some() {
        out.raw(",\"e2e_latency\":").value(&moment.elapsed.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        out.raw(",\"response_sent_to_client_ts\":").value(&now);
    }
    out.raw("}");
    if job.return_prompt_token_ids {
        out.raw(",\"prompt_token_ids\":[").ids(&job.input_ids).raw("]");
    }
    if let Some(index) = moment.index {
        out.raw(",\"index\":").int(index as u64);
    }
    out.raw("}");
}

fn write_finish(out: &mut Json, finish: Option<&FinishReason>) {
    match finish {
        None => out.raw("null"),
        Some(FinishReason::Stop { matched }) => {
            out.raw("{\"type\":\"stop\",\"matched\":");
            write_matched(out, matched.as_ref()).raw("}")
        }
        Some(FinishReason::Length { length }) => out.raw("{\"type\":\"length\",\"length\":").value(length).raw("}"),
        Some(FinishReason::Abort { message, status_code }) => {
            out.raw("{\"type\":\"abort\",\"message\":").value(message);
            out.raw(",\"status_code\":").value(status_code).raw(",\"err_type\":null}")
        }
        Some(other) => out.raw("{\"type\":").value(other.as_str()).raw("}"),
    };
}

/// What a stop matched, as JSON.
pub(crate) fn write_matched<'a>(out: &'a mut Json, matched: Option<&Matched>) -> &'a mut Json {
    match matched {
        None => out.raw("null"),
        Some(matched) => out.value(matched),
    }
}
