use std::sync::OnceLock;

use eyas_nn::{Segments, cross_entropy};
use eyas_tiny::decode::generate;
use eyas_tiny::model::{Model, ModelConfig};
use eyas_tiny::tokenizer;
use eyas_tiny::train::{TrainConfig, Trainer, batch};
use tokenizers::Tokenizer;

fn small() -> TrainConfig {
    let model = ModelConfig { hidden_size: 32, n_layers: 2, intermediate_size: 48, ..ModelConfig::default() };
    TrainConfig { seed: 5, total_steps: 40, batch_tokens: 256, peak_rate: 3e-3, model }
}

fn small_tokenizer() -> Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| tokenizer::train(5, 400).unwrap()).clone()
}

fn hash_after(trainer: &mut Trainer, n_steps: usize) -> u64 {
    for _ in 0..n_steps {
        trainer.step().unwrap();
    }
    trainer.weights_hash().unwrap()
}

#[test]
fn one_seed_gives_one_set_of_weights() {
    let fresh = || Trainer::new(small(), small_tokenizer()).unwrap();
    assert_eq!(hash_after(&mut fresh(), 20), hash_after(&mut fresh(), 20));
    let mut other = Trainer::new(TrainConfig { seed: 6, ..small() }, small_tokenizer()).unwrap();
    assert_ne!(hash_after(&mut fresh(), 20), hash_after(&mut other, 20));
}

#[test]
fn a_resumed_run_ends_as_one_that_was_never_stopped() {
    let folder = std::env::temp_dir().join(format!("eyas-tiny-resume-{}", std::process::id()));
    let path = folder.join("checkpoint.safetensors");
    let mut trainer = Trainer::new(small(), small_tokenizer()).unwrap();
    hash_after(&mut trainer, 6);
    trainer.save_checkpoint(&path).unwrap();
    let whole = hash_after(&mut trainer, 6);
    let mut resumed = Trainer::resume(small(), small_tokenizer(), &path).unwrap();
    assert_eq!(resumed.n_steps(), 6);
    assert_eq!(hash_after(&mut resumed, 6), whole);
    let changed = TrainConfig { peak_rate: 1e-3, ..small() };
    let err = Trainer::resume(changed, small_tokenizer(), &path).err().unwrap();
    assert!(err.to_string().contains("was made with"), "{err}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn every_variable_gets_a_gradient() {
    let model = Model::init(small().model, 1).unwrap();
    let batch = batch(&small_tokenizer(), &small(), 0).unwrap();
    let logits = model.logits(&batch.ids, &batch.segments, &batch.rows).unwrap();
    let grads = cross_entropy(&logits, &batch.targets).unwrap().mean_all().unwrap().backward().unwrap();
    for (name, var) in &model.variables {
        let grad = grads.get(var).unwrap_or_else(|| panic!("{name} has no gradient"));
        let size = grad.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(size > 0.0, "the gradient of {name} is zero");
    }
}

#[test]
fn decoding_with_a_cache_agrees_with_the_whole_forward_pass() {
    let model = Model::init(small().model, 2).unwrap();
    let prompts = vec![vec![5, 9, 300], vec![7; 11], vec![1]];
    let decoded = generate(&model, &prompts, u32::MAX, 8).unwrap();
    for (prompt, new) in prompts.iter().zip(decoded) {
        assert_eq!(new.len(), 8);
        let mut ids = prompt.clone();
        for id in new {
            let last = u32::try_from(ids.len() - 1).unwrap();
            let logits = model.logits(&ids, &Segments::from_lengths([ids.len()]), &[last]).unwrap();
            let best = logits.argmax(1).unwrap().to_vec1::<u32>().unwrap()[0];
            assert_eq!(id, best);
            ids.push(id);
        }
    }
}

#[test]
fn the_tokenizer_keeps_capitals_digits_and_marks_apart() {
    let tokenizer = small_tokenizer();
    let pieces = |text: &str| -> Vec<String> { tokenizer.encode(text, false).unwrap().get_tokens().to_vec() };
    assert_eq!(pieces("PLANE>12"), ["P", "L", "A", "N", "E", ">", "1", "2"]);
    assert_eq!(pieces("<think></think><tool_call></tool_call><|im_end|>").len(), 5);
    let text = "<|im_start|>user\nGrüße, 日本 – {\"a\": 1}<|im_end|>\n";
    let ids = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "user\nGrüße, 日本 – {\"a\": 1}\n");
}
