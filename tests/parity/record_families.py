"""Records a case of each family of decoders beside this file, as `record_models.py` does: sizes are odd, heads are other than the
channels over their number, and each way to scale rotary frequencies is in one of them.

    pip install torch==2.15.0 transformers==5.24.0
    python3 tests/parity/record_families.py tests/parity
"""

import sys
from pathlib import Path

import torch
import transformers
from record_models import Tokens, record

LAYERS, SEQ_LEN, VOCAB = 3, 22, 83
SIZES = {
    "num_hidden_layers": LAYERS, "hidden_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 50, "vocab_size": VOCAB, "max_position_embeddings": SEQ_LEN, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None, "attn_implementation": "eager",
}  # fmt: skip
LOCAL = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 6}


def rope(theta, **scaling):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | scaling}


LLAMA3 = rope(5e5, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=12)  # fmt: skip
YARN = rope(1e4, rope_type="yarn", factor=2.0, original_max_position_embeddings=11)
LINEAR = rope(1e6, rope_type="linear", factor=8.0)["rope_parameters"]
GEMMA3 = {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": rope(1e4)["rope_parameters"]}}
GEMMA = {"head_dim": 14, "query_pre_attn_scalar": 9, "tie_word_embeddings": True} | LOCAL

FAMILIES = {
    "llama3": ("Llama", {"head_dim": 12, "tie_word_embeddings": True} | LLAMA3),
    "mistral": ("Mistral", {"head_dim": 10, "sliding_window": 5} | rope(1e4, rope_type="dynamic", factor=2.0)),
    "qwen2": ("Qwen2", {"hidden_size": 40, "tie_word_embeddings": True} | YARN),
    "qwen3": ("Qwen3", {"head_dim": 16, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 7} | rope(1e6)),
    "gemma2": ("Gemma2", GEMMA | {"attn_logit_softcapping": 0.7, "final_logit_softcapping": 1.5} | rope(1e4)),
    "gemma3": ("Gemma3Text", GEMMA | GEMMA3),
    "phi3": ("Phi3", {"hidden_size": 40, "sliding_window": 9} | rope(1e4)),
    "smollm3": ("SmolLM3", {"hidden_size": 40, "no_rope_layers": [1, 0, 1], "tie_word_embeddings": True} | rope(2e6)),
    "olmo2": ("Olmo2", {"hidden_size": 40} | rope(5e5)),
}


def model(name, own):
    config = getattr(transformers, f"{name}Config")(**SIZES | own)
    return getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    for seed, (family, (name, own)) in enumerate(FAMILIES.items()):
        # Gemma's gains are 1 + w.
        gain = 0.0 if "Gemma" in name else 1.0
        record(root / f"{family}-case", model(name, own), Tokens(2, SEQ_LEN, VOCAB), 40 + seed, gain=gain)


if __name__ == "__main__":
    main()
