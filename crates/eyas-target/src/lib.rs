//! The target model in candle: Llama and Qwen families from safetensors or GGUF, KV cache, batched decoding, sampling.
