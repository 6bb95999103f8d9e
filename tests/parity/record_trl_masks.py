"""Records which tokens of conversations TRL trains on: `chat-masks/trl.json.gz` beside this file.

    pip install trl==1.16.0 transformers==5.24.0 tokenizers==0.23.3 jinja2==3.1.6
    python3 tests/parity/record_trl_masks.py tests/parity/chat-masks

Conversations and tokenizer are those of `record_masks.py`; by a rule, some of the assistant's turns begin with thoughts. By published
template and conversation there are, each with the number of tokens and a hash of their ids:

- the assistant's tokens of `assistant_only_loss=True`. A training template of TRL (`get_training_chat_template`), if it has one,
  writes the row, as its `SFTTrainer` does. By a template that TRL refuses, each turn is a completion of its own: the tokens
  behind those that it shares with its prompt.
- the first token of the completion of the last turn, by `common_prefix_length`, as the `SFTTrainer` tells it of a prompt and a completion.

Last messages are also cut in two, often within a token, as plain prompts and completions, by this tokenizer and by one that puts tokens around
texts: the place of the cut, the number of tokens and a hash of their ids, the first token of the completion, and whether TRL warns of
the prompt's end.
"""

import gzip
import json
import random
import sys
from pathlib import Path

import trl.chat_template_utils as trl
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast
from trl.data_utils import common_prefix_length

from record_masks import BOS, EOS, hashed, runs

FOLDER = Path(trl.__file__).parent / "chat_templates"
TEMPLATES = {
    name: (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    for name in ["llama3", "llama3_2", "qwen2_5", "qwen3", "qwen3_instruct_2507", "gemma3", "phi3_5"]
}
# SmolLM2-1.7B-Instruct.
TEMPLATES["smollm2"] = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a "
    "helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] "
    "+ '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}"
)
DATE = "26 Nov 2026"


def thinking(messages, index):
    """A third of the assistant's turns with thoughts: what was asked."""
    turns = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and (index + place) % 3 == 0:
            thought = messages[place - 1]["content"]
            message = {"role": "assistant", "content": f"<think>\n{thought}\n</think>\n\n{message['content']}"}
        turns.append(message)
    return turns


def turns(tokenizer, messages):
    """Edges of the assistant's turns, each as a completion."""
    whole = tokenizer.apply_chat_template(messages, date_string=DATE, return_dict=True)["input_ids"]
    edges = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            ids = lambda count, **more: tokenizer.apply_chat_template(
                messages[:count], date_string=DATE, return_dict=True, **more
            )["input_ids"]
            end = len(ids(place + 1))
            assert ids(place + 1) == whole[:end]
            edges += [common_prefix_length(ids(place, add_generation_prompt=True), whole), end]
    return whole, edges


def record(tokenizer, name, messages):
    tokenizer.chat_template = TEMPLATES[name]
    try:
        training = trl.get_training_chat_template(tokenizer)
    except ValueError:
        ids, edges = turns(tokenizer, messages)
    else:
        both = tokenizer.apply_chat_template(
            messages, chat_template=training, return_dict=True, return_assistant_tokens_mask=True
        )
        ids, edges = both["input_ids"], runs(both["assistant_masks"])
    prompt = tokenizer.apply_chat_template(
        messages[:-1], date_string=DATE, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    whole = tokenizer.apply_chat_template(messages, date_string=DATE, return_dict=True)["input_ids"]
    return [len(ids), hashed(ids), edges, len(whole), hashed(whole), common_prefix_length(prompt, whole)]


def plain(tokenizer, around, text, cut):
    prompt, completion = text[:cut], text[cut:]
    if not completion.endswith(EOS):
        completion += EOS
    prompt_ids, whole = (tokenizer(text)["input_ids"] for text in (prompt, prompt + completion))
    first = common_prefix_length(prompt_ids, whole)
    # The token behind the prompt isn't the prompt's.
    return [cut, len(whole), hashed(whole), first, first < len(prompt_ids) - around]


def prompts(file, around, drawn):
    inner = Tokenizer.from_file(str(file))
    if around:
        special = [(token, inner.token_to_id(token)) for token in (BOS, EOS)]
        inner.post_processor = processors.TemplateProcessing(f"{BOS} $A {EOS}", special_tokens=special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=BOS, eos_token=EOS)
    draw, cases = random.Random(7), []
    for messages in drawn[:120]:
        text = messages[-1]["content"]
        cases.append(plain(tokenizer, around, text, draw.randint(0, len(text))))
    return cases


def main(folder):
    folder = Path(folder)
    drawn = json.loads(gzip.decompress((folder / "cases.json.gz").read_bytes()))["conversations"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token=BOS, eos_token=EOS)
    cases = {
        name: [record(tokenizer, name, thinking(messages, index)) for index, messages in enumerate(drawn)]
        for name in TEMPLATES
    }
    cuts = [prompts(folder / "tokenizer.json", around, drawn) for around in (False, True)]
    value = {"templates": TEMPLATES, "cases": cases, "prompts": cuts}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    (folder / "trl.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
