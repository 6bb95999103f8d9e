"""Records data sets that `save_to_disk` wrote, and the rows that `datasets` reads from them: `arrow/cases.json.gz` beside this file.

    pip install datasets==5.2.0 pyarrow==26.0.1
    python3 tests/parity/record_arrow.py tests/parity/arrow

`--count 400 --seed 7` draws others. A case has the files of a folder, and the rows of each split. Texts are of each type of
strings, null here and there; tables are in one or several shards; buffers are as `datasets` writes them, or
compressed by lz4 or zstd, as other programs write them; some are files around a stream, as `feather` writes them.
"""

import argparse
import gzip
import json
import random
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from datasets import ClassLabel, Dataset, DatasetDict, Features, Json, List, Value, load_from_disk

STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
           pa.dictionary(pa.int32(), pa.large_string()), pa.dictionary(pa.uint16(), pa.string())]  # fmt: skip
WORDS = "the a model token loss naïve façade 你好 世界 привет 🙂 👩‍🚀 e.g. don't \"quoted\" {braces} \\n x=1; - tab\tline\n".split(" ")
SPLITS = [["train"], ["train", "test"], ["train", "validation", "test"], ["test"]]


def text(draw, most=9):
    return " ".join(draw.choices(WORDS, k=draw.randint(0, most)))


def rows_of_texts(draw, count):
    texts = [None if draw.random() < 0.2 else text(draw) for _ in range(count)]
    columns = {"text": pa.array(texts, draw.choice(STRINGS)), "id": pa.array(range(count), pa.int32())}
    columns["score"] = pa.array([draw.choice([None, 0.5, 1.25]) for _ in range(count)], pa.float32())
    return pa.table(columns)


def rows_of_labels(draw, count):
    texts = [text(draw) or "empty" for _ in range(count)]
    labels = [draw.randint(0, 2) for _ in range(count)]
    return pa.table({"text": pa.array(texts, draw.choice(STRINGS)), "label": pa.array(labels, pa.int64())})


def rows_of_prompts(draw, count):
    column = lambda: pa.array([text(draw) or "x" for _ in range(count)], draw.choice(STRINGS))
    return pa.table({"prompt": column(), "completion": column()})


def rows_of_chats(draw, count):
    def chat():
        turns = []
        for _ in range(draw.randint(1, 3)):
            turns.append({"role": "user", "content": text(draw), "name": draw.choice([None, "n"])})
            turns.append({"role": "assistant", "content": text(draw) or "x", "name": None})
        return turns

    kind = draw.choice([pa.string(), pa.large_string()])
    turn = pa.struct([("role", kind), ("content", kind), ("name", kind)])
    of = draw.choice([pa.list_, pa.large_list])
    columns = {"messages": pa.array([chat() for _ in range(count)], of(turn))}
    columns["flag"] = pa.array([draw.choice([None, True, False]) for _ in range(count)], pa.bool_())
    columns["pair"] = pa.array([[1, None] for _ in range(count)], pa.list_(pa.int16(), 2))
    columns["of_bytes"] = pa.array([b"abc" for _ in range(count)], pa.binary())
    return pa.table(columns)


KINDS = {"texts": rows_of_texts, "labels": rows_of_labels, "prompts": rows_of_prompts, "chats": rows_of_chats}


def rewritten(path, draw, way):
    """The table of a file again, with other buffers or as a file around a stream."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_stream(source).read_all()
    options = pa.ipc.IpcWriteOptions(compression=None if way == "file" else way)
    writer = pa.ipc.new_file if way == "file" else pa.ipc.new_stream
    with writer(str(path) + ".new", table.schema, options=options) as sink:
        sink.write_table(table, max_chunksize=draw.choice([1, 3, 1000]))
    shutil.move(str(path) + ".new", path)


def case(draw, folder):
    kind, splits = draw.choice(list(KINDS)), draw.choice(SPLITS)
    shards = draw.choice([1, 1, 2, 5])
    made = {split: KINDS[kind](draw, draw.randint(shards, 12)) for split in splits}
    saved = {split: Dataset(table) for split, table in made.items()}
    if splits == ["test"] or (splits == ["train"] and draw.random() < 0.5):
        saved[splits[0]].save_to_disk(folder, num_shards=shards)
        splits = [""]
    else:
        DatasetDict(saved).save_to_disk(folder, num_shards={split: shards for split in splits})
    way = draw.choice([None, "lz4", "zstd", "file"])
    expected = {split: load_from_disk(Path(folder) / split).to_list() for split in splits}
    if way:
        for path in sorted(Path(folder).rglob("*.arrow")):
            rewritten(path, draw, way)
    return {"kind": kind, "way": way, "rows": expected}


def typed(folder):
    """Names of classes, and JSON within rows, which a table holds as texts."""
    features = Features({"messages": List(Json()), "label": ClassLabel(names=["bad", "good"]), "text": Value("string")})
    calls = [{"function": {"name": "f", "arguments": {"a": [1, None], "b": {"c": 0.5}}}}]
    messages = [{"role": "user", "content": "é"}, {"role": "assistant", "tool_calls": calls}]
    rows = [{"messages": messages, "label": 1, "text": "t"}, {"messages": messages[:1], "label": 0, "text": "u"}]
    Dataset.from_list(rows, features=features).save_to_disk(folder)
    return {"kind": "typed", "way": None, "rows": {"": load_from_disk(folder).to_list()}}


def plain(value):
    return value.decode() if isinstance(value, bytes) else value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--seed", type=int, default=20261129)
    asked = parser.parse_args()
    draw, cases = random.Random(asked.seed), []
    for index in range(asked.count + 1):
        with tempfile.TemporaryDirectory() as folder:
            found = typed(folder) if index == 0 else case(draw, folder)
            paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
            # A byte as a character.
            read = lambda path: path.read_bytes().decode("latin-1")
            found["files"] = {str(path.relative_to(folder)): read(path) for path in paths}
            cases.append(found)
    asked.out.mkdir(exist_ok=True, parents=True)
    text = json.dumps(cases, ensure_ascii=False, separators=(",", ":"), default=plain).encode()
    (asked.out / "cases.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main()
