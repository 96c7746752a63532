use super::*;

const LLAMA: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512
"#;

fn read(more: &str) -> Result<ModelConfig, ConfigError> {
    ModelConfig::from_json(&format!("{LLAMA}, {more}}}"), None)
}

fn check_refused(more: &str, expect: &str) {
    assert_eq!(read(more).unwrap_err().to_string(), expect);
}

#[test]
fn what_is_not_said_follows_from_the_rest() {
    let config = read(r#""rms_norm_eps": 1e-5"#).unwrap();
    assert_eq!((config.n_kv_heads, config.head_dim, config.context_len), (4, 16, 512));
    assert_eq!((config.rope_theta, config.rope_scaling), (10_000.0, RopeScaling::None));
    assert_eq!((config.qkv_bias, config.qk_norm, config.tie_word_embeddings), (false, false, false));
    assert!(config.eos_token_ids.is_empty());
    assert_eq!(config.qkv_size(), 12 * 16);
}

#[test]
fn families_differ_in_biases_norms_and_head_width() {
    let of = |class: &str, more: &str| {
        let config = LLAMA.replace("LlamaForCausalLM", class);
        ModelConfig::from_json(&format!("{config}, {more}}}"), None).unwrap()
    };
    let qwen2 = of("Qwen2ForCausalLM", r#""sliding_window": 64, "use_sliding_window": false"#);
    assert_eq!((qwen2.qkv_bias, qwen2.output_bias, qwen2.context_len), (true, false, 512));
    let qwen3 = of("Qwen3ForCausalLM", r#""num_key_value_heads": 2"#);
    assert_eq!((qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim), (false, true, 128));
    let mistral = of("MistralForCausalLM", r#""sliding_window": 64"#);
    assert_eq!(mistral.context_len, 64);
    let by_type = LLAMA.replace(r#""architectures": ["LlamaForCausalLM"]"#, r#""model_type": "qwen3""#);
    let by_type = ModelConfig::from_json(&format!("{by_type}}}"), None).unwrap();
    assert_eq!(by_type.architecture, Architecture::Qwen3);
}

#[test]
fn end_tokens_of_both_files_join() {
    let with = |eos: &str, generation: Option<&str>| {
        ModelConfig::from_json(&format!("{LLAMA}, \"eos_token_id\": {eos}}}"), generation).unwrap().eos_token_ids
    };
    assert_eq!(with("5", None), [5]);
    assert_eq!(with("[7, 5]", None), [5, 7]);
    assert_eq!(with("null", Some(r#"{"eos_token_id": [9, 3]}"#)), [3, 9]);
    assert_eq!(with("[3, 1]", Some(r#"{"eos_token_id": 3}"#)), [1, 3]);
}

#[test]
fn rope_is_read_as_old_and_new_transformers_write_it() {
    let old = read(r#""rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}"#).unwrap();
    assert_eq!((old.rope_theta, old.rope_scaling), (5e5, RopeScaling::Linear { factor: 2.0 }));
    let llama3 = r#""rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
        "original_max_position_embeddings": 128"#;
    let new = read(&format!(r#""rope_parameters": {{"rope_theta": 5e5, {llama3}}}"#)).unwrap();
    assert!(matches!(new.rope_scaling, RopeScaling::Llama3 { .. }));
    let freqs = new.inv_freq();
    assert_eq!(freqs.len(), 8);
    assert_eq!(freqs[0].to_bits(), 1f32.to_bits());
    // The longest wavelength is far over 128: divided by 8.
    let longest = 5e5f64.powf(-14.0 / 16.0) / 8.0;
    assert!((f64::from(freqs[7]) / longest - 1.0).abs() < 1e-6);
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    check_refused(r#""hidden_act": "gelu""#, "`hidden_act` is `gelu`; known are silu");
    check_refused(
        r#""rope_scaling": {"rope_type": "yarn", "factor": 4}"#,
        "`rope_scaling.rope_type` is `yarn`; known are default, linear, llama3",
    );
    check_refused(r#""rope_scaling": {"rope_type": "linear"}"#, "`rope_scaling.factor` is missing");
    check_refused(r#""partial_rotary_factor": 0.5"#, "`partial_rotary_factor` is `0.5`; known are 1.0");
    check_refused(r#""num_key_value_heads": 3"#, "4 attention heads cannot share 3 key/value heads");
    check_refused(r#""head_dim": 15"#, "`head_dim` is 15, rotary embedding needs an even one");
    let error = ModelConfig::from_json(r#"{"architectures": ["SmolLM3ForCausalLM"]}"#, None).unwrap_err();
    assert!(
        error.to_string().starts_with("architecture `SmolLM3ForCausalLM` is not known; known are LlamaForCausalLM")
    );
    let error = ModelConfig::from_json(r#"{"model_type": "kimi_k25"}"#, None).unwrap_err();
    assert!(error.to_string().starts_with("architecture `kimi_k25` is not known"));
    let error = ModelConfig::from_json(r#"{"model_type": "llama"}"#, None).unwrap_err();
    assert!(error.to_string().contains("missing field `vocab_size`"), "{error}");
}
