"""Records what transformers writes beside the weights of a model, `round-trip` beside this file: a tokenizer of words with special tokens and a chat
template, and defaults of generation. Tests put it beside the cases of each family.

    pip install transformers==5.24.0 tokenizers==0.23.3
    python3 tests/parity/record_round_trip.py tests/parity/round-trip
"""

import shutil
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

SPECIAL = ["<unk>", "<s>", "</s>", "<|turn|>", "<|pad|>"]
WORDS = "the a film was good bad very not day . user assistant".split()
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|turn|> {{ message['role'] }} {{ message['content'] }} {{ eos_token }} {% endfor %}"
    "{% if add_generation_prompt %}<|turn|> assistant {% endif %}"
)


def main():
    root = Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    inner = Tokenizer(models.WordLevel({word: at for at, word in enumerate(SPECIAL + WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<|pad|>",
        extra_special_tokens=["<|turn|>"], model_max_length=22, padding_side="left", chat_template=TEMPLATE,
    )  # fmt: skip
    tokenizer.save_pretrained(root)
    generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_new_tokens": 64}
    GenerationConfig(bos_token_id=1, eos_token_id=[2, 3], pad_token_id=4, **generation).save_pretrained(root)


if __name__ == "__main__":
    main()
