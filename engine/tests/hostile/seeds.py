"""Writes the files of the corpus that readers take. Files that were found hostile are in the corpus too, and stay.

Needs numpy, pyarrow and pillow, and the command: python seeds.py target/debug/tightrope
"""

import base64
import gzip
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from PIL import Image

CORPUS = pathlib.Path(__file__).parent / "corpus"
# Operators or levels within each other: of templates, and of JSON.
LONG = 3_000
DEEP = 12_000
ROOT = pathlib.Path(__file__).parents[3]


def put(place, data):
    path = CORPUS / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, array in tensors.items():
        raw = array.tobytes()
        kind = {"float32": "F32", "float16": "F16", "int64": "I64", "uint8": "U8", "int32": "I32"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def some_tensors(path, start):
    """The tensors whose names begin so, as a file of their own."""
    data = path.read_bytes()
    first = 8 + struct.unpack("<Q", data[:8])[0]
    header, kept = {}, b""
    for name, entry in json.loads(data[8:first]).items():
        if name.startswith(start):
            begin, end = entry["data_offsets"]
            header[name] = {**entry, "data_offsets": [len(kept), len(kept) + end - begin]}
            kept += data[first + begin:first + end]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + kept


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_hidden_layers": 1, "max_position_embeddings": 16, "vocab_size": 32, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu", "eos_token_id": [0, 1],
}


def llama():
    shapes = {
        "model.embed_tokens.weight": (32, 8), "model.norm.weight": (8,),
        "model.layers.0.input_layernorm.weight": (8,), "model.layers.0.post_attention_layernorm.weight": (8,),
        "model.layers.0.self_attn.q_proj.weight": (8, 8), "model.layers.0.self_attn.k_proj.weight": (4, 8),
        "model.layers.0.self_attn.v_proj.weight": (4, 8), "model.layers.0.self_attn.o_proj.weight": (8, 8),
        "model.layers.0.mlp.gate_proj.weight": (16, 8), "model.layers.0.mlp.up_proj.weight": (16, 8),
        "model.layers.0.mlp.down_proj.weight": (8, 16),
    }
    return {name: np.full(shape, 0.01, np.float32) for name, shape in shapes.items()}


def models():
    put("config/llama", json.dumps(LLAMA))
    put("safetensors/llama", safetensors(llama(), {"format": "pt"}))
    put("safetensors/kinds", safetensors({
        "a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": np.zeros(0, np.float32), "c": np.float16([1]), "d": np.uint8(7),
    }))
    for case in sorted((ROOT / "tests/parity").glob("*-case")):
        config = case / "config.json"
        if config.is_file():
            put(f"config/{case.name}", config.read_bytes())
    put("generation/all", json.dumps({
        "bos_token_id": 0, "eos_token_id": [0, 1], "do_sample": True, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.1,
        "max_length": 20, "suppress_tokens": [1], "transformers_version": "5.0",
    }))
    for form in ["nf4", "fp4", "int8"]:
        put(f"bitsandbytes/{form}", some_tensors(ROOT / f"tests/parity/bitsandbytes/{form}/model.safetensors", "model.layers.0.self_attn.k_proj."))
    put("index/one", json.dumps({"metadata": {"total_size": 9}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}))
    adapters = sorted((ROOT / "tests/parity").glob("*/adapters/adapter_config.json"))
    for number, config in enumerate(adapters):
        put(f"adapters/{number}", config.read_bytes())
    put("torch/published", (ROOT / "data/tests/torch/pytorch_model.bin").read_bytes())
    put("torch/strided", (ROOT / "data/tests/torch/strided.bin").read_bytes())


def runs(command):
    """A run of a small model, its plan, profile and checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text.txt").write_text("to be or not to be, that is the question. " * 20)
        run = folder / "run"
        subprocess.run([
            command, "train", "--data", folder / "text.txt", "--out", run, "--device", "cpu", "--steps", "2", "--profile", "--set",
            "model.family=llama", "--set", "model.channels=8", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "model.hidden=16",
            "--set", "model.context=16", "--set", "train.batch=2", "--set", "train.optimizer=sgd",
        ], check=True, stdout=subprocess.DEVNULL)
        step = run / "checkpoints/step-2"
        settings = (run / "run.toml").read_text().replace(str(folder), "/data")
        put("settings/run", settings)
        put("plan/run", (run / "plan.json").read_bytes())
        put("metrics/run", (run / "metrics.jsonl").read_bytes())
        if (run / "profile.json").is_file():
            put("profile/run", (run / "profile.json").read_bytes())
        manifest = json.loads((step / "manifest.json").read_text())
        put("settings-as-json/run", json.dumps(manifest["settings"]))
        put("manifest/run", (step / "manifest.json").read_bytes())
        put("checkpoint-model/model", (step / "model.safetensors").read_bytes())
        put("checkpoint-optimizer/optimizer", (step / "optimizer.safetensors").read_bytes())
        archive = folder / "run.tar"
        subprocess.run(["tar", "--format=ustar", "--owner=0", "--group=0", "-cf", archive, "-C", step, "."], check=True)
        put("archive/run", archive.read_bytes().rstrip(b"\0") + bytes(1024))


CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"messages": [{"role": "system", "content": "é"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]},
]
PREFERENCES = [{"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"}] * 2
LABELS = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}, {"text": None, "label": 1}]
QUESTIONS = [{"query": "a", "choices": ["b", "c"], "gold": 1}]


def texts():
    text = "To be, or not to be: naïve — 文\n" * 8
    put("text/plain", text)
    put("packed/gzip", gzip.compress(text.encode(), mtime=0))
    put("packed/zstandard", pa.Codec("zstd").compress(text.encode(), asbytes=True))
    for name, rows in [("chats", CONVERSATIONS), ("preferences", PREFERENCES), ("labels", LABELS), ("questions", QUESTIONS)]:
        put(f"lines/{name}", "".join(json.dumps(row) + "\n" for row in rows))
        put(f"values/{name}", json.dumps(rows))
        table = pa.Table.from_pylist(rows)
        for codec in ["none", "gzip", "brotli", "zstd", "snappy", "lz4"]:
            for version in ["1.0", "2.0"]:
                if (codec, name) in [("gzip", "chats"), ("brotli", "labels"), ("zstd", "preferences"), ("snappy", "questions"), ("lz4", "labels"),
                                     ("none", "chats")]:
                    file = io.BytesIO()
                    pq.write_table(table, file, compression=codec, data_page_version=version, store_schema=False)
                    put(f"parquet/{name}-{codec}-{version[0]}", file.getvalue())
        for codec in [None, "lz4", "zstd"]:
            file = io.BytesIO()
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_stream(file, table.schema, options=options) as writer:
                writer.write_table(table)
            put(f"arrow/{name}-{codec}", file.getvalue())
    words = pa.table({"text": pa.array(["a", "b", "a", None]).dictionary_encode(), "n": pa.array([[1], [], None, [2, 3]])})
    file = io.BytesIO()
    with pa.ipc.new_file(file, words.schema) as writer:
        writer.write_table(words)
    put("arrow/dictionary", file.getvalue())
    label = {"_type": "ClassLabel", "names": ["no", "yes"]}
    put("features/labels", json.dumps({"features": {"text": {"dtype": "string", "_type": "Value"}, "label": label}}))
    put("card/features", "---\nlicense: mit\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n    dtype:\n"
        "      class_label:\n        names:\n          '0': no\n          '1': \"yes\"\n---\n# Reviews\n")
    put("card/list", "---\ndataset_info:\n- config_name: a\n  features:\n  - name: label\n    dtype:\n      class_label:\n        names:\n"
        "        - no\n        - yes\n---\n")
    put("saved/state", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train"}))
    ids = np.arange(300, dtype=np.uint16) % 250
    put("ids/plain", ids.tobytes())
    put("ids/shard", struct.pack("<3i", 20240520, 1, 300) + bytes(1012) + ids.tobytes())


def tokenizers():
    tokens = ["a", "b", "c", "ab", "<|endoftext|>", "Ġ", "Ã", "©"]
    vocab = {token: number for number, token in enumerate(tokens)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": 4, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bpe = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": {"type": "NFC"}, "pre_tokenizer": level,
        "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}},
        "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": [["a", "b"]]},
    }
    put("tokenizer/bpe", json.dumps(bpe))
    sequence = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}]}
    split = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, {"type": "Digits", "individual_digits": True}]}
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    put("tokenizer/unigram", json.dumps({**bpe, "added_tokens": [], "normalizer": sequence, "pre_tokenizer": split, "decoder": decoder,
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["b", -2.5], ["c", -3.0]]}}))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##c", "1"]
    put("word-pieces/list", "\n".join(pieces) + "\n")
    put("tokenizer/word-pieces", json.dumps({**bpe, "added_tokens": [], "normalizer": {"type": "BertNormalizer", "clean_text": True,
        "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {piece: number for number, piece in enumerate(pieces)}}}))
    put("vocab/list", json.dumps(vocab))
    put("merges/list", "#version: 0.2\na b\n")
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    put("tokenizer-config/all", json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"},
        "add_bos_token": True, "added_tokens_decoder": {"4": special, "9": {**special, "content": "<x>"}}, "chat_template": template,
        "additional_special_tokens": ["<y>"], "model_max_length": 1e30}))
    put("special-tokens/all", json.dumps({"bos_token": "<|endoftext|>", "pad_token": {"content": "<pad>", "lstrip": True},
                                          "additional_special_tokens": ["<y>"]}))
    put("added-tokens/all", json.dumps({"<x>": 8, "<y>": 9}))
    built_in = ROOT / "data/src/chat/built_in"
    for path in sorted(built_in.rglob("*.jinja"))[:12]:
        put(f"template/{path.stem}", path.read_bytes())
    put("template/plain", template)
    put("template/everything", """{%- macro m(x, y=2) -%}{{ x ~ y }}{%- endmacro -%}{% set ns = namespace(n=0) %}
{%- for m in messages if m.role != 'x' recursive %}{% set ns.n = ns.n + loop.index0 %}{{ m(m.content|trim|upper, [1, {'a': m}]|tojson(indent=2)) }}
{{- '%s %05d %.3f' % (m.role, ns.n, 1.5) }}{{ '{:>8}'.format(ns.n) }}{{ m.content[::-1].split('b', 1)|join(',') }}{% endfor %}
{%- if tools is defined and tools %}{{ tools|map(attribute='a')|list }}{{ tools[0].items()|list }}{% endif %}{{ range(3)|list }}{{ 'a' * 3 }}
{%- filter indent(2) %}{{ strftime_now('%d %B') }}{% endfilter %}{% generation %}x{% endgeneration %}{{ (1, 2.0, none, true)|string }}""")


def images():
    root = ROOT / "data/tests/images"
    for name in ["gradient", "palette"]:
        put(f"png/{name}", (root / f"{name}.png").read_bytes())
    for name in ["gradient", "grey"]:
        put(f"jpeg/{name}", (root / f"{name}.jpg").read_bytes())
    pixels = (np.arange(24 * 16) % 256).astype(np.uint8).reshape(16, 24)
    for mode in ["L", "LA", "RGBA", "I;16", "1"]:
        image = Image.fromarray(pixels.astype(np.uint16) * 256) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
        file = io.BytesIO()
        image.save(file, "png")
        put(f"png/{mode.replace(';', '')}", file.getvalue())
    file = io.BytesIO()
    Image.fromarray(pixels).convert("RGB").save(file, "jpeg", progressive=True, quality=40)
    put("jpeg/progressive", file.getvalue())
    images = struct.pack(">4I", 0x803, 6, 8, 8) + bytes(range(64)) * 6
    put("idx-images/six", images)
    put("idx-packed/six", gzip.compress(images, mtime=0))
    put("idx-labels/six", struct.pack(">2I", 0x801, 6) + bytes([0, 1] * 3))
    put("cifar/two", (b"\x03" + bytes(3072)) + (b"\x01" + bytes(range(256)) * 12))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(width, height, depth, colour, raw):
    """A PNG of these packed bytes."""
    head = struct.pack(">2I5B", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", raw) + chunk(b"IEND", b"")


def packed_zeros(count):
    packer = zlib.compressobj(9)
    block = bytes(1 << 20)
    parts = [packer.compress(block) for _ in range(count >> 20)]
    return b"".join(parts) + packer.compress(bytes(count & ((1 << 20) - 1))) + packer.flush()


def archive(pickle):
    """A file of torch.save with this pickle and a storage of 4 bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as out:
        for name, data in [("a/data.pkl", pickle), ("a/byteorder", b"little"), ("a/data/0", bytes(4))]:
            out.writestr(zipfile.ZipInfo(name), data)
    return file.getvalue()


def parquet(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, store_schema=False, **options)
    return file.getvalue()


def arrow(table, **options):
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return file.getvalue()


def hostile():
    """Small files that became large, deep or slow, by what they did."""
    # Parquet: texts, dictionaries and levels that become gigabytes.
    zeros = pa.table({"text": ["\0" * (60 << 20)]})
    for codec in ["gzip", "brotli", "zstd"]:
        put(f"parquet/text-of-60-mb-{codec}", parquet(zeros, compression=codec, use_dictionary=False, write_statistics=False))
    nothing = pa.table({"text": ["a"], "messages": pa.array([[None] * 3_000_000], pa.list_(pa.int8()))})
    put("parquet/list-of-nothing", parquet(nothing, compression="none"))
    names = pa.list_(pa.struct([("n" * 5000 + str(n), pa.int8()) for n in range(3)]))
    put("parquet/long-names", parquet(pa.table({"messages": pa.array([[{}] * 20_000], names)}), compression="none"))
    put("parquet/same-text", parquet(pa.table({"text": ["a" * 1000] * 100_000}), compression="none"))
    put("parquet/empty-texts", parquet(pa.table({"text": [""] * 3_000_000}), compression="none"))
    good = (CORPUS / "parquet/chats-none-1").read_bytes()
    length = struct.unpack("<I", good[-8:-4])[0]
    footer = good[-8 - length:-8]
    for name, made in [
        # Lists that say that they have 2^31 elements.
        ("long-list", b"\x15\x02\x19\xfc" + b"\xff\xff\xff\xff\x07" + footer[4:]),
        ("deep-metadata", footer[:-1] + b"\x19" * 5000),
        ("row-groups", footer[:-1] + b"\x49\xfc\xff\xff\xff\xff\x07"),
    ]:
        put(f"parquet/{name}", good[:-8 - length] + made + struct.pack("<I", len(made)) + b"PAR1")
    # Arrow: packed buffers, and rows of nothing.
    put("arrow/text-of-60-mb", arrow(zeros, compression="zstd"))
    # Lengths are put in place of those of small tables: of rows, and of a list in each.
    def lengthened(table, width, found, wanted):
        return arrow(table).replace(found.to_bytes(width, "little"), wanted.to_bytes(width, "little"))

    rows, each = 54_321, 4_321
    put("arrow/rows-of-nothing", lengthened(pa.table({"messages": pa.nulls(rows), "text": pa.nulls(rows)}), 8, rows, 2**40))
    lists = pa.FixedSizeListArray.from_arrays(pa.nulls(each), each)
    made = lengthened(pa.table({"messages": lists}), 4, each, 2**31 - 1)
    put("arrow/list-of-nothing", made)
    empty = pa.FixedSizeListArray.from_buffers(pa.list_(pa.int8(), 0), rows, [None], children=[pa.array([], pa.int8())])
    put("arrow/lists-of-no-length", lengthened(pa.table({"messages": empty}), 8, rows, 2**40))
    # Texts.
    put("packed/gzip-bomb", gzip.compress(bytes(60 << 20), 9, mtime=0))
    put("packed/zstandard-bomb", pa.Codec("zstd", 19).compress(bytes(1 << 30), asbytes=True))
    put("lines/deep", b'{"text": "a", "messages": ' + b"[" * DEEP)
    put("values/deep", b'[{"text": "a", "messages": ' + b'{"a":' * DEEP)
    put("lines/long", b'{"text": "' + b"a" * 50_000)
    put("lines/escapes", b'{"text": "\\u001b[2J", "\x1b]0;a\x07": 1}\n')
    put("saved/outside", json.dumps({"_data_files": [{"filename": "../../../etc/passwd"}]}))
    # Images.
    put("png/one-bit", picture(12_000, 12_000, 1, 0, packed_zeros(12_000 * 1501)))
    put("png/tall", picture(1, 2**25, 8, 0, packed_zeros(2**26)))
    put("png/enormous", picture(2**31 - 1, 2**31 - 1, 16, 6, packed_zeros(1 << 16)))
    put("png/profile", b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 8, 0, 0, 0, 0))
        + chunk(b"iCCP", b"a\0\0" + packed_zeros(100 << 20)) + chunk(b"IDAT", packed_zeros(2)) + chunk(b"IEND", b""))
    good = (CORPUS / "jpeg/gradient").read_bytes()
    frame = good.index(b"\xff\xc0")
    put("jpeg/enormous", good[:frame + 5] + struct.pack(">2H", 65_000, 4_000) + good[frame + 9:])
    good = (CORPUS / "jpeg/progressive").read_bytes()
    frame = good.index(b"\xff\xc2")
    put("jpeg/enormous-progressive", good[:frame + 5] + struct.pack(">2H", 65_000, 4_000) + good[frame + 9:])
    put("idx-packed/bomb", gzip.compress(struct.pack(">4I", 0x803, 600, 320, 320) + bytes(600 * 320 * 320), 9, mtime=0))
    put("idx-images/extents", struct.pack(">4I", 0x803, 2**32 - 1, 65_535, 65_535))
    # Weights.
    shape = b"(" + b"K\x01" * 60 + b"t"
    call = b"h\x00(h\x03K\x00h\x01h\x01\x89h\x04tR"
    start = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x000" + shape + b"q\x010"
    start += b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQq\x030"
    start += b"ccollections\nOrderedDict\n)Rq\x040}("
    put("torch/shapes", archive(start + b"".join(b"X\x02\x00\x00\x00%02d" % (n % 100) + call for n in range(2_000)) + b"u."))
    put("torch/marks", archive(b"\x80\x02" + b"(" * 30_000 + b"."))
    put("safetensors/header", struct.pack("<Q", 99_999_999) + b"{" + bytes(100))
    many = ",".join('"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(1500))
    put("safetensors/names", struct.pack("<Q", len(many) + 2) + b"{" + many.encode() + b"}")
    deep = b'{"a":{"dtype":"F32","shape":' + b"[" * DEEP
    put("safetensors/deep", struct.pack("<Q", len(deep)) + deep)
    # Descriptions.
    for family, layers in [("smollm3", 2**40), ("gemma2", 2**40), ("gemma3_text", 2**40), ("mistral", 2**40), ("qwen2", 2**40), ("llama", 2**63)]:
        put(f"config/layers-{family}", json.dumps({**LLAMA, "architectures": None, "model_type": family, "num_hidden_layers": layers,
                                                   "use_sliding_window": True, "sliding_window": 4, "head_dim": 4}))
    put("config/deepest", json.dumps({**LLAMA, "num_hidden_layers": 4096}))
    for name, keys in [("widest", {"vocab_size": 2**24, "hidden_size": 2**20, "intermediate_size": 2**22}), ("infinite", {"rope_theta": float("inf")}),
                       ("classes", {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 2**40,
                                    "type_vocab_size": 2**40, "hidden_act": "gelu"}),
                       ("patches", {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 2**40, "patch_size": 1,
                                    "num_channels": 2**40})]:
        put(f"config/{name}", json.dumps({**LLAMA, **keys}))
    put("config/deep", b'{"model_type": ' + b"[" * DEEP)
    put("adapters/rank", json.dumps({"peft_type": "LORA", "r": 2**60, "lora_alpha": 1, "target_modules": ["a"] * 1000}))
    put("adapters/pattern", json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 1, "target_modules": "(a{1000}){1000}(b+)+$",
                                        "rank_pattern": {"(" * 300 + ")" * 300: 4}, "layers_to_transform": [2**60]}))
    put("settings/deep", "[train]\nlr = " + "[" * DEEP)
    put("settings/dotted", "[" + "a." * DEEP + "a]\n")
    put("settings/tables", "[train]\nlr = " + "{a=" * DEEP)
    put("plan/deep", b'{"made_for": ' + b'{"a":' * DEEP)
    put("generation/long", json.dumps({"eos_token_id": list(range(5_000)), "suppress_tokens": [2**40], "temperature": 1e308}))
    put("metrics/long", b'{"step": 1, "a": "' + b"a" * 20_000 + b'"}\n' + b"[" * DEEP + b"\n")
    # Tokenizers: chains that multiply, tables and expressions.
    bpe = json.loads((CORPUS / "tokenizer/bpe").read_text())
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
    table = base64.b64encode(struct.pack("<I", 0) + b"a" * 200 + b"\0").decode()
    for name, part in [
        ("byte-levels", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 40}}),
        ("byte-levels-of-words", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [level] * 40}}),
        ("metaspaces", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}] * 40}}),
        ("tables", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": table}] * 20}}),
        ("replacements", {"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"Regex": ""}, "content": "aa"}] * 30}}),
        ("backtracking", {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?=((a|aa)+)$)(a|b)"}, "behavior": "Isolated", "invert": False}}),
        ("large-expression", {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "((a{900}){900}){900}"}, "behavior": "Isolated",
                                                "invert": False}}),
        ("deep-expression", {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(" * LONG + ")" * LONG}, "behavior": "Isolated",
                                               "invert": False}}),
        ("deep-decoder", {"decoder": {"type": "Strip", "content": " ", "start": 2**60, "stop": 2**60}}),
        ("large-id", {"added_tokens": [{**bpe["added_tokens"][0], "id": 2**32 - 1}]}),
        ("padding", {"padding": {"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": 2**40, "pad_id": 0, "pad_type_id": 0,
                                 "pad_token": "a"}, "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}}),
        ("template", {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}] * 2000 + [
            {"Sequence": {"id": "A", "type_id": 0}}] * 500, "pair": [], "special_tokens": {"a": {"id": "a", "ids": [0] * 3000, "tokens": ["a"] * 3000}}}}),
    ]:
        put(f"tokenizer/{name}", json.dumps({**bpe, **part}))
    deep = '{"type":"Sequence","normalizers":[' * 120
    put("tokenizer/deep", json.dumps({**bpe, "normalizer": 0}).replace('"normalizer": 0', '"normalizer": ' + deep + "]}" * 120))
    put("vocab/large-id", json.dumps({"a": 2**31 - 1, "b": 1, "ab": 2}))
    put("special-tokens/deep", b'{"bos_token": ' + b"[" * DEEP)
    put("tokenizer-config/many", json.dumps({"additional_special_tokens": ["<%d>" % n for n in range(4000)], "chat_template": [
        {"name": "n%d" % n, "template": "{{ 1 }}"} for n in range(500)]}))
    put("added-tokens/long", json.dumps({"<x>": 8, "[" * 16_384: 9}))
    put("added-tokens/large", json.dumps({"<x>": 2**32 - 1, "<y>": -1}))
    # Templates: what a value, an operator or a loop becomes.
    for name, source in {
        "itself": "{% set a = [] %}{% set b = a.append(a) %}{{ a }}",
        "itself-as-json": "{% set a = {} %}{% set b = a.update({'a': a}) %}{{ a|tojson }}",
        "itself-compared": "{% set a = [] %}{% set b = [] %}{% set c = a.append(b) %}{% set c = b.append(a) %}{{ a == b }}{{ a ~ b }}",
        "itself-in-namespace": "{% set a = namespace() %}{% set a.a = [a] %}{{ a.a }}{{ a.a == a.a }}{{ a.a|string }}{{ a.a|join }}{{ '%s' % a.a }}",
        "itself-sorted": "{% set a = [1] %}{% set b = a.append(a) %}{{ a|sort }}{{ a|unique|list }}{{ a in a }}{{ a|sum(start=[]) }}{{ a|max }}",
        "itself-hashed": "{% set a = [1] %}{% set b = a.append(a) %}{{ {a: 1} }}{{ (a,) in {(a,): 1} }}",
        "operators": "{{ 1" + " + 1" * LONG + " }}",
        "texts": "{{ 'a'" + " ~ 'a'" * LONG + " }}",
        "comparisons": "{{ 1" + " < 2" * LONG + " }}",
        "nots": "{{ " + "not " * LONG + "1 }}",
        "minuses": "{{ " + "-" * LONG + "1 }}",
        "filters": "{{ 1" + "|string" * LONG + " }}",
        "attributes": "{{ a" + ".a" * LONG + " }}",
        "items": "{{ a" + "[0]" * LONG + " }}",
        "calls": "{{ a" + "()" * LONG + " }}",
        "tests": "{{ a" + " is defined" * LONG + " }}",
        "ifs": "{{ " + "1 if 1 else " * LONG + "1 }}",
        "blocks": "{% if 1 %}" * LONG,
        "loops": "{% for a in [1] %}" * LONG,
        "elifs": "{% if 0 %}" + "{% elif 0 %}" * LONG + "{% endif %}",
        "lists": "{{ " + "[" * LONG + "]" * LONG + " }}",
        "dicts": "{{ " + "{'a':" * LONG + "1" + "}" * LONG + " }}",
        "targets": "{% for " + "(" * LONG + "a" + ")" * LONG + " in [] %}{% endfor %}",
        "deep-list": "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
        "deep-list-as-json": "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = {'a': ns.a} %}{% endfor %}{{ ns.a|tojson }}",
        "deep-list-compared": "{% set ns = namespace(a=[], b=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}{{ ns.a < ns.b }}",
        "product": "{{ 'a' * 10000000000 }}{{ [1] * 10000000000 }}",
        "width": "{{ '%9999999999d' % 1 }}{{ '{:>9999999999}'.format(1) }}{{ '%.9999999999f' % 1 }}",
        "centre": "{{ 'a'|center(9999999999) }}{{ 'a'.ljust(9999999999) }}{{ 'a'.zfill(9999999999) }}",
        "indent": "{{ {'a': 1}|tojson(indent=9999999999) }}{{ 'a\n\na'|indent(9999999999) }}",
        "power": "{{ 10 ** 10 ** 10 }}{{ 2 ** 99999999999 }}{{ 1 // 0 }}",
        "doubled": "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(64) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}",
        "doubled-list": "{% set ns = namespace(a=[1]) %}{% for i in range(64) %}{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a }}",
        "doubled-references": "{% set ns = namespace(a=[1]) %}{% for i in range(64) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a == ns.a }}{{ ns.a|tojson }}{{ ns.a }}",
        "doubled-references-compared": "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(64) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "replaced": "{% set a = 'a' * 4000 %}{{ a.replace('', a).replace('', a).replace('a', a) }}",
        "joined": "{% set a = 'a' * 4000 %}{{ (a|list)|join(a)|list|join(a) }}",
        "split": "{% set a = ',' * 1000000 %}{{ a.split(',')|length }}{{ (a.split(',')|map('upper')|list)|length }}",
        "ranges": "{% for i in range(100000) %}{% for i in range(100000) %}{% endfor %}{% endfor %}{{ range(10 ** 18)|list }}",
        "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "recursive-loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "callers": "{% macro m() %}{{ caller() }}{% endmacro %}" + "{% call m() %}" * 150 + "{% endcall %}" * 150,
        "batches": "{{ [1]|batch(10000000000, 'a')|list }}{{ [1]|slice(10000000000)|list }}{{ range(100000)|batch(1)|list|length }}",
        "date": "{{ strftime_now('%Y' * 100000) }}",
        "wordwrap": "{{ ('a' * 100000)|wordwrap(1) }}{{ ('a ' * 100000)|title|length }}",
        "number": "{{ " + "9" * 20_000 + " }}{{ 1e999 }}{{ ('9' * 100000)|int }}{{ ('9' * 100000)|float }}",
        "dictionary": "{% set d = {} %}{% for i in range(100000) %}{% set x = d.update({i: d}) %}{% endfor %}{{ d|length }}{{ d|dictsort|length }}",
        "slices": "{{ ('a' * 1000000)[::-1][::2]|length }}{{ [1, 2][-9223372036854775808:9223372036854775807:-9223372036854775808] }}",
    }.items():
        put(f"template/{name}", source)
    # Settings and archives.
    put("settings-as-json/deep", b'{"train": ' + b"[" * DEEP)
    put("word-pieces/nothing", b"\n" * 20_000)
    put("merges/long", b"a b\n" * 5_000)
    put("ids/count", struct.pack("<3i", 20240520, 1, 2**31 - 1) + bytes(1012))
    put("features/deep", b'{"features": {"label": {"names": ' + b"[" * DEEP)
    names = ["%d" % n for n in range(500)]
    put("features/many", json.dumps({"features": {"label": {"_type": "ClassLabel", "names": names}}}))
    put("card/many", "---\n- name: label\n  dtype:\n    class_label:\n      names:\n" + "".join(f"      - {name}\n" for name in names) + "---\n")
    put("card/labels", "---\n" + "- name: label\n" * 500 + "\n---\n")
    put("index/many", json.dumps({"weight_map": {str(n): "model-%d.safetensors" % n for n in range(2000)}}))
    put("index/outside", json.dumps({"weight_map": {"a": "../config.json"}}))


def main():
    models()
    texts()
    tokenizers()
    images()
    hostile()
    if len(sys.argv) > 1:
        runs(pathlib.Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
