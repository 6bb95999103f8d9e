"""Loads what `tightrope export` writes of the recorded cases with transformers, and prints a row for each: how far the logits are from the
recorded ones, of transformers and of Tightrope, both on the exported directory. Ends with an error above 1e-4.

    pip install torch==2.15.0 transformers==5.24.0 safetensors
    cargo build --release && python3 tests/parity/check_exports.py target/release/tightrope tests/parity
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification

LANGUAGE = [
    "gpt2-small", "llama-gqa", "llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "olmo2",
]  # fmt: skip
CASES = {name: AutoModelForCausalLM for name in LANGUAGE}
CASES |= {"bert": AutoModelForMaskedLM, "bert-classes": AutoModelForSequenceClassification}
DECODERS = ["llama-classes", "qwen3-classes", "gemma3-classes", "gpt2-classes"]
CASES |= {name: AutoModelForSequenceClassification for name in DECODERS}


def given(recorded, kind):
    """What transformers is called with, to read the recorded tokens as they were."""
    tokens = recorded["tokens"][0].long()
    if kind is AutoModelForCausalLM:
        return {"input_ids": tokens[:, :-1]}
    if "last" in recorded:
        positions = torch.arange(tokens.shape[1])
        return {"input_ids": tokens, "attention_mask": (positions <= recorded["last"][0][:, None]).long()}
    # Padding sees padding alone, as when the case was recorded.
    documents = recorded["documents"][0]
    together = (documents[:, :, None] == documents[:, None, :])[:, None]
    mask = torch.where(together, 0.0, torch.finfo(torch.float32).min)
    return {"input_ids": tokens, "token_type_ids": recorded["types"][0].long(), "attention_mask": mask}


def main():
    torch.set_num_threads(1)
    binary, root, worst = sys.argv[1], Path(sys.argv[2]), 0.0
    print("| case | transformers | Tightrope |\n|---|---|---|")
    for name, kind in CASES.items():
        case = root / f"{name}-case"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "model"
            subprocess.run([binary, "export", case, out, "--precision", "f32"], check=True, capture_output=True)
            model, said = kind.from_pretrained(
                out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
            assert not any(said[keys] for keys in ["missing_keys", "unexpected_keys", "mismatched_keys"]), (name, said)
            recorded = load_file(case / "case.safetensors")
            with torch.no_grad():
                logits = model.eval()(**given(recorded, kind)).logits
            theirs = (logits - recorded["logits"]).abs().max().item()
            shutil.copy(case / "case.safetensors", out)
            verified = subprocess.run([binary, "verify", out, "--device", "cpu", "--json"], capture_output=True, text=True)
            ours = json.loads(verified.stdout.splitlines()[-1])
            ours = (ours if "logits_max_abs_err" in ours else ours["cases"][0])["logits_max_abs_err"]
        print(f"| `{case.name}` | {theirs:.1e} | {ours:.1e} |", flush=True)
        worst = max(worst, theirs + ours)
    assert worst < 1e-4, worst


main()
