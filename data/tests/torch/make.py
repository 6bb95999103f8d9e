"""Makes the files beside it: python3 make.py, with torch 2.15.0."""

import json
import os
import zipfile
from collections import OrderedDict

import torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))
torch.manual_seed(0)


class Call:
    def __reduce__(self):
        return os.system, ("true",)


rows = torch.arange(12.0).reshape(4, 3) / 8
weights = OrderedDict(
    wte=rows,
    head=rows,
    rows=rows[1:3],
    gain=torch.nn.Parameter(torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16)),
    half=torch.tensor([[0.5], [65504.0]], dtype=torch.float16),
    scalar=torch.tensor(3.0),
    wide=torch.tensor([1e300, 1.0], dtype=torch.float64),
    ids=torch.tensor([-1, 1 << 40]),
    mask=torch.tensor([True, False]),
    none=torch.zeros(0, 3),
)
weights._metadata = OrderedDict({"": {"version": 1}, "wte": {"version": 2}})
torch.save(weights, "pytorch_model.bin")
expected = {name: {"shape": list(one.shape), "values": one.detach().double().flatten().tolist()} for name, one in weights.items()}

shards = {"pytorch_model-00001-of-00002.bin": ["wte", "gain"], "pytorch_model-00002-of-00002.bin": ["half"]}
for file, names in shards.items():
    torch.save({name: weights[name] for name in names}, f"sharded/{file}")
index = {"metadata": {}, "weight_map": {name: file for file, names in shards.items() for name in names}}
with open("sharded/pytorch_model.bin.index.json", "w") as out:
    json.dump(index, out)
with open("expected.json", "w") as out:
    json.dump(expected, out)

torch.save({"w": rows.t()}, "strided.bin")
torch.save({"w": rows}, "legacy.bin", _use_new_zipfile_serialization=False)
torch.save({"w": Call()}, "call.bin")
torch.save({"model": {"w": rows}}, "nested.bin")
torch.save({"step": 3}, "number.bin")
torch.save(rows, "tensor.bin")
torch.save({"w": rows.to(torch.float8_e4m3fn)}, "float8.bin")
torch.save({"w": rows}, "protocol.bin", pickle_protocol=4)
with zipfile.ZipFile("pytorch_model.bin") as old, zipfile.ZipFile("compressed.bin", "w", zipfile.ZIP_DEFLATED) as new:
    for name in old.namelist():
        new.writestr(name, old.read(name))
