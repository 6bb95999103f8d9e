"""Records which tokens of conversations transformers and TRL train on: `chat-masks/` beside this file.

    pip install transformers==5.24.0 tokenizers==0.23.3 jinja2==3.1.6
    python3 tests/parity/record_masks.py tests/parity

Templates are as published, and again with the tags by which transformers marks what the assistant says; both write the same.
`tokenizer.json` is trained here on the conversations that are drawn. `cases.json` holds, by template and conversation, the
number of tokens, a hash of their ids, the assistant's tokens by `return_assistant_tokens_mask`, and the first token of TRL's
completion: as its `SFTTrainer` tells it, the tokens behind those of the prompt with the generation prompt.
"""

import gzip
import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CONVERSATIONS = 200
BOS, EOS = "<s>", "</s>"
SPECIAL = [
    BOS, EOS, "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<start_of_turn>", "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
]  # fmt: skip

# Qwen2.5-Instruct, without its branches for functions.
QWEN = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN_TAGGED = QWEN.replace(
    """        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
""",
    """        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if message.role == "assistant" %}
            {%- generation %}
            {{- message.content + '<|im_end|>' }}
            {%- endgeneration %}
        {%- else %}
            {{- message.content + '<|im_end|>' }}
        {%- endif %}
        {{- '\\n' }}
""",
)
# Meta-Llama-3-8B-Instruct.
LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
LLAMA_3_TAGGED = (
    "{% for message in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}{{ '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n' }}{% if message['role'] == 'assistant' %}{% generation %}"
    "{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ message['content'] | trim + "
    "'<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# gemma-2-2b-it.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
GEMMA_TAGGED = GEMMA.replace(
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}",
    "{{ '<start_of_turn>' + role + '\n' }}{% if role == 'model' %}{% generation %}{{ message['content'] | trim + "
    "'<end_of_turn>' }}{% endgeneration %}{% else %}{{ message['content'] | trim + '<end_of_turn>' }}{% endif %}{{ '\n' }}",
)
# Phi-3-mini-4k-instruct.
PHI_3 = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
PHI_3_TAGGED = PHI_3.replace(
    "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}",
    "{{'<|assistant|>\n'}}{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}{{ '\n' }}",
)
# Llama-2-7b-chat.
LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
    "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA_2_TAGGED = LLAMA_2.replace(
    "{{ ' '  + content.strip() + ' ' + eos_token }}",
    "{% generation %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endgeneration %}",
)
# zephyr-7b-beta.
ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
ZEPHYR_TAGGED = ZEPHYR.replace(
    "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n",
    "{{ '<|assistant|>\n' }}{% generation %}\n{{ message['content'] + eos_token }}{% endgeneration %}\n\n",
)
TEMPLATES = {
    "qwen2.5": (QWEN, QWEN_TAGGED),
    "llama-3": (LLAMA_3, LLAMA_3_TAGGED),
    "gemma-2": (GEMMA, GEMMA_TAGGED),
    "phi-3": (PHI_3, PHI_3_TAGGED),
    "llama-2": (LLAMA_2, LLAMA_2_TAGGED),
    "zephyr": (ZEPHYR, ZEPHYR_TAGGED),
}
WITHOUT_SYSTEM = {"gemma-2"}
WORDS = (
    "the a model answers question about train loss token gradient batch hello yes no why because seven 42 3.14 naïve "
    "façade 你好 世界 привет мир 🙂 👩‍🚀 e.g. don't it's \"quoted\" (aside) [INST] x=1; def f(x): return x\n\n- item\n## Title "
    "<b> & | ~ \\n {{ braces }} {% tags %}"
).split(" ")


def draw(random):
    def text(most):
        words = random.choices(WORDS, k=random.randint(1, most))
        return random.choice([" ", " ", "\n", ", "]).join(words).strip() or "ok"

    messages = [{"role": "system", "content": text(12)}] if random.random() < 0.4 else []
    for _ in range(random.choice([1, 1, 1, 2, 3, 5])):
        messages.append({"role": "user", "content": text(30)})
        messages.append({"role": "assistant", "content": text(40)})
    return messages


def trained_tokenizer(conversations):
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    inner.train_from_iterator((m["content"] for messages in conversations for m in messages), trainer)
    inner.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=BOS, eos_token=EOS)


def hashed(ids):
    """FNV-1a over the ids as 32-bit little-endian."""
    value = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def runs(mask):
    """First tokens and ends of what is 1."""
    edges, before = [], 0
    for place, now in enumerate([*mask, 0]):
        if now != before:
            edges.append(place)
        before = now
    return edges


def record(tokenizer, name, messages):
    published, tagged = TEMPLATES[name]
    write = lambda template, **more: tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, **more
    )
    assert write(published) == write(tagged), name
    both = tokenizer.apply_chat_template(
        messages, chat_template=tagged, return_dict=True, return_assistant_tokens_mask=True
    )
    ids = both["input_ids"]
    prompt = tokenizer.apply_chat_template(
        messages[:-1], chat_template=published, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    # TRL warns where this doesn't hold, as its mask is then off.
    if ids[: len(prompt)] != prompt:
        return None
    return [len(ids), hashed(ids), runs(both["assistant_masks"]), len(prompt)]


def main(folder):
    out = Path(folder) / "chat-masks"
    out.mkdir(exist_ok=True)
    source = random.Random(20261125)
    conversations = [draw(source) for _ in range(CONVERSATIONS)]
    tokenizer = trained_tokenizer(conversations)
    cases, skipped = {name: [] for name in TEMPLATES}, 0
    for messages in conversations:
        for name in TEMPLATES:
            given = messages[1:] if name in WITHOUT_SYSTEM and messages[0]["role"] == "system" else messages
            case = record(tokenizer, name, given)
            skipped += case is None
            cases[name].append(case)
    print(f"{skipped} of {len(TEMPLATES) * CONVERSATIONS} left out, as the prompt's tokens aren't those of the whole", file=sys.stderr)
    templates = {name: {"published": texts[0], "tagged": texts[1]} for name, texts in TEMPLATES.items()}
    value = {"templates": templates, "conversations": conversations, "cases": cases}
    (out / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str() + "\n")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    (out / "cases.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
