"""Records the cases of distillation in `distil`, in f32 on one thread of a processor.

    pip install torch==2.15.0 transformers==5.24.0
    python3 tests/parity/record_distil.py tests/parity/distil

The loss is (1 - A) * cross-entropy + A * T^2 * KL(teacher || student) over logits that are divided by T (Hinton et al. 2015), means over
the targets that count, of transformers' logits. A case is a small random model in Hugging Face's layout, its `teacher` in another, and
`case.safetensors`: `tokens` and `targets` (N, B, T), of which -1 is no target. Of the first batch there are `loss`, `cross_entropy`,
`divergence` and `grad.*`; the others are micro-batches of a run of AdamW, which weigh by their share of targets (`train.losses`,
`train.grad_norms`, `after.*`). A teacher may have rows of its head that the student lacks: padding, which isn't compared.
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, kl_div, log_softmax
from transformers import (
    Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
)  # fmt: skip

BATCH, TIME, VOCAB, STEPS, ACCUMULATE = 3, 13, 101, 5, 2
RUN = {"lr": 3e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0}
PLAIN = {"bos_token_id": None, "eos_token_id": None}


def gpt2(vocab, channels=36):
    config = GPT2Config(
        n_layer=2, n_embd=channels, n_head=3, n_positions=TIME, vocab_size=vocab, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, **PLAIN,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def llama(vocab):
    config = LlamaConfig(
        num_hidden_layers=3, hidden_size=40, num_attention_heads=5, num_key_value_heads=1, intermediate_size=52,
        max_position_embeddings=TIME + 5, vocab_size=vocab, **PLAIN,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def gemma2(vocab):
    config = Gemma2Config(
        num_hidden_layers=2, hidden_size=36, num_attention_heads=2, num_key_value_heads=1, head_dim=18, intermediate_size=44,
        max_position_embeddings=TIME, vocab_size=vocab, sliding_window=5, query_pre_attn_scalar=18, final_logit_softcapping=3.0,
        attn_implementation="eager", pad_token_id=None, **PLAIN,
    )  # fmt: skip
    return Gemma2ForCausalLM(config)


def move(model, generator, spread):
    """Moves parameters at random: with no gain of one, every path carries a value."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator))


def loss_of(model, teacher, tokens, targets, temperature, share):
    counts = targets >= 0
    logits = model(input_ids=tokens, use_cache=False).logits[counts]
    with torch.no_grad():
        taught = teacher(input_ids=tokens, use_cache=False).logits[counts]
    both = min(logits.shape[-1], taught.shape[-1])
    hard = cross_entropy(logits, targets[counts])
    p = log_softmax(logits[:, :both] / temperature, -1)
    q = log_softmax(taught[:, :both] / temperature, -1)
    soft = kl_div(p, q, reduction="batchmean", log_target=True)
    return (1 - share) * hard + share * temperature**2 * soft, hard, soft


def record(folder, model, teacher, seed, temperature, share):
    generator = torch.Generator().manual_seed(seed)
    move(model, generator, 0.1)
    move(teacher, generator, 0.2)
    teacher.eval()
    count = STEPS * ACCUMULATE + 1
    tokens = torch.randint(0, VOCAB, (count, BATCH, TIME), generator=generator)
    targets = torch.randint(0, VOCAB, (count, BATCH, TIME), generator=generator)
    targets[torch.rand(targets.shape, generator=generator) < 0.3] = -1
    for each, where in ((model, folder), (teacher, folder / "teacher")):
        each.save_pretrained(where)
        (where / "generation_config.json").unlink(missing_ok=True)
    run = lambda index: loss_of(model, teacher, tokens[index], targets[index], temperature, share)
    loss, hard, soft = run(0)
    loss.backward()
    tensors = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32)}
    figures = {"loss": loss, "cross_entropy": hard, "divergence": soft}
    tensors |= {name: value.detach().reshape(1) for name, value in figures.items()}
    tensors |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    betas = (RUN["beta1"], RUN["beta2"])
    trained = list(model.parameters())
    groups = [{"params": [p for p in trained if p.ndim > 1]}, {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, RUN["lr"], betas, RUN["eps"], RUN["weight_decay"])
    losses, norms = [], []
    for step in range(STEPS):
        indices = range(1 + step * ACCUMULATE, 1 + (step + 1) * ACCUMULATE)
        counted = [int((targets[index] >= 0).sum()) for index in indices]
        sum_of_losses = 0.0
        for index, own in zip(indices, counted):
            loss, _, _ = run(index)
            weight = own / sum(counted)
            (loss * weight).backward()
            sum_of_losses += loss.item() * weight
        norms.append(torch.nn.utils.clip_grad_norm_(trained, RUN["clip"]).item())
        adamw.step()
        adamw.zero_grad()
        losses.append(sum_of_losses)
    tensors |= {"train.losses": torch.tensor(losses), "train.grad_norms": torch.tensor(norms)}
    tensors |= {f"after.{name}": value.detach().clone() for name, value in model.named_parameters()}
    settings = {"batch": BATCH, "seq": TIME, "steps": STEPS, "accumulate": ACCUMULATE, "temperature": temperature, "soft_share": share} | RUN
    versions = {library.__name__: library.__version__ for library in (torch, transformers)}
    metadata = {key: str(value) for key, value in (settings | versions).items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "case.safetensors", metadata)
    print(folder.name, losses, norms)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    root = Path(sys.argv[1])
    record(root / "gpt2-of-llama", gpt2(VOCAB), llama(VOCAB + 7), 41, 2.0, 0.5)
    record(root / "llama-of-gpt2", llama(VOCAB), gpt2(VOCAB), 42, 3.0, 0.8)
    record(root / "gemma2-of-gemma2", gemma2(VOCAB), gemma2(VOCAB), 43, 0.7, 0.25)


if __name__ == "__main__":
    main()
