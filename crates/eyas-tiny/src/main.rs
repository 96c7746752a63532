//! `eyas-tiny train | eval | corpus`: makes models/eyas-tiny and data/demo.
#![expect(clippy::print_stdout, reason = "a tool of the repository: its output is its report")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use eyas_nn::{Segments, cross_entropy};
use eyas_tiny::artifacts::{load, write_configs, write_demo, write_weights};
use eyas_tiny::chat;
use eyas_tiny::corpus::{held_out, training_sample};
use eyas_tiny::evaluate::evaluate;
use eyas_tiny::model::ModelConfig;
use eyas_tiny::rng::Rng;
use eyas_tiny::tokenizer;
use eyas_tiny::train::{TrainConfig, Trainer, encode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seed of the demo's prompts; the accuracy during training is taken on others.
const DEMO_SEED: u64 = 7;
const EVAL_SEED: u64 = 8;

#[derive(Parser)]
#[command(
    about = "Makes models/eyas-tiny and data/demo",
    after_help = "example: eyas-tiny train --out models/eyas-tiny"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Trains the tokenizer and the model and writes the model folder.
    Train(TrainArgs),
    /// Answers held-out prompts with a model folder and prints the share of right answers by kind.
    Eval {
        /// The model folder.
        #[arg(long, default_value = "models/eyas-tiny")]
        model: PathBuf,
        /// Prompts of each kind.
        #[arg(long, default_value_t = 100)]
        per_kind: usize,
        /// Show the first wrong answer of each kind.
        #[arg(long)]
        wrong: bool,
    },
    /// Prints samples as the model sees them, with the lengths by kind.
    Corpus {
        /// Samples to print.
        #[arg(long, default_value_t = 12)]
        show: usize,
    },
    /// Prints samples token by token with the loss of each.
    Losses {
        /// The model folder.
        #[arg(long, default_value = "models/eyas-tiny")]
        model: PathBuf,
    },
    /// Writes the demo's data sets.
    Demo {
        /// The folder.
        #[arg(long, default_value = "data/demo")]
        out: PathBuf,
        /// Prompts of each kind.
        #[arg(long, default_value_t = 55)]
        per_kind: usize,
    },
}

#[derive(clap::Args)]
struct TrainArgs {
    /// Folder the model is written to.
    #[arg(long, default_value = "models/eyas-tiny")]
    out: PathBuf,
    /// Checkpoint; a run with the same settings goes on from it.
    #[arg(long, default_value = "runs/eyas-tiny/checkpoint.safetensors")]
    checkpoint: PathBuf,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps in all.
    #[arg(long, default_value_t = 6500)]
    steps: usize,
    /// Tokens of a batch.
    #[arg(long, default_value_t = 768)]
    batch_tokens: usize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 3e-3)]
    rate: f64,
    /// Layers.
    #[arg(long, default_value_t = ModelConfig::default().n_layers)]
    layers: usize,
    /// Width of the residual stream.
    #[arg(long, default_value_t = ModelConfig::default().hidden_size)]
    hidden: usize,
    /// Width of the MLP.
    #[arg(long, default_value_t = ModelConfig::default().intermediate_size)]
    intermediate: usize,
    /// Steps between two looks at the held-out accuracy.
    #[arg(long, default_value_t = 500)]
    eval_every: usize,
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Train(args) => train(&args),
        Command::Eval { model, per_kind, wrong } => {
            let (model, tokenizer) = load(&model, ModelConfig::default())?;
            let start = Instant::now();
            let accuracy = evaluate(&model, &tokenizer, &held_out(DEMO_SEED, per_kind), 768)?;
            let n_tokens: usize = accuracy.n_generated.iter().sum();
            println!("{accuracy}");
            let seconds = start.elapsed().as_secs_f64();
            println!("{n_tokens} tokens in {seconds:.1} s");
            let mut lengths = accuracy.n_generated.clone();
            lengths.sort_unstable();
            let at = |share: usize| lengths[(lengths.len() - 1) * share / 100];
            println!("length P10 {} P50 {} P90 {} P99 {} max {}", at(10), at(50), at(90), at(99), at(100));
            if wrong {
                for (kind, user, written) in accuracy.wrong {
                    println!("\n=== {}\n{user}\n---\n{written}", kind.name());
                }
            }
            Ok(())
        }
        Command::Losses { model } => losses(&model),
        Command::Corpus { show } => corpus(show),
        Command::Demo { out, per_kind } => {
            for (dataset, n_rows) in write_demo(&out, &held_out(DEMO_SEED, per_kind))? {
                println!("{dataset}: {n_rows} prompts");
            }
            Ok(())
        }
    }
}

fn train(args: &TrainArgs) -> Result<()> {
    let model = ModelConfig {
        n_layers: args.layers,
        hidden_size: args.hidden,
        intermediate_size: args.intermediate,
        ..ModelConfig::default()
    };
    let config = TrainConfig {
        seed: args.seed,
        total_steps: args.steps,
        batch_tokens: args.batch_tokens,
        peak_rate: args.rate,
        model,
    };
    let tokenizer = tokenizer::train(args.seed, 20_000).map_err(anyhow::Error::from_boxed)?;
    write_configs(&args.out, &tokenizer, &model)?;
    let mut trainer = if args.checkpoint.exists() {
        Trainer::resume(config, tokenizer, &args.checkpoint)?
    } else {
        Trainer::new(config, tokenizer)?
    };
    println!("{} parameters, from step {} to {}", trainer.model().n_parameters(), trainer.n_steps(), args.steps);
    let held_out = held_out(EVAL_SEED, 12);
    let start = Instant::now();
    let (mut n_tokens, mut loss_sum, mut n_summed) = (0, 0.0, 0);
    while !trainer.is_done() {
        let report = trainer.step().context("training step failed")?;
        n_tokens += report.n_tokens;
        loss_sum += report.loss;
        n_summed += 1;
        let step = trainer.n_steps();
        if step.is_multiple_of(25) {
            let seconds = start.elapsed().as_secs_f64();
            let (loss, norm) = (loss_sum / f64::from(n_summed), report.grad_norm);
            println!(
                "step {step} loss {loss:.4} norm {norm:.2} · {:.0} tok/s · {seconds:.0} s",
                n_tokens as f64 / seconds
            );
            (loss_sum, n_summed) = (0.0, 0);
        }
        if step.is_multiple_of(args.eval_every) || trainer.is_done() {
            trainer.save_checkpoint(&args.checkpoint)?;
            write_weights(&args.out, trainer.model())?;
            println!("step {step} held out: {}", evaluate(trainer.model(), trainer.tokenizer(), &held_out, 320)?);
        }
    }
    println!("done: weights hash {:016x}", trainer.weights_hash()?);
    Ok(())
}

fn losses(folder: &Path) -> Result<()> {
    let (model, tokenizer) = load(folder, ModelConfig::default())?;
    for sample in held_out(EVAL_SEED, 2) {
        let (ids, n_prompt) = encode(&tokenizer, &sample)?;
        let rows = (n_prompt..ids.len()).map(|i| u32::try_from(i - 1)).collect::<Result<Vec<_>, _>>()?;
        let logits = model.logits(&ids, &Segments::from_lengths([ids.len()]), &rows)?;
        let losses = cross_entropy(&logits, &ids[n_prompt..].into())?.to_vec1::<f32>()?;
        println!("--- {}\n{}", sample.kind.name(), chat::prompt(&sample));
        for (id, loss) in ids[n_prompt..].iter().zip(losses) {
            print!("{}", tokenizer.decode(&[*id], false).map_err(anyhow::Error::from_boxed)?);
            if loss > 0.1 {
                print!("[{loss:.1}]");
            }
        }
        println!();
    }
    Ok(())
}

fn corpus(show: usize) -> Result<()> {
    let tokenizer = tokenizer::train(1, 20_000).map_err(anyhow::Error::from_boxed)?;
    println!("tokenizer: {} tokens", tokenizer.get_vocab_size(true));
    let mut rng = Rng::new(1, 0);
    let mut lengths = std::collections::BTreeMap::<_, Vec<(usize, usize)>>::new();
    for i in 0..3000.max(show) {
        let sample = training_sample(&mut rng, usize::MAX);
        let (ids, n_prompt) = encode(&tokenizer, &sample)?;
        if i < show {
            let pieces: Vec<String> = ids.iter().filter_map(|id| tokenizer.id_to_token(*id)).collect();
            println!(
                "--- {}\n{}{}\n{}",
                sample.kind.name(),
                chat::prompt(&sample),
                chat::completion(&sample),
                pieces.join(" ")
            );
        }
        lengths.entry(sample.kind).or_default().push((n_prompt, ids.len() - n_prompt));
    }
    for (kind, mut pairs) in lengths {
        pairs.sort_by_key(|pair| pair.1);
        let mean = |f: fn(&(usize, usize)) -> usize| pairs.iter().map(f).sum::<usize>() / pairs.len();
        let at = |share: usize| pairs[(pairs.len() - 1) * share / 100].1;
        println!(
            "{:>10} × {:4}: prompt mean {:3} · completion mean {:3} P50 {:3} P90 {:3} max {:3}",
            kind.name(),
            pairs.len(),
            mean(|p| p.0),
            mean(|p| p.1),
            at(50),
            at(90),
            at(100)
        );
    }
    Ok(())
}
