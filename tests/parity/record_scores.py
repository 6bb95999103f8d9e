"""Records what lm-evaluation-harness and transformers make of a small model: `scores/scores.json` beside this file, with the questions
and texts that were scored, and the weights again as `torch.save` writes them.

    pip install torch==2.15.0 transformers==5.24.0 lm-eval==0.4.13
    python3 tests/parity/record_scores.py tests/parity/scores

`scores/model` was made with the built-in text as `book.txt`:

    tightrope tokenizer train book.txt --vocab 384 --out tokenizer
    tightrope train --family llama --layers 2 --channels 32 --heads 4 --kv-heads 2 --hidden 64 --context 48 --data book.txt \
        --tokenizer tokenizer/tokenizer.json --steps 1500 --batch 16 --lr 5e-3 --device cpu --out run
    tightrope export run scores/model --precision bf16

Everything is scored twice: as it is, and with a tokenizer that adds a token where a text begins.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.hellaswag.utils import process_docs

STRIDES = [1, 7, 16, 47]

# Written for this file, in the words that the model has seen, and some that it hasn't.
HELLASWAG = [
    ("Fencing", "The king draws his sword.", "the duke", ["falls to the ground.", "sings a song to the moon", "is bread."], 0),
    ("How to be a king", "[header] How to be a king [title] Get a crown. [step] Ask  your father.", "THEN YOU", ["wear it.", "eat the crown [substeps] with salt.", "sleep", "run  away  now"], 0),
    ("Baking", "A woman mixes flour with water.", "", ["she bakes a loaf.", "she throws the oven out of the window.", "the flour sings."], 0),
    ("Death", "The prince lies on the floor.", "his friend", ["weeps for him.", "laughs at the wall", "orders a coffee"], 0),
    ("Naïve café", "Une école — naïvement — déjà vu.", "ÉCOLE Ouverte", ["le thé 日本.", "the tea", "日本語"], 1),
    ("Sailing", "[ unclosed bracket stays. The ship leaves the harbour at dawn, and the sailors wave to their wives, who weep and pray for them on the shore.", "the captain", ["looks to the west.", "eats his own hat with the feathers on."], 0),
    ("War", "The soldiers march to the gates of the city, and the citizens speak of peace, of war, of the gods, of bread and of the price of corn, while the tribune speaks to them.", "he", ["speaks.", "is silent", "cries aloud"], 2),
    ("Love", "O Romeo, Romeo.", "wherefore", ["art thou Romeo?", "is the bus late?", "do they dig?"], 0),
    ("Law", "The judge reads the law.", "the thief", ["begs for mercy", "begs for  mercy", "begs [loudly] for mercy"], 1),
    ("Rain", "It rains.", "people", ["run home.", "run."], 1),
]
ARC = [
    ("What do plants need?", ["Light", "Gold", "Wars"], ["A", "B", "C"], "A"),
    ("Which of these is a king?", ["Richard", "A stone", "The sea", "Bread"], ["1", "2", "3", "4"], "1"),
    ("Water at 0 °C is", ["ice", "steam", "a very fine kind of dry sand"], ["A", "B", "C"], "A"),
    ("The sun rises in the", ["east.", "west."], ["A", "B"], "A"),
    ("A body at rest, on which no force acts, while the others around it move to and fro under forces of many kinds, some small and some large, will", ["stay at rest", "speak", "fly up to heaven"], ["A", "B", "C"], "A"),
    ("Who says “To be”?", ["Hamlet", "Macbeth", "Romeo"], ["A", "B", "C"], "B"),
    ("2 + 2 =", ["4", "5"], ["A", "B"], "B"),
]
TEXTS = [
    "KING RICHARD:\nWhat news, my lord? The queen is come to speak with thee, and all the city weeps.\n\nGLOUCESTER:\nLet them weep.  I am a man of war,\tand not of tears.\n",
    "x",
    "Measured in bytes, “naïve” — 日本 — costs more than its letters say; a model of bytes sees each of them.",
    " begins with a space and is long enough for several windows, so that the last of them is shorter than the context, as are the windows of texts that end where they please and not where it suits whoever scores them. And so on, and on, and on.",
]
MARK = "<|endoftext|>"
POST_PROCESSOR = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": MARK, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {MARK: {"id": MARK, "ids": [0], "tokens": [MARK]}},
}


def lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def task(name, path, kind, **own):
    return {
        "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"validation": str(path)}},
        "validation_split": "validation", "output_type": kind,
    } | own  # fmt: skip


def accuracy(*names):
    return [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in names]


def choices(model, config):
    found = lm_eval.simple_evaluate(model, tasks=[config], log_samples=True, bootstrap_iters=1)
    samples = sorted(found["samples"][config["task"]], key=lambda sample: sample["doc_id"])
    metrics = {name.split(",")[0]: value for name, value in found["results"][config["task"]].items()}
    return {
        "log_likelihoods": [[float(one[0]) for (one,) in sample["resps"]] for sample in samples],
        **{name: metrics[name] for name in ["acc", "acc_norm", "acc_bytes"]},
        **{name: metrics[name] for name in ["acc_stderr", "acc_norm_stderr", "acc_bytes_stderr"] if name in metrics},
    }


def strided(model, tokenizer, text, context, stride):
    """As https://huggingface.co/docs/transformers/perplexity, over windows of the tokens that are read and the one behind them."""
    ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer.encode(text)]])
    total, before = 0.0, 1
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + context + 1, ids.shape[1])
        window = ids[:, begin:end]
        new = end - before
        if new > 0:
            with torch.no_grad():
                logits = model(window).logits[0, :-1].log_softmax(-1)
            total += logits.gather(1, window[0, 1:, None])[-new:].sum().item()
        before = end
        if end == ids.shape[1]:
            break
    return total


def record(folder, root):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inner = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model = HFLM(inner, tokenizer=tokenizer, batch_size=4, device="cpu")
    both = accuracy("acc", "acc_norm", "acc_bytes")
    hellaswag = task("hs", root / "hellaswag.jsonl", "multiple_choice", process_docs=process_docs, doc_to_text="{{query}}",
                     doc_to_target="{{label}}", doc_to_choice="choices", metric_list=both)  # fmt: skip
    arc = task("arc", root / "arc.jsonl", "multiple_choice", doc_to_text="Question: {{question}}\nAnswer:",
               doc_to_target="{{choices.label.index(answerKey)}}", doc_to_choice="{{choices.text}}", metric_list=both)  # fmt: skip
    texts = task("texts", root / "texts.jsonl", "loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
                 metric_list=[{"metric": name} for name in ["word_perplexity", "byte_perplexity", "bits_per_byte"]])  # fmt: skip
    found = lm_eval.simple_evaluate(model, tasks=[texts], log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"]["texts"], key=lambda sample: sample["doc_id"])
    rolling = {name.split(",")[0]: value for name, value in found["results"]["texts"].items() if "perplexity" in name or "bits" in name}
    return {
        "hellaswag": choices(model, hellaswag),
        "arc": choices(model, arc),
        "texts": {
            "log_likelihoods": [float(sample["resps"][0][0]) for sample in samples],
            **{name: value for name, value in rolling.items() if "stderr" not in name},
            "strided": {str(n): [strided(inner, tokenizer, text, model.max_length, n) for text in TEXTS] for n in STRIDES},
        },
    }


def main():
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    stored = transformers.AutoModelForCausalLM.from_pretrained(root / "model", dtype=torch.bfloat16)
    torch.save(stored.state_dict(), root / "pytorch_model.bin")
    lines(root / "hellaswag.jsonl", ({"activity_label": a, "ctx_a": b, "ctx_b": c, "ctx": f"{b} {c}", "endings": d, "label": str(e)} for a, b, c, d, e in HELLASWAG))
    lines(root / "arc.jsonl", ({"question": a, "choices": {"text": b, "label": c}, "answerKey": d} for a, b, c, d in ARC))
    lines(root / "texts.jsonl", ({"text": text} for text in TEXTS))
    with tempfile.TemporaryDirectory() as folder:
        marked = Path(folder) / "model"
        shutil.copytree(root / "model", marked)
        tokenizer = json.loads((marked / "tokenizer.json").read_text(encoding="utf-8"))
        (marked / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": POST_PROCESSOR}), encoding="utf-8")
        found = {"plain": record(root / "model", root), "marked": record(marked, root), "post_processor": POST_PROCESSOR}
    found["versions"] = {it.__name__: it.__version__ for it in [lm_eval, torch, transformers]}
    (root / "scores.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


main()
