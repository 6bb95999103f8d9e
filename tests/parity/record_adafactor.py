"""Records the case of Adafactor in `optimizers/adafactor`, in f32 on one thread of a processor.

    pip install torch==2.15.0 transformers==5.24.0
    python3 tests/parity/record_adafactor.py tests/parity/optimizers/adafactor

A small random Llama with an untied head, whose vocabulary is padded here, and twenty steps of transformers' `Adafactor` with
`relative_step=False` and `scale_parameter=False`: `tokens` (steps, B, T + 1), `losses` and `after.*`.
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import Adafactor, LlamaConfig, LlamaForCausalLM

BATCH, TIME, VOCAB, STEPS, LR, DECAY = 3, 14, 101, 20, 1e-3, 0.1


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    folder = Path(sys.argv[1])
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=36, num_attention_heads=6, num_key_value_heads=2, intermediate_size=52,
        max_position_embeddings=TIME, vocab_size=VOCAB, bos_token_id=None, eos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(51)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, VOCAB, (STEPS, BATCH, TIME + 1), generator=generator)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    adafactor = Adafactor(groups, lr=LR, relative_step=False, scale_parameter=False, warmup_init=False)
    losses = []
    for batch in tokens:
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        adafactor.step()
        adafactor.zero_grad()
        losses.append(loss.item())
    tensors = {"tokens": tokens.to(torch.int32), "losses": torch.tensor(losses)}
    tensors |= {f"after.{name}": p.detach().clone() for name, p in model.named_parameters()}
    settings = {"batch": BATCH, "seq": TIME, "steps": STEPS, "lr": LR, "weight_decay": DECAY}
    versions = {library.__name__: library.__version__ for library in (torch, transformers)}
    metadata = {key: str(value) for key, value in (settings | versions).items()}
    save_file(tensors, folder / "case.safetensors", metadata)
    print(losses)


if __name__ == "__main__":
    main()
