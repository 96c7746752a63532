"""Makes greedy.json: greedy continuations, last-prompt-position logits and hidden states in f32, from transformers.

Run by hand: `python greedy.py MODELS_DIR SMOLLM2_GGUF > greedy.json` (torch 2.13.0, transformers 5.19.0, gguf 0.19.0).
MODELS_DIR holds tiny-llama-rand, tiny-qwen3-rand and smollm2-135m-hf.
"""

import json
import os
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

N_NEW = 32
TINY_PROMPTS = [[1, 4093, 198, 1780], [5], [17, 300, 2, 9000, 41000, 77, 77, 77], list(range(100, 170)), [49151, 0, 1]]
SMOL_QUESTIONS = [
    # ids of the ChatML prompt without a system turn: "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    "What is the capital of France?",
    "Write a haiku about rivers.",
    "List three uses of salt.",
    "Say hello in Spanish and in German.",
    "Explain why the sky is blue.",
]


def references(model, prompts):
    out = []
    for ids in prompts:
        with torch.no_grad():
            first = model(torch.tensor([ids]), output_hidden_states=True)
            generated = list(ids)
            for _ in range(N_NEW):
                logits = model(torch.tensor([generated])).logits[0, -1]
                generated.append(int(torch.argmax(logits)))
        top = torch.topk(first.logits[0, -1].float(), 5)
        n_layers = model.config.num_hidden_layers
        out.append(
            {
                "prompt_ids": ids,
                "output_ids": generated[len(ids) :],
                "top_ids": top.indices.tolist(),
                "top_logits": top.values.tolist(),
                # hidden_states[i] is the input of layer i; last position, first four axes
                "taps": {str(i): first.hidden_states[i][0, -1, :4].float().tolist() for i in (0, 2, n_layers // 2, n_layers - 1)},
            }
        )
    return out


def main(models, gguf):
    result = {"torch": torch.__version__, "transformers": transformers.__version__, "dtype": "float32", "models": {}}
    for name in ("tiny-llama-rand", "tiny-qwen3-rand"):
        model = AutoModelForCausalLM.from_pretrained(os.path.join(models, name), dtype=torch.float32).eval()
        result["models"][name] = references(model, TINY_PROMPTS)
    folder = os.path.join(models, "smollm2-135m-hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = [
        tokenizer(f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
        for q in SMOL_QUESTIONS
    ]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    result["models"]["smollm2-135m-hf"] = references(model, prompts)
    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(gguf), gguf_file=os.path.basename(gguf), dtype=torch.float32).eval()
    result["models"]["smollm2-gguf"] = references(model, prompts)
    json.dump(result, sys.stdout, separators=(",", ":"))


main(sys.argv[1], sys.argv[2])
