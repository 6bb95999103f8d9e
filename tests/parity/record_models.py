"""Records the cases of whole models beside this file: Hugging Face transformers, in f32 on one thread of a processor.

    pip install torch==2.11.0 transformers==5.23.0
    python3 tests/parity/record_models.py tests/parity

A case is a small random model in Hugging Face's layout and `case.safetensors`: tokens of S steps of A micro-batches after one
batch, `(S·A + 1, B, T + 1)`; a forward and backward pass of the first batch (`logits`, `loss`, `grad.*`, `grad_norm`); and a run of
AdamW on the others (`train.losses`, `train.grad_norms`, `after.*`).
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

STEPS = 10
RUN = {"lr": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0}


def gpt2(layers, channels, heads, vocab, seq_len):
    sizes = {"n_layer": layers, "n_embd": channels, "n_head": heads, "vocab_size": vocab, "n_positions": seq_len}
    no_dropout = {"attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0))


def llama(layers, channels, heads, kv_heads, vocab, seq_len, hidden):
    config = LlamaConfig(
        num_hidden_layers=layers, hidden_size=channels, num_attention_heads=heads, num_key_value_heads=kv_heads,
        vocab_size=vocab, max_position_embeddings=seq_len, intermediate_size=hidden, tie_word_embeddings=False,
        rope_theta=10000.0, attention_dropout=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def fill(parameters, generator):
    """Draws parameters at random: with no bias of zero and no gain of one, every path carries a value."""

    def drawn(parameter, spread):
        return torch.randn(parameter.shape, generator=generator) * spread

    with torch.no_grad():
        for name, parameter in parameters:
            if name.endswith(".bias"):
                parameter.copy_(drawn(parameter, 0.05))
            elif parameter.ndim == 1:
                parameter.copy_(1 + drawn(parameter, 0.1))
            else:
                parameter.copy_(drawn(parameter, 0.08))


def copied(model, value):
    """`value` of each parameter, by its name."""
    return {name: value(parameter).detach().clone().contiguous() for name, parameter in model.named_parameters()}


def loss_of(model, ids):
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()), logits


def record(folder, model, batch, seq_len, vocab, seed, accumulate=1):
    generator = torch.Generator().manual_seed(seed)
    fill(model.named_parameters(), generator)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model.train()
    ids = torch.randint(0, vocab, (STEPS * accumulate + 1, batch, seq_len + 1), generator=generator)

    loss, logits = loss_of(model, ids[0])
    loss.backward()
    tensors = {"tokens": ids.to(torch.int32), "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    tensors |= {f"grad.{name}": value for name, value in copied(model, lambda p: p.grad).items()}
    tensors["grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30).reshape(1)
    model.zero_grad()

    decayed = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": RUN["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, RUN["lr"], (RUN["beta1"], RUN["beta2"]), RUN["eps"])
    losses, norms = [], []
    for step in ids[1:].split(accumulate):
        total = 0.0
        for micro_batch in step:
            loss = loss_of(model, micro_batch)[0] / accumulate
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), RUN["clip"]).item())
        adamw.step()
        adamw.zero_grad()
        losses.append(total)
    tensors |= {"train.losses": torch.tensor(losses), "train.grad_norms": torch.tensor(norms)}
    tensors |= {f"after.{name}": value for name, value in copied(model, lambda p: p).items()}
    settings = {"batch": batch, "seq": seq_len, "vocab": vocab, "steps": STEPS, "accumulate": accumulate}
    settings |= RUN | {"decay": "tensors with two or more dimensions"}
    versions = {library.__name__: library.__version__ for library in (torch, transformers)}
    metadata = {key: str(value) for key, value in (settings | versions).items()}
    save_file(tensors, folder / "case.safetensors", metadata)
    print(folder.name, losses)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    record(root / "gpt2-small-case", gpt2(2, 64, 4, 257, 32), 3, 32, 257, 11)
    record(root / "gpt2-accumulate-case", gpt2(2, 48, 3, 101, 24), 2, 24, 101, 12, accumulate=3)
    record(root / "llama-gqa-case", llama(2, 64, 4, 2, 211, 40, 176), 2, 40, 211, 13)


if __name__ == "__main__":
    main()
