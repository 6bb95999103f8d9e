"""Records the cases of adapters beside this file: LoRA as PEFT has it, in f32 on one thread of a processor.

    pip install torch==2.11.0 transformers==5.23.0 peft==0.21.2 bitsandbytes==0.50.2
    python3 tests/parity/record_adapters.py tests/parity

    python3 tests/parity/record_adapters.py tests/parity llama-qlora-run   that one alone

A case is a small random model in Hugging Face's layout, `adapters/` as `save_pretrained` of PEFT writes it, and
`case.safetensors`: tokens, one forward and backward pass (`logits`, `loss`, `grad.*`), and a run of AdamW
(`train.losses`, `train.grad_norms`, `after.*`), under the names that the adapters have in their file.
"""

import sys
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

BATCH, TIME, STEPS = 2, 16, 5
# Those of bytes, so that a text trains the model without a tokenizer.
VOCAB = 256
RUN = {"lr": 1e-2, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0}


def gpt2():
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": TIME, "vocab_size": VOCAB}
    no_dropout = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=None, eos_token_id=None))


def llama(hidden=32, intermediate=72, **more):
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=hidden, num_attention_heads=4, num_key_value_heads=2, intermediate_size=intermediate,
        max_position_embeddings=TIME, vocab_size=VOCAB, bos_token_id=None, eos_token_id=None, **more,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def fill(parameters, generator, spread):
    """Draws parameters at random: with no bias of zero and no gain of one, every path carries a value."""
    with torch.no_grad():
        for name, parameter in parameters:
            gain = parameter.ndim == 1 and not name.endswith(".bias")
            parameter.copy_(gain + spread * torch.randn(parameter.shape, generator=generator))


def of_adapters(model, value):
    """`value` of each adapter, by the name in PEFT's file."""
    values = {name: value(parameter) for name, parameter in model.named_parameters() if parameter.requires_grad}
    named = get_peft_model_state_dict(model, state_dict=values)
    assert len(named) == len(values)
    return {name: tensor.detach().clone() for name, tensor in named.items()}


class Tokens:
    """Batches of a language model."""

    settings = {"batch": BATCH, "seq": TIME}

    def draw(self, count, generator):
        return {"tokens": torch.randint(0, VOCAB, (count, BATCH, TIME + 1), generator=generator)}

    def loss(self, model, tokens):
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()), logits


def quantize(module):
    """Puts bitsandbytes' NF4 layers, with double quantization and sums in f32, in place of the linear layers of `module`."""
    import bitsandbytes

    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear):
            layer = bitsandbytes.nn.Linear4bit(
                child.in_features, child.out_features, bias=False, compute_dtype=torch.float32,
                compress_statistics=True, quant_type="nf4",
            )  # fmt: skip
            layer.load_state_dict({"weight": child.weight.data})
            # What quantizes is the move to a device.
            setattr(module, name, layer.to("cpu"))
            assert layer.weight.dtype == torch.uint8, "it isn't quantized"
        else:
            quantize(child)


def record(
    folder, model, targets, alpha, seed, steps=STEPS, bits=32, lr=RUN["lr"], data=Tokens(), task="CAUSAL_LM", **more
):
    generator = torch.Generator().manual_seed(seed)
    fill(model.named_parameters(), generator, 0.1)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if bits == 4:
        quantize(model.model.layers)
    lora = LoraConfig(r=4, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0, task_type=task, **more)
    model = get_peft_model(model, lora)
    adapters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    # Beside a B of zeros, which is what PEFT begins with, A has no gradient.
    fill(adapters, generator, 0.1)
    model.save_pretrained(folder / "adapters")
    (folder / "adapters/README.md").unlink(missing_ok=True)

    inputs = data.draw(steps + 1, generator)
    if bits == 4:
        # A few batches again and again, so that there is something to learn.
        inputs = {name: values[torch.arange(steps + 1) % 4] for name, values in inputs.items()}

    def batch(index):
        return {name: values[index] for name, values in inputs.items()}

    loss, logits = data.loss(model, **batch(0))
    loss.backward()
    tensors = {name: values.to(torch.int32) for name, values in inputs.items()}
    tensors |= {"loss": loss.detach().reshape(1), "logits": logits.detach()}
    tensors |= {f"grad.{name}": value for name, value in of_adapters(model, lambda p: p.grad).items()}
    model.zero_grad()

    trained = [parameter for _, parameter in adapters]
    betas = (RUN["beta1"], RUN["beta2"])
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": RUN["weight_decay"]},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW([group for group in groups if group["params"]], lr, betas, RUN["eps"])
    losses, norms = [], []
    for step in range(steps):
        loss, _ = data.loss(model, **batch(1 + step))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, RUN["clip"]).item())
        adamw.step()
        adamw.zero_grad()
        losses.append(loss.item())
    tensors |= {"train.losses": torch.tensor(losses), "train.grad_norms": torch.tensor(norms)}
    tensors |= {f"after.{name}": value for name, value in of_adapters(model, lambda p: p).items()}
    settings = data.settings | {"steps": steps, "base_bits": bits, "accumulate": 1} | RUN | {"lr": lr}
    versions = {library.__name__: library.__version__ for library in (torch, transformers, peft)}
    metadata = {key: str(value) for key, value in (settings | versions).items()}
    save_file(tensors, folder / "case.safetensors", metadata)
    print(folder.name, losses)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    # Rows of whole blocks: of shorter ones, bitsandbytes 0.50 takes other scales back than it stored, on a processor.
    wide = llama(64, 192)
    cases = {
        "gpt2-lora-case": lambda folder: record(folder, gpt2(), ["c_attn", "c_proj"], 8, 21),
        "llama-lora-case": lambda folder: record(folder, llama(), ["q_proj", "v_proj"], 6, 22),
        "llama-qlora-run": lambda folder: record(folder, wide, ["q_proj", "v_proj", "down_proj"], 8, 23, 50, 4, 1e-3),
    }
    dora = {
        "use_dora": True, "use_rslora": True, "rank_pattern": {"c_attn": 2}, "alpha_pattern": {"h.1.attn.c_proj": 3},
        "modules_to_save": ["ln_f"],
    }  # fmt: skip
    layers = r".*attn\.(c_attn|c_proj)|.*mlp\.c_fc"
    cases["gpt2-dora-case"] = lambda folder: record(folder, gpt2(), layers, 8, 24, **dora)
    head = {"alpha_pattern": {"lm_head": 3}, "exclude_modules": r".*layers\.0.*v_proj", "modules_to_save": ["norm"]}
    untied = llama(tie_word_embeddings=False)
    layers_and_head = ["q_proj", "v_proj", "up_proj", "lm_head"]
    cases["llama-adapters-case"] = lambda folder: record(folder, untied, layers_and_head, 6, 25, **head)
    for name in sys.argv[2:] or cases:
        cases[name](root / name)


if __name__ == "__main__":
    main()
