"""Records cases of decoders that classify texts beside this file: transformers' `...ForSequenceClassification` as `record_models.py` does, and
LoRA of one with PEFT's task type SEQ_CLS as `record_adapters.py` does.

    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    python3 tests/parity/record_classifiers.py tests/parity

Inputs are `tokens`, i32 `(S·A + 1, B, T)`, with padding behind each text; `last`, i32 `(S·A + 1, B)`, the position that transformers
takes scores at; and `labels`, i32 `(S·A + 1, B)`.
"""

import sys
from pathlib import Path

import record_adapters
import torch
import transformers
from record_encoders import SEQ_LEN, VOCAB, Texts
from record_models import record
from torch.nn.functional import cross_entropy

CLASSES, PADDING = 5, 7
SIZES = {
    "num_hidden_layers": 3, "hidden_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
    "intermediate_size": 50, "vocab_size": VOCAB, "max_position_embeddings": SEQ_LEN, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": PADDING, "num_labels": CLASSES, "attn_implementation": "eager",
}  # fmt: skip
LOCAL = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 6}
LABELS = ["no", "yes", "perhaps", "often", "never"]


def gpt2():
    sizes = {"n_layer": 2, "n_embd": 36, "n_head": 3, "vocab_size": VOCAB, "n_positions": SEQ_LEN, "num_labels": CLASSES}
    others = {"attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0, "pad_token_id": PADDING}
    return transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**sizes, **others, bos_token_id=0, eos_token_id=0))


def decoder(name, **own):
    config = getattr(transformers, f"{name}Config")(**SIZES | own)
    return getattr(transformers, f"{name}ForSequenceClassification")(config)


class Classified(Texts):
    """Batches of padded texts, and the class of each."""

    def draw(self, count, generator):
        shape = (count, self.batch)
        lengths = torch.randint(1, SEQ_LEN + 1, shape, generator=generator)
        # Ids but that of padding, whose embedding transformers gives no gradient.
        tokens = torch.randint(PADDING + 1, VOCAB, (*shape, SEQ_LEN), generator=generator)
        tokens = torch.where(torch.arange(SEQ_LEN) < lengths[..., None], tokens, PADDING)
        positions = torch.arange(SEQ_LEN, dtype=torch.int32)
        last = (positions * (tokens != PADDING).int()).argmax(-1)
        return {"tokens": tokens, "last": last, "labels": torch.randint(0, CLASSES, shape, generator=generator)}

    def loss(self, model, tokens, last, labels):
        given = {"input_ids": tokens, "attention_mask": (tokens != PADDING).long(), "use_cache": False}
        found = model(**given, labels=labels)
        torch.testing.assert_close(found.loss, cross_entropy(found.logits, labels))
        with torch.no_grad():
            # Scores are those of each text without its padding.
            for row, end in zip(range(len(last)), last.tolist(), strict=True):
                alone = model(input_ids=tokens[row : row + 1, : end + 1], use_cache=False).logits
                torch.testing.assert_close(alone, found.logits[row : row + 1], rtol=0, atol=1e-5)
        return found.loss, found.logits


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    qwen3 = decoder("Qwen3", id2label=dict(enumerate(LABELS)), label2id={name: at for at, name in enumerate(LABELS)})
    record(root / "llama-classes-case", decoder("Llama"), Classified(3), 70, accumulate=2)
    record(root / "qwen3-classes-case", qwen3, Classified(3), 71)
    record(root / "gemma3-classes-case", decoder("Gemma3Text", query_pre_attn_scalar=9, **LOCAL), Classified(3), 72, gain=0.0)
    record(root / "gpt2-classes-case", gpt2(), Classified(3), 73)
    adapted = {"data": Classified(3), "task": "SEQ_CLS"}
    lora = decoder("Llama", head_dim=12)
    record_adapters.record(root / "llama-classes-lora-case", lora, "all-linear", 6, 74, **adapted)


if __name__ == "__main__":
    main()
