//! Training: batches, steps, checkpoints.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use candle_core::{Device, Tensor};
use eyas_nn::checkpoint::to_safetensors;
use eyas_nn::{AdamW, AdamWConfig, CosineSchedule, Segments, cross_entropy};
use tokenizers::Tokenizer;
use xxhash_rust::xxh3::Xxh3;

use crate::artifacts::write_whole;
use crate::chat;
use crate::corpus::{Sample, training_sample};
use crate::model::{Model, ModelConfig};
use crate::rng::Rng;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct TrainConfig {
    /// Seed of the weights and of every batch.
    pub seed: u64,
    /// Steps in all; the learning rate comes down over them.
    pub total_steps: usize,
    /// A batch is closed once it holds this many tokens, prompts included.
    pub batch_tokens: usize,
    /// Highest learning rate.
    pub peak_rate: f64,
    /// Sizes of the model.
    pub model: ModelConfig,
}

impl TrainConfig {
    /// Short tasks come first: the most scratch work, in bytes, that a sample of `step` may have. All is open after a fifth.
    fn max_thinking(&self, step: usize) -> usize {
        let opened = self.total_steps / 5;
        if step >= opened { usize::MAX } else { 120 + 1200 * step / opened }
    }
}

/// Sequences packed end to end, with what is to be predicted.
pub struct Batch {
    /// `[n_tokens]`.
    pub ids: Vec<u32>,
    /// Where each sequence lies.
    pub segments: Segments,
    /// `[n_targets]`: tokens whose successor counts in the loss.
    pub rows: Vec<u32>,
    /// `[n_targets]`: those successors.
    pub targets: Arc<[u32]>,
}

/// Token ids of a sample and how many of them are prompt.
pub fn encode(tokenizer: &Tokenizer, sample: &Sample) -> Result<(Vec<u32>, usize)> {
    let ids = |text: String| -> Result<Vec<u32>> {
        let encoding = tokenizer.encode_fast(text, false).map_err(anyhow::Error::from_boxed)?;
        Ok(encoding.get_ids().to_vec())
    };
    let mut all = ids(chat::prompt(sample))?;
    let n_prompt = all.len();
    all.extend(ids(chat::completion(sample))?);
    Ok((all, n_prompt))
}

/// The batch of one step.
#[expect(clippy::cast_possible_truncation, reason = "a batch holds a few thousand tokens")]
pub fn batch(tokenizer: &Tokenizer, config: &TrainConfig, step: usize) -> Result<Batch> {
    let mut rng = Rng::new(config.seed, step as u64);
    let (mut ids, mut rows, mut targets, mut lengths) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while ids.len() < config.batch_tokens {
        let (sequence, n_prompt) = encode(tokenizer, &training_sample(&mut rng, config.max_thinking(step)))?;
        if sequence.len() > config.model.max_positions {
            continue;
        }
        rows.extend((n_prompt..sequence.len()).map(|i| (ids.len() + i - 1) as u32));
        targets.extend(&sequence[n_prompt..]);
        // The last token predicts nothing: it need not be computed.
        lengths.push(sequence.len() - 1);
        ids.extend(&sequence[..sequence.len() - 1]);
    }
    Ok(Batch { ids, segments: Segments::from_lengths(lengths), rows, targets: targets.into() })
}

/// A run under way.
pub struct Trainer {
    config: TrainConfig,
    tokenizer: Tokenizer,
    model: Model,
    optimizer: AdamW,
    schedule: CosineSchedule,
}

/// What one step did.
#[derive(Clone, Copy, Debug)]
pub struct StepReport {
    /// Mean loss per predicted token, in nats.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Tokens read, prompts included.
    pub n_tokens: usize,
}

impl Trainer {
    /// A run at its beginning.
    pub fn new(config: TrainConfig, tokenizer: Tokenizer) -> Result<Self> {
        let model = Model::init(config.model, config.seed)?;
        Self::with_model(config, tokenizer, model)
    }

    fn with_model(config: TrainConfig, tokenizer: Tokenizer, model: Model) -> Result<Self> {
        let decays = |name: &str| !name.contains("norm") && !name.contains("embed");
        let parameters = model.variables.iter().map(|(name, var)| (var.clone(), decays(name)));
        let optimizer = AdamW::new(parameters, AdamWConfig { beta2: 0.98, ..AdamWConfig::default() })?;
        let schedule = CosineSchedule {
            peak: config.peak_rate,
            floor: config.peak_rate * 0.02,
            warmup_steps: 100,
            total_steps: config.total_steps,
        };
        Ok(Self { config, tokenizer, model, optimizer, schedule })
    }

    /// The model as it stands.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Steps taken so far.
    pub fn n_steps(&self) -> usize {
        self.optimizer.n_steps()
    }

    /// Whether all steps are taken.
    pub fn is_done(&self) -> bool {
        self.n_steps() >= self.config.total_steps
    }

    /// Takes one step.
    pub fn step(&mut self) -> Result<StepReport> {
        let step = self.optimizer.n_steps();
        let batch = batch(&self.tokenizer, &self.config, step)?;
        let logits = self.model.logits(&batch.ids, &batch.segments, &batch.rows)?;
        let loss = cross_entropy(&logits, &batch.targets)?.mean_all()?;
        let grads = loss.backward()?;
        let grad_norm = self.optimizer.step(&grads, self.schedule.rate(step))?;
        let loss = f64::from(loss.to_scalar::<f32>()?);
        ensure!(loss.is_finite(), "loss is {loss} at step {step}: lower the learning rate");
        Ok(StepReport { loss, grad_norm, n_tokens: batch.ids.len() })
    }

    /// A hash of all weights, to compare runs.
    pub fn weights_hash(&self) -> Result<u64> {
        let mut hasher = Xxh3::new();
        for (_, var) in &self.model.variables {
            for value in var.flatten_all()?.to_vec1::<f32>()? {
                hasher.update(&value.to_le_bytes());
            }
        }
        Ok(hasher.digest())
    }

    /// Writes weights, optimizer state and step.
    pub fn save_checkpoint(&self, path: &Path) -> Result<()> {
        let mut tensors = Vec::new();
        for ((name, var), moments) in self.model.variables.iter().zip(self.optimizer.moments()) {
            tensors.push((name.clone(), var.as_tensor().clone()));
            tensors.push((format!("moments.{name}"), moments.clone()));
        }
        let extra = [("step", self.n_steps().to_string()), ("config", format!("{:?}", self.config))];
        write_whole(path, &to_safetensors(&tensors, &extra)?)
    }

    /// Goes on from a checkpoint of a run with the same settings.
    pub fn resume(config: TrainConfig, tokenizer: Tokenizer, path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read checkpoint `{}`", path.display()))?;
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let (now, then) = (format!("{config:?}"), metadata.get("config").cloned().unwrap_or_default());
        ensure!(now == then, "checkpoint `{}` was made with {then}, not with {now}", path.display());
        let n_steps = metadata.get("step").context("checkpoint names no step")?.parse()?;
        let tensors: HashMap<String, Tensor> = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)?;
        let mut trainer = Self::with_model(config, tokenizer, Model::from_tensors(config.model, &tensors)?)?;
        let moments = trainer
            .model
            .variables
            .iter()
            .map(|(name, _)| tensors.get(&format!("moments.{name}")).cloned())
            .collect::<Option<Vec<_>>>()
            .context("checkpoint lacks optimizer state")?;
        trainer.optimizer.restore(n_steps, moments)?;
        Ok(trainer)
    }
}
