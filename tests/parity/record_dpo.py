"""Records the cases of direct preference optimization in `dpo`, in f32 on one thread of a processor.

    pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
    python3 tests/parity/record_dpo.py tests/parity/dpo

The loss is TRL's (`loss_type="sigmoid"`), from the log-probabilities of transformers' logits, summed over each answer's tokens.
A case is a small random model in Hugging Face's layout and `case.safetensors`: `tokens` and `targets` (N, pairs, 2, T), of which -1 is
no target, and `reference` (N, pairs, 2), log-probabilities under the model before its weights were moved at random; where PEFT's `adapters` are trained, under the model without them. Of the first batch
there are `loss`, `chosen_reward`, `rejected_reward`, `margin`, `accuracy` and `grad.*`; the others are micro-batches of a run of
AdamW (`train.losses`, `train.grad_norms`, `after.*`). The last pair of the first batch is padding, which counts nowhere.
"""

import sys
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from torch.nn.functional import logsigmoid
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

PAIRS, TIME, VOCAB, STEPS, ACCUMULATE, BETA = 3, 13, 101, 5, 2, 0.3
RUN = {"lr": 3e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0}


def llama():
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=36, num_attention_heads=6, num_key_value_heads=2, intermediate_size=52,
        max_position_embeddings=TIME, vocab_size=VOCAB, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def gemma2():
    config = Gemma2Config(
        num_hidden_layers=2, hidden_size=36, num_attention_heads=2, num_key_value_heads=1, head_dim=18, intermediate_size=44,
        max_position_embeddings=TIME, vocab_size=VOCAB, sliding_window=5, query_pre_attn_scalar=18, final_logit_softcapping=3.0,
        attn_implementation="eager", bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return Gemma2ForCausalLM(config)


def move(parameters, generator, spread):
    """Moves parameters at random: with no gain of one, every path carries a value."""
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(spread * torch.randn(parameter.shape, generator=generator))


def log_probabilities(model, tokens, targets):
    """Sums over the targets of each sequence, (pairs, 2)."""
    logits = model(input_ids=tokens.flatten(0, 1), use_cache=False).logits
    each = logits.log_softmax(-1).gather(2, targets.flatten(0, 1).clamp(min=0)[..., None])[..., 0]
    return (each * (targets.flatten(0, 1) >= 0)).sum(1).view(tokens.shape[:2])


def loss_of(model, tokens, targets, reference):
    """TRL's sigmoid loss, and what it logs of rewards."""
    counts = (targets >= 0).any(-1).any(-1)
    rewards = BETA * (log_probabilities(model, tokens, targets) - reference)
    chosen, rejected = rewards[counts].unbind(1)
    figures = {
        "chosen_reward": chosen.mean(),
        "rejected_reward": rejected.mean(),
        "margin": (chosen - rejected).mean(),
        "accuracy": (chosen > rejected).float().mean(),
    }
    return -logsigmoid(chosen - rejected).mean(), figures


def batches(generator):
    """Pairs with a common prompt, and answers of other lengths."""
    count = STEPS * ACCUMULATE + 1
    tokens = torch.zeros(count, PAIRS, 2, TIME, dtype=torch.int64)
    targets = torch.full_like(tokens, -1)
    draw = lambda low, high: int(torch.randint(low, high, (), generator=generator))
    for batch in range(count):
        for pair in range(PAIRS):
            if (batch, pair) == (0, PAIRS - 1):
                continue
            prompt = torch.randint(0, VOCAB, (draw(1, 6),), generator=generator)
            for side in range(2):
                answer = torch.randint(0, VOCAB, (draw(1, TIME + 2 - len(prompt)),), generator=generator)
                row = torch.cat([prompt, answer])
                tokens[batch, pair, side, : len(row) - 1] = row[:-1]
                targets[batch, pair, side, len(prompt) - 1 : len(row) - 1] = answer
    return tokens, targets


def in_files(model, value):
    """`value` of each trained parameter, by its name in the files."""
    values = {name: value(p) for name, p in model.named_parameters() if p.requires_grad}
    named = get_peft_model_state_dict(model, state_dict=values) if isinstance(model, peft.PeftModel) else values
    assert len(named) == len(values)
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def record(folder, model, seed, lora=None):
    generator = torch.Generator().manual_seed(seed)
    move(model.parameters(), generator, 0.1)
    tokens, targets = batches(generator)
    with torch.no_grad():
        reference = torch.stack([log_probabilities(model, *batch) for batch in zip(tokens, targets)])
    if lora is None:
        move(model.parameters(), generator, 0.02)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if lora is not None:
        model = get_peft_model(model, lora)
        # Beside a B of zeros, which is what PEFT begins with, A has no gradient.
        move([p for p in model.parameters() if p.requires_grad], generator, 0.1)
        model.save_pretrained(folder / "adapters")
        (folder / "adapters/README.md").unlink(missing_ok=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    loss, figures = loss_of(model, tokens[0], targets[0], reference[0])
    loss.backward()
    tensors = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32), "reference": reference}
    tensors |= {name: value.detach().reshape(1) for name, value in ({"loss": loss} | figures).items()}
    tensors |= {f"grad.{name}": value for name, value in in_files(model, lambda p: p.grad).items()}
    model.zero_grad()

    betas = (RUN["beta1"], RUN["beta2"])
    groups = [{"params": [p for p in trained if p.ndim > 1]}, {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, RUN["lr"], betas, RUN["eps"], RUN["weight_decay"])
    losses, norms = [], []
    for step in range(STEPS):
        sum_of_losses = 0.0
        for index in range(1 + step * ACCUMULATE, 1 + (step + 1) * ACCUMULATE):
            loss, _ = loss_of(model, tokens[index], targets[index], reference[index])
            (loss / ACCUMULATE).backward()
            sum_of_losses += loss.item() / ACCUMULATE
        norms.append(torch.nn.utils.clip_grad_norm_(trained, RUN["clip"]).item())
        adamw.step()
        adamw.zero_grad()
        losses.append(sum_of_losses)
    tensors |= {"train.losses": torch.tensor(losses), "train.grad_norms": torch.tensor(norms)}
    tensors |= {f"after.{name}": value for name, value in in_files(model, lambda p: p).items()}
    settings = {"pairs": PAIRS, "seq": TIME, "steps": STEPS, "accumulate": ACCUMULATE, "beta": BETA} | RUN
    versions = {library.__name__: library.__version__ for library in (torch, transformers, peft)}
    metadata = {key: str(value) for key, value in (settings | versions).items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "case.safetensors", metadata)
    print(folder.name, losses, norms)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    root = Path(sys.argv[1])
    record(root / "llama", llama(), 31)
    record(root / "gemma2", gemma2(), 32)
    lora = LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    record(root / "llama-lora", llama(), 33, lora)


if __name__ == "__main__":
    main()
