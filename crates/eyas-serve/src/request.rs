//! The body of `/generate`, read and checked in SGLang's order and words.

use crate::model::ModelInfo;
use crate::refusal::{Refusal, without_position};
use crate::sampling::Sampling;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A request in its final form: every answer it asks for stands in `jobs`, in output order.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) jobs: Vec<Job>,
    /// Whether the answer is an array.
    pub(crate) is_array: bool,
    pub(crate) stream: bool,
}

/// One answer to generate.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) rid: String,
    pub(crate) input_ids: Vec<u32>,
    pub(crate) sampling: Sampling,
    /// The cap that holds, tokens: what was asked for, clipped to what fits.
    pub(crate) max_new_tokens: u32,
    /// Which of `n` answers to the same prompt.
    pub(crate) nth: u32,
    pub(crate) require_reasoning: bool,
    pub(crate) return_prompt_token_ids: bool,
    /// Set by the checks; the backend decides what becomes of it.
    pub(crate) out_of_vocabulary: Option<i64>,
    /// The prompt as text, where it came as text.
    pub(crate) text: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Wire<'a> {
    #[serde(borrow, default)]
    input_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input_embeds: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sampling_params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    return_logprob: Option<&'a RawValue>,
    #[serde(borrow, default)]
    return_hidden_states: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    require_reasoning: Option<bool>,
    #[serde(default)]
    return_prompt_token_ids: Option<bool>,
}

/// One value or a list of them, as most keys of `/generate` take it.
#[derive(Debug)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl Request {
    /// Reads and checks a body. `encode` turns text into ids where there is a tokenizer.
    pub(crate) fn parse(
        body: &[u8],
        model: &ModelInfo,
        encode: impl Fn(&str) -> Result<Vec<u32>, Refusal>,
    ) -> Result<Self, Refusal> {
        let wire: Wire<'_> = serde_json::from_slice(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Refusal::bad_contract(without_position(&error)),
            _ => Refusal::bad_body(body, &error),
        })?;
        refuse_unsupported(&wire)?;
        let prompts = prompts(&wire, encode)?;
        let sampling = sampling(&wire, &prompts)?;
        let (is_batch, prompts) = match prompts {
            OneOrMany::One(ids) => (false, vec![ids]),
            OneOrMany::Many(rows) => (true, rows),
        };
        let n_per_prompt = sampling.first().map_or(1, |params| params.n);
        if sampling.iter().any(|params| params.n != n_per_prompt) {
            return Err(Refusal::bad_value(
                "The parallel_sample_num should be the same for all samples in sample params.",
            ));
        }
        let text = match (wire.input_ids, wire.text) {
            (None, Some(raw)) => serde_json::from_str::<String>(raw.get()).ok(),
            _ => None,
        };
        let n_jobs = prompts.len() * n_per_prompt as usize;
        let rids = rids(wire.rid, n_jobs, is_batch, n_per_prompt)?;

        let mut jobs = Vec::with_capacity(n_jobs);
        let mut rids = rids.into_iter();
        for (ids, sampling) in prompts.into_iter().zip(sampling) {
            sampling.check()?;
            let (input_ids, out_of_vocabulary) = checked_ids(ids, model);
            let max_new_tokens = model.cap(input_ids.len(), sampling.max_new_tokens)?;
            let job = Job {
                rid: String::new(),
                input_ids,
                sampling,
                max_new_tokens,
                nth: 0,
                require_reasoning: wire.require_reasoning.unwrap_or(false),
                return_prompt_token_ids: wire.return_prompt_token_ids.unwrap_or(false),
                out_of_vocabulary,
                text: text.clone(),
            };
            for nth in 1..n_per_prompt {
                jobs.push(Job { rid: rids.next().unwrap_or_else(new_rid), nth: nth - 1, ..job.clone() });
            }
            jobs.push(Job { rid: rids.next().unwrap_or_else(new_rid), nth: n_per_prompt - 1, ..job });
        }
        Ok(Self { jobs, is_array: is_batch || n_per_prompt > 1, stream: wire.stream.unwrap_or(false) })
    }
}

fn refuse_unsupported(wire: &Wire<'_>) -> Result<(), Refusal> {
    let asked =
        |value: Option<&RawValue>| value.is_some_and(|raw| raw.get() != "false" && !raw.get().starts_with("[false"));
    if wire.input_embeds.is_some() {
        return Err(Refusal::bad_value("input_embeds is not supported by this server."));
    }
    if asked(wire.return_logprob) {
        return Err(Refusal::bad_value("return_logprob is not supported by this server."));
    }
    if asked(wire.return_hidden_states) {
        return Err(Refusal::bad_value("The server is not configured to return hidden states."));
    }
    Ok(())
}

/// The prompts as raw ids. With ids and text both, the ids count.
fn prompts(
    wire: &Wire<'_>,
    encode: impl Fn(&str) -> Result<Vec<u32>, Refusal>,
) -> Result<OneOrMany<Vec<i64>>, Refusal> {
    let wide = |ids: Vec<u32>| ids.into_iter().map(i64::from).collect::<Vec<_>>();
    if let Some(raw) = wire.input_ids {
        let text = raw.get();
        let inner = text.strip_prefix('[').map(str::trim_start);
        if inner.is_some_and(|inner| inner.starts_with(']')) {
            return Err(Refusal::bad_value("input_ids cannot be empty."));
        }
        return if inner.is_some_and(|inner| inner.starts_with('[')) {
            field(raw, "input_ids").map(OneOrMany::Many)
        } else {
            field(raw, "input_ids").map(OneOrMany::One)
        };
    }
    let Some(raw) = wire.text else {
        return Err(Refusal::bad_value("Either text, input_ids or input_embeds should be provided."));
    };
    if raw.get().starts_with('[') {
        let texts: Vec<String> = field(raw, "text")?;
        let rows = texts.iter().map(|text| encode(text).map(wide)).collect::<Result<_, _>>()?;
        Ok(OneOrMany::Many(rows))
    } else {
        let text: String = field(raw, "text")?;
        Ok(OneOrMany::One(wide(encode(&text)?)))
    }
}

fn sampling(wire: &Wire<'_>, prompts: &OneOrMany<Vec<i64>>) -> Result<Vec<Sampling>, Refusal> {
    let n_prompts = match prompts {
        OneOrMany::One(_) => 1,
        OneOrMany::Many(rows) => rows.len(),
    };
    let Some(raw) = wire.sampling_params else { return Ok(vec![Sampling::default(); n_prompts]) };
    let contract = |error: serde_json::Error| Refusal::bad_contract(without_position(&error));
    if !raw.get().starts_with('[') {
        let one: Sampling = serde_json::from_str(raw.get()).map_err(contract)?;
        return Ok(vec![one; n_prompts]);
    }
    let list: Vec<Sampling> = serde_json::from_str(raw.get()).map_err(contract)?;
    if list.len() != n_prompts {
        return Err(Refusal::bad_value(format!(
            "The length of sampling_params should be equal to the batch size: got {} for {n_prompts} prompts.",
            list.len()
        )));
    }
    Ok(list)
}

/// Own ids where the request gives them. With `n` > 1 SGLang makes fresh ones.
fn rids(raw: Option<&RawValue>, n_jobs: usize, is_batch: bool, n_per_prompt: u32) -> Result<Vec<String>, Refusal> {
    let given = match raw {
        None => return Ok(Vec::new()),
        Some(raw) if raw.get().starts_with('[') => OneOrMany::Many(field::<Vec<String>>(raw, "rid")?),
        Some(raw) => OneOrMany::One(field::<String>(raw, "rid")?),
    };
    let rids = match given {
        OneOrMany::One(rid) if is_batch => (0..n_jobs).map(|n| format!("{rid}_{n}")).collect(),
        OneOrMany::One(rid) => vec![rid],
        OneOrMany::Many(list) if n_per_prompt == 1 && list.len() != n_jobs => {
            return Err(Refusal::bad_value("The number of rids should be equal to the batch size."));
        }
        OneOrMany::Many(list) => list,
    };
    let mut sorted: Vec<&str> = rids.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut repeated: Vec<&str> = sorted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    repeated.dedup();
    if !repeated.is_empty() {
        let quoted: Vec<String> = repeated.iter().map(|rid| format!("'{rid}'")).collect();
        return Err(Refusal::bad_value(format!(
            "Duplicate request IDs detected within the request: [{}]",
            quoted.join(", ")
        )));
    }
    Ok(if n_per_prompt > 1 { Vec::new() } else { rids })
}

fn checked_ids(ids: Vec<i64>, model: &ModelInfo) -> (Vec<u32>, Option<i64>) {
    let mut bad = None;
    let ids = ids
        .into_iter()
        .map(|id| match u32::try_from(id) {
            Ok(id) if id < model.vocab_size => id,
            _ => {
                bad = bad.or(Some(id));
                0
            }
        })
        .collect();
    (ids, bad)
}

fn field<'a, T: Deserialize<'a>>(raw: &'a RawValue, name: &str) -> Result<T, Refusal> {
    serde_json::from_str(raw.get())
        .map_err(|error| Refusal::bad_contract(format!("{name}: {}", without_position(&error))))
}

/// 32 hexadecimal digits, different for every request of this process.
pub(crate) fn new_rid() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut seed = [0_u8; 24];
    seed[..16].copy_from_slice(&nanos.to_le_bytes());
    seed[16..].copy_from_slice(&n.to_le_bytes());
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&seed))
}
