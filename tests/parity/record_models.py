"""Records the cases of whole models beside this file: Hugging Face transformers, in f32 on one thread of a processor.

    pip install torch==2.15.0 transformers==5.23.0
    python3 tests/parity/record_models.py tests/parity

A case is a small random model in Hugging Face's layout and `case.safetensors`: the inputs of S steps of A micro-batches after one
batch; a forward and backward pass of the first batch (`logits`, `loss`, `grad.*`, `grad_norm`); and a run of the optimizer on the
others (`train.losses`, `train.grad_norms`, `after.*`). Inputs are `tokens`, i32 `(S·A + 1, B, T + 1)`, each a target of the one before
it, or `images`, f32 `(S·A + 1, B, channels, height, width)`, and `labels`, i32 `(S·A + 1, B)`. Names of weights are those in
`model.safetensors`.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import (
    GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig, ViTForImageClassification,
)  # fmt: skip

STEPS = 10
ADAMW = {"lr": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0}


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


def vit(layers, channels, heads, hidden, image, patch, classes):
    config = ViTConfig(
        num_hidden_layers=layers, hidden_size=channels, num_attention_heads=heads, intermediate_size=hidden,
        image_size=image, patch_size=patch, num_labels=classes,
    )  # fmt: skip
    return ViTForImageClassification(config)


def fill(parameters, generator, gain=1.0):
    """Draws parameters at random, gains around `gain`: with no bias of zero and no gain of one, every path carries a value."""

    def drawn(parameter, spread):
        return torch.randn(parameter.shape, generator=generator) * spread

    with torch.no_grad():
        for name, parameter in parameters:
            if name.endswith(".bias"):
                parameter.copy_(drawn(parameter, 0.05))
            elif parameter.ndim == 1:
                parameter.copy_(gain + drawn(parameter, 0.1))
            else:
                parameter.copy_(drawn(parameter, 0.08))


def names_in_file(model, folder):
    """The name of each parameter in `model.safetensors`, which keeps the names of older versions of transformers."""
    file = load_file(folder / "model.safetensors")
    names = {}
    for own, parameter in model.named_parameters():
        (names[own],) = [name for name, value in file.items() if torch.equal(value, parameter)]
    assert len(set(names.values())) == len(names)
    return names


class Tokens:
    """Batches of a language model."""

    def __init__(self, batch, seq_len, vocab):
        self.shape, self.vocab = (batch, seq_len + 1), vocab
        self.settings = {"batch": batch, "seq": seq_len, "vocab": vocab}

    def draw(self, count, generator):
        return {"tokens": torch.randint(0, self.vocab, (count, *self.shape), generator=generator)}

    def loss(self, model, tokens):
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


class Images:
    """Batches of a classifier of images."""

    def __init__(self, batch, channels, image, classes):
        self.batch, self.shape, self.classes = batch, (batch, channels, *image), classes
        self.settings = {"batch": batch, "classes": classes}

    def draw(self, count, generator):
        images = torch.randn((count, *self.shape), generator=generator)
        return {"images": images, "labels": torch.randint(0, self.classes, (count, self.batch), generator=generator)}

    def loss(self, model, images, labels):
        logits = model(pixel_values=images).logits
        return cross_entropy(logits, labels), logits


class AdamW:
    """AdamW, with weight decay on tensors of two or more dimensions."""

    def __init__(self, named, lr=ADAMW["lr"]):
        decayed = [p for _, p in named if p.ndim >= 2]
        rest = [p for _, p in named if p.ndim < 2]
        groups = [{"params": decayed, "weight_decay": ADAMW["weight_decay"]}, {"params": rest, "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(groups, lr, (ADAMW["beta1"], ADAMW["beta2"]), ADAMW["eps"])
        self.settings = ADAMW | {"lr": lr, "optimizer": "adamw", "decay": "tensors with two or more dimensions"}

    def step(self):
        self.adamw.step()


class Muon:
    """Muon on the matrices of the blocks, AdamW on the rest. GPT-2 keeps its matrices as (in, out); Muon gets views of them as
    nn.Linear has them, (out, in), so that its rate is adjusted by fan-out and fan-in. PyTorch iterates in bf16: at this rate, what a
    bit of f32 becomes there moves weights by half of the tolerance on them."""

    LR = 4e-4

    def __init__(self, named, conv1d, adjust):
        hidden = [p for name, p in named if ".h." in name or ".layers." in name if p.ndim == 2]
        self.view = torch.t if conv1d else lambda matrix: matrix
        self.matrices = [(p, torch.nn.Parameter(self.view(p.data))) for p in hidden]
        self.muon = torch.optim.Muon([view for _, view in self.matrices], self.LR, adjust_lr_fn=adjust)
        self.rest = AdamW([(name, p) for name, p in named if not any(p is matrix for matrix in hidden)], self.LR)
        (muon,) = self.muon.param_groups
        assert muon["weight_decay"] == ADAMW["weight_decay"]
        own = {"optimizer": "muon", "momentum": muon["momentum"], "adjust_lr": adjust or "original"}
        self.settings = self.rest.settings | own

    def step(self):
        for parameter, view in self.matrices:
            assert view.data_ptr() == parameter.data_ptr()
            view.grad = self.view(parameter.grad)
        self.muon.step()
        self.rest.step()


def record(folder, model, data, seed, accumulate=1, optimizer=AdamW, gain=1.0):
    generator = torch.Generator().manual_seed(seed)
    fill(model.named_parameters(), generator, gain)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    names = names_in_file(model, folder)
    model.train()
    inputs = data.draw(STEPS * accumulate + 1, generator)

    def copied(prefix, value):
        named = model.named_parameters()
        return {f"{prefix}.{names[name]}": value(p).detach().clone().contiguous() for name, p in named}

    def batch(index):
        return {name: values[index] for name, values in inputs.items()}

    loss, logits = data.loss(model, **batch(0))
    loss.backward()
    tensors = {name: values if values.is_floating_point() else values.to(torch.int32) for name, values in inputs.items()}
    tensors |= {"logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    tensors |= copied("grad", lambda p: p.grad)
    tensors["grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30).reshape(1)
    model.zero_grad()

    optimizer = optimizer(list(model.named_parameters()))
    losses, norms = [], []
    for step in range(STEPS):
        total = 0.0
        for micro_batch in range(accumulate):
            loss = data.loss(model, **batch(1 + step * accumulate + micro_batch))[0] / accumulate
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["clip"]).item())
        optimizer.step()
        model.zero_grad()
        losses.append(total)
    tensors |= {"train.losses": torch.tensor(losses), "train.grad_norms": torch.tensor(norms)}
    tensors |= copied("after", lambda p: p)
    settings = data.settings | {"steps": STEPS, "accumulate": accumulate} | optimizer.settings
    versions = {library.__name__: library.__version__ for library in (torch, transformers)}
    metadata = {key: str(value) for key, value in (settings | versions).items()}
    save_file(tensors, folder / "case.safetensors", metadata)
    print(folder.name, losses)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    record(root / "gpt2-small-case", gpt2(2, 64, 4, 257, 32), Tokens(3, 32, 257), 11)
    record(root / "gpt2-accumulate-case", gpt2(2, 48, 3, 101, 24), Tokens(2, 24, 101), 12, accumulate=3)
    record(root / "llama-gqa-case", llama(2, 64, 4, 2, 211, 40, 176), Tokens(2, 40, 211), 13)
    size, classes = (15, 20), 5
    record(root / "vit-case", vit(2, 36, 3, 100, size, 5, classes), Images(3, 3, size, classes), 14)
    muon = partial(Muon, conv1d=True, adjust=None)
    record(root / "gpt2-muon-case", gpt2(2, 48, 3, 101, 24), Tokens(2, 24, 101), 15, accumulate=2, optimizer=muon)
    muon = partial(Muon, conv1d=False, adjust="match_rms_adamw")
    record(root / "llama-muon-case", llama(2, 48, 4, 2, 101, 24, 112), Tokens(2, 24, 101), 16, optimizer=muon)


if __name__ == "__main__":
    main()
