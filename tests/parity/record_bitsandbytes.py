"""Records a Llama whose layers bitsandbytes quantized, in each of the forms that its state dictionaries have, and what it dequantizes them to:
`bitsandbytes` beside this file.

    pip install torch==2.15.0 transformers==5.24.0 bitsandbytes==0.49.2
    python3 tests/parity/record_bitsandbytes.py tests/parity/bitsandbytes

A folder of it has the `config.json` and the `model.safetensors` of a quantized model, and `expected.safetensors` those weights in f32, each rounded
as bitsandbytes does.
"""

import shutil
import sys
from pathlib import Path

import bitsandbytes
import torch
from bitsandbytes import functional
from safetensors.torch import save_file
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

SIZES = {
    "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192,
    "vocab_size": 256, "max_position_embeddings": 32, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
FORMS = {
    "nf4": (torch.bfloat16, {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}),
    "fp4": (torch.float16, {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}),
    "nf4-f32": (torch.float32, {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}),
    "int8": (torch.float16, {"load_in_8bit": True}),
}


def main():
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    for seed, (name, (dtype, said)) in enumerate(FORMS.items()):
        torch.manual_seed(80 + seed)
        model = LlamaForCausalLM(LlamaConfig(**SIZES)).to(dtype)
        tensors, expected = {}, {}
        for key, value in model.state_dict().items():
            layer = key.removesuffix(".weight")
            if not (".layers." in key and "_proj" in key):
                tensors[key], expected[key] = value, value.float()
            elif name == "int8":
                codes, scales, _ = functional.int8_vectorwise_quant(value)
                tensors |= {key: codes, f"{layer}.SCB": scales, f"{layer}.weight_format": torch.tensor(0, dtype=torch.uint8)}
                expected[key] = functional.int8_vectorwise_dequant(codes, scales)
            else:
                nested, kind = said.get("bnb_4bit_use_double_quant", False), said["bnb_4bit_quant_type"]
                linear = bitsandbytes.nn.Linear4bit(
                    value.shape[1], value.shape[0], bias=False, compute_dtype=dtype, compress_statistics=nested, quant_type=kind
                )
                # Of the model's own type of numbers; the move to a device quantizes it.
                linear.weight = bitsandbytes.nn.Params4bit(
                    value.clone(), requires_grad=False, compress_statistics=nested, quant_type=kind, module=linear
                )
                linear = linear.to("cpu")
                assert linear.weight.quant_state.dtype == dtype
                tensors |= {f"{layer}.{part}": tensor for part, tensor in linear.state_dict().items()}
                expected[key] = functional.dequantize_4bit(linear.weight.data, linear.weight.quant_state).float()
        folder = root / name
        folder.mkdir(parents=True)
        model.config.quantization_config = BitsAndBytesConfig(**said).to_dict()
        model.config.dtype = dtype
        model.config.architectures = ["LlamaForCausalLM"]
        model.config.save_pretrained(folder)
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
        save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
        print(name, len(tensors))


if __name__ == "__main__":
    main()
