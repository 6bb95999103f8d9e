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
from transformers import AutoModelForCausalLM

CASES = [
    "gpt2-small", "llama-gqa", "llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "olmo2",
]  # fmt: skip


def main():
    torch.set_num_threads(1)
    binary, root, worst = sys.argv[1], Path(sys.argv[2]), 0.0
    print("| case | transformers | Tightrope |\n|---|---|---|")
    for name in CASES:
        case = root / f"{name}-case"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "model"
            subprocess.run([binary, "export", case, out, "--precision", "f32"], check=True, capture_output=True)
            model, said = AutoModelForCausalLM.from_pretrained(
                out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
            assert not any(said[kind] for kind in ["missing_keys", "unexpected_keys", "mismatched_keys"]), (name, said)
            recorded = load_file(case / "case.safetensors")
            with torch.no_grad():
                logits = model.eval()(recorded["tokens"][0, :, :-1].long()).logits
            theirs = (logits - recorded["logits"]).abs().max().item()
            shutil.copy(case / "case.safetensors", out)
            verified = subprocess.run([binary, "verify", out, "--device", "cpu", "--json"], capture_output=True, text=True)
            ours = json.loads(verified.stdout.splitlines()[-1])
            ours = (ours if "logits_max_abs_err" in ours else ours["cases"][0])["logits_max_abs_err"]
        print(f"| `{case.name}` | {theirs:.1e} | {ours:.1e} |", flush=True)
        worst = max(worst, theirs + ours)
    assert worst < 1e-4, worst


main()
