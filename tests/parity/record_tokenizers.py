"""Records token ids of odd texts by transformers, for ten tokenizers of different kinds: `tokenizers/cases.json.gz` beside this file.

    pip install transformers==5.24.0 tokenizers==0.23.3
    python3 tests/parity/record_tokenizers.py tests/parity/tokenizers

Keys that versions 4 and 5 of transformers take otherwise aren't among them: `add_bos_token` beside a `tokenizer.json`, which version 5 leaves out, and
`additional_special_tokens` of a `special_tokens_map.json`. `--seed 7` draws others. Each tokenizer is trained here, small, and has special and added tokens in some of the places that name
them: `tokenizer.json`, `added_tokens_decoder` and named tokens of `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`.
A case has the files of a tokenizer, and of each text a hash of its ids without and of those with the tokens around a text.
"""

import argparse
import gzip
import json
import random
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from record_masks import hashed

N, P = normalizers, pre_tokenizers
CORPUS = (
    "the quick brown fox jumps over the lazy dog and it's not the end of the world. naïve façade café déjà vu 你好世界 привет мир "
    "Привет 日本語 한국어 12345 3.14 foo_bar(x) == y; return x + 1 Hello HELLO hello e.g. don't we'll they've THE END token tokens "
).split(" ") * 3
PIECES = [
    "the", " world", "Hello", "HELLO", "naïve", "nai\u0308ve", "ﬁne", "Ⅷ", "１２", "你好", "世界", "日本語", "한국어", "\u1112\u1161\u11ab", "привет",
    "🙂", "👩‍🚀", "🏳️‍🌈", "e\u0301\u0301", "\u00a0", "\u3000", "\u200b", "\u200d", "\ufeff", "\u2028", "\u00ad", "\ufffd", "\u202eabc", "\x00", "\x7f", "\x1b[0m",
    " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n\n", "12345", "3.14", "1,000", "foo_bar(x)", "==", "don't", "I'LL", "…", "—", "'", '"', "▁", "▁▁the", "##ing",
    "</w>", "Ġ", "<0x41>", "<s>", "</s>", "[CLS]", "[MASK]", "[mask]", "<|end|>", "<|END|>", "<extra>", " <extra> ", "<left> ", " <left>", "<right>  x",
    "Word", "word", "Wordy", "xWord", "aaaaaaaaaaaaaaaaaaaa", "ab" * 40, "\ue000", "\U0010ffff", "ǅ", "ß", "İ", "Σς", "a\u0327", "\u0915\u094d\u0937",
]  # fmt: skip


def odd(draw):
    kind = draw.random()
    if kind < 0.02:
        return ""
    if kind < 0.15:
        return draw.choice(PIECES)
    joiner = draw.choice(["", "", " ", "  "])
    return joiner.join(draw.choice(PIECES + CORPUS[:40]) for _ in range(draw.randint(2, 9)))


def bpe(size=330, **more):
    return Tokenizer(models.BPE(**more)), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=P.ByteLevel.alphabet(), special_tokens=["<s>", "</s>", "<unk>"]
    )


def around(inner, begin, end):
    special = [(token, inner.token_to_id(token)) for token in (begin, end)]
    return processors.TemplateProcessing(f"{begin} $A {end}", f"{begin} $A {end} $B:1 {end}:1", special)


def trained(inner, trainer):
    inner.train_from_iterator(CORPUS, trainer)
    return inner


def gpt2():
    inner, trainer = bpe()
    inner.pre_tokenizer, inner.decoder = P.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    trained(inner, trainer).add_special_tokens(["<|end|>"])
    return inner, {"tokenizer_config.json": {"eos_token": "<|end|>", "unk_token": "<|end|>"}}


def llama3():
    inner, trainer = bpe(size=350, ignore_merges=True)
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    inner.pre_tokenizer = P.Sequence([P.Split(Regex(words), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    trained(inner, trainer)
    inner.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), around(inner, "<s>", "</s>")])
    size = inner.get_vocab_size()
    listed = {size: {"content": "<extra>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False, "special": True},
              size + 1: {"content": "Word", "lstrip": False, "rstrip": False, "normalized": True, "single_word": True, "special": False}}  # fmt: skip
    return inner, {"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "added_tokens_decoder": listed}}


def llama2():
    inner = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    inner.normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=["<unk>", "<s>", "</s>", *bytes_])
    trained(inner, trainer)
    # The bytes are pieces, and no added tokens.
    value = json.loads(inner.to_str())
    value["added_tokens"] = [token for token in value["added_tokens"] if token["content"] not in bytes_]
    inner = Tokenizer.from_str(json.dumps(value))
    inner.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", inner.token_to_id("<s>"))])
    size = inner.get_vocab_size()
    return inner, {
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        "added_tokens.json": {"<|end|>": size, "<right>": size + 1, "Word": size + 2},
    }  # fmt: skip


def t5():
    inner = Tokenizer(models.Unigram())
    inner.normalizer = N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")])
    inner.pre_tokenizer = P.Metaspace(replacement="▁", prepend_scheme="always")
    trained(inner, trainers.UnigramTrainer(vocab_size=160, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    inner.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    named = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "extra_special_tokens": ["<extra>", "<left>"]}
    return inner, {"tokenizer_config.json": named}


def bert(lower):
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    inner.normalizer = N.BertNormalizer(lowercase=lower, handle_chinese_chars=lower, strip_accents=None if lower else True)
    inner.pre_tokenizer = P.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained(inner, trainers.WordPieceTrainer(vocab_size=200, show_progress=False, special_tokens=special))
    inner.post_processor = around(inner, "[CLS]", "[SEP]")
    named = {name: token for name, token in zip(["pad_token", "unk_token", "cls_token", "sep_token"], special)}
    named["mask_token"] = {"__type": "AddedToken", "content": "[MASK]", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    if lower:
        inner.enable_padding(length=16)
        inner.enable_truncation(8)
        return inner, {"tokenizer_config.json": named}
    inner.add_tokens([AddedToken("Word", normalized=True), AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True, normalized=False)])
    return inner, {"special_tokens_map.json": named}


def words():
    inner = Tokenizer(models.WordLevel(unk_token="<unk>"))
    inner.normalizer = N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip()])
    inner.pre_tokenizer = P.Sequence([P.Whitespace(), P.Digits(individual_digits=True)])
    trained(inner, trainers.WordLevelTrainer(vocab_size=120, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"]))
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), add_prefix_space=False)
    return inner, {"tokenizer_config.json": {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}}


def clip():
    inner = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    inner.normalizer = N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()])
    inner.pre_tokenizer = P.Split(Regex(r"<s>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    trainer = trainers.BpeTrainer(vocab_size=220, show_progress=False, end_of_word_suffix="</w>", special_tokens=["<s>", "</s>", "<unk>"])
    trained(inner, trainer)
    inner.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    inner.add_tokens([AddedToken("Word", single_word=True, normalized=True)])
    return inner, {"tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}}


def scripts():
    inner = Tokenizer(models.Unigram())
    inner.normalizer = N.Sequence([N.NFKD(), N.Strip(left=False, right=True), N.Replace("…", "...")])
    inner.pre_tokenizer = P.Sequence([P.UnicodeScripts(), P.Punctuation("merged_with_previous"), P.Metaspace(prepend_scheme="first")])
    trained(inner, trainers.UnigramTrainer(vocab_size=150, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>"))
    size = inner.get_vocab_size()
    listed = {size: {"content": "<left>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": False},
              size + 1: {"content": "<|end|>", "lstrip": False, "rstrip": False, "normalized": True, "single_word": False, "special": True}}  # fmt: skip
    return inner, {"tokenizer_config.json": {"eos_token": "<|end|>", "unk_token": "<unk>", "added_tokens_decoder": listed}}


def qwen():
    inner, trainer = bpe(size=340)
    inner.normalizer = N.NFC()
    inner.pre_tokenizer = P.Sequence([P.Split(Regex(r"\p{N}|[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"), "isolated"),
                                      P.ByteLevel(add_prefix_space=False, use_regex=False)])  # fmt: skip
    trained(inner, trainer)
    named = {"bos_token": "<s>", "eos_token": "<|end|>", "pad_token": "<extra>"}
    return inner, {"tokenizer_config.json": named, "added_tokens.json": {"Word": inner.get_vocab_size() + 2}}


KINDS = {"gpt2": gpt2, "llama3": llama3, "llama2": llama2, "t5": t5, "bert": lambda: bert(True), "bert-cased": lambda: bert(False),
         "words": words, "clip": clip, "scripts": scripts, "qwen": qwen}  # fmt: skip


def record(make, texts):
    inner, beside = make()
    with tempfile.TemporaryDirectory() as folder:
        files = {"tokenizer.json": json.loads(inner.to_str()), "tokenizer_config.json": {}, **beside}
        for name, value in files.items():
            value = {"tokenizer_class": "PreTrainedTokenizerFast", **value} if name == "tokenizer_config.json" else value
            (Path(folder) / name).write_text(json.dumps(value, ensure_ascii=False))
        loaded = PreTrainedTokenizerFast.from_pretrained(folder)
        files = {path.name: path.read_text() for path in Path(folder).iterdir()}
    # The first 24 bits of each hash.
    ids = lambda special: [hashed(ids)[:6] for ids in loaded(texts, add_special_tokens=special)["input_ids"]]
    return {"files": files, "plain": "".join(ids(False)), "around": "".join(ids(True))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=20261129)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    texts = [odd(draw) for _ in range(asked.texts)]
    value = {"texts": texts, "cases": {name: record(make, texts) for name, make in KINDS.items()}}
    asked.out.mkdir(exist_ok=True, parents=True)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    (asked.out / "cases.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main()
