"""Types of keyword arguments. Made from the list of settings, engine/src/settings/list.rs: don't edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias, TypedDict

import numpy as np

#: A whole number.
Whole: TypeAlias = "int | np.integer[Any]"

#: A number.
Number: TypeAlias = "float | np.floating[Any] | np.integer[Any]"

#: A file or a folder.
File: TypeAlias = "str | PathLike[str]"


class KeywordsButInit(TypedDict, total=False):
    """Keyword arguments of settings, but for ``init``, which :class:`tightrope.Trainer` takes in more forms."""

    settings: Mapping[str, Any] | None
    """Settings by their keys, such as ``{"train.beta2": 0.99}``."""

    preset: str | None
    """Known model that gives every size left unset [default: a small GPT]."""

    family: str | None
    """Architecture [default: the preset's or that of init]."""

    layers: Whole | None
    """Transformer blocks [default: the preset's or that of init]."""

    channels: Whole | None
    """Width of the residual stream [default: the preset's or that of init]."""

    heads: Whole | None
    """Attention heads; divides channels [default: the preset's or that of init]."""

    kv_heads: Whole | None
    """Key and value heads; divides heads [default: as many as heads]."""

    hidden: Whole | None
    """Inner width of the feed-forward layer [default: the preset's or that of init]."""

    context: Whole | None
    """Longest sequence [default: the preset's or that of init]."""

    vocab: Whole | None
    """Vocabulary [default: the tokenizer's]."""

    image_size: Whole | str | None
    """Pixels of an image along each side, or HEIGHTxWIDTH [default: the preset's, that of init, or the data's]."""

    patch_size: Whole | str | None
    """Pixels of a patch along each side, or HEIGHTxWIDTH; divides image_size [default: the preset's or that of init]."""

    add_tokens: bool | None
    """Add a row to the embedding of init, and to its head, for each token of the tokenizer past the last one [default: false]."""

    batch: Whole | None
    """Sequences or images per optimizer step [default: the preset's]."""

    micro_batch: Whole | str | None
    """Sequences or images per pass; divides batch [default: auto]."""

    gradient_sums: str | None
    """How gradients of several micro-batches are summed: fused, where they are made; or ordered, each made whole first, so that any number of ranks has the same bits [default: fused]."""

    steps: Whole | None
    """Optimizer steps [default: 1850, or what epochs come to]."""

    epochs: Number | None
    """Passes over the data, or a part of one, in place of steps [default: 3 over rows, labelled texts and images of one's own, without steps]."""

    patience: Whole | None
    """Evaluations in a row without a lower held-out loss that end the run; 0 is no end [default: 0]."""

    optimizer: str | None
    """Update rule [default: adamw]."""

    lr: Number | None
    """Peak learning rate [default: by the width; from init 2e-5, 1e-6 on preferences, 5e-5 for encoders; ten times as much for adapters]."""

    min_lr: Number | None
    """Learning rate that the schedule ends at [default: a tenth of lr]."""

    warmup: Whole | None
    """Steps until the learning rate reaches lr [default: a twentieth of steps]."""

    schedule: str | None
    """Learning rate after the warmup [default: cosine]."""

    weight_decay: Number | None
    """Decay of matrices: decoupled, but for SGD, which adds it to the gradient [default: 0.1]."""

    clip: Number | None
    """Largest gradient norm; 0 is no clipping [default: 1.0]."""

    dpo_beta: Number | None
    """How far direct preference optimization holds the model to its reference, where rows are preferences: a smaller one lets it move farther [default: 0.1]."""

    teacher: File | None
    """Hugging Face directory or checkpoint of a language model with the same tokenizer that the model learns of, by distillation [default: no teacher]."""

    teacher_temperature: Number | None
    """What the logits of model and teacher are divided by [default: 2.0]."""

    soft_share: Number | None
    """Share of the teacher's soft targets in the loss: 1 is without the data's own [default: 0.5]."""

    neftune: Number | None
    """Noise on embeddings while training, uniform within neftune/√(tokens · channels) of 0 (NEFTune); 0 is none [default: 0.0]."""

    seed: Whole | None
    """Seed of weights, dropout, data order and samples [default: 1337]."""

    lora_rank: Whole | None
    """Rank of adapters that are trained on frozen weights; 0 trains all weights [default: 0]."""

    lora_alpha: Number | None
    """Adapters are scaled by alpha/rank, or by alpha/√rank with rslora [default: twice the rank]."""

    lora_init: File | None
    """PEFT directory of adapters to start from, with their rank, alpha and targets [default: new adapters]."""

    memory: Whole | str | None
    """Memory that the plan may use, such as 2GiB [default: what the device has free]."""

    plan: File | None
    """Plan to use as it is, such as a run's plan.json [default: the fastest that fits]."""

    recompute: str | Sequence[str] | None
    """Activations to recompute in the backward pass: auto, none, block, every:N, sqrt, or all but a list of tensors [default: auto]."""

    loss_chunk: Whole | str | None
    """Rows of logits at once: a number, auto or none [default: auto]."""

    attention: str | None
    """How attention is computed: fused, which stores no scores; or eager, which stores all of them, to see what that takes [default: fused]."""

    gradients: str | None
    """Storage of gradients of matrices: f32, bf16, or bf16-kahan, which keeps the rounding error of their sums over several passes beside them [default: f32]."""

    master: str | None
    """Master of bf16 weights: f32, in 16 bits more; or none, and updates round weights stochastically [default: f32]."""

    offload: str | Sequence[str] | None
    """What the host keeps for a GPU: optimizer (its state and the update), gradients, activations, weights [default: none]."""

    shard: Whole | str | None
    """What each of several ranks holds a shard of: 0 nothing; 1 optimizer state and masters; 2 gradients too; 3 weights too; or auto, the fastest that fits [default: auto]."""

    data: File | Sequence[File] | None
    """Files of text, JSON, Parquet or token ids, .gz and .zst too, folders or globs of them; - is standard input; or images: a folder, two IDX files or the word digits; none is the built-in data [default: none]."""

    tokenizer: str | None
    """Tokenizer: byte, gpt2, or a tokenizer.json [default: the one that fits the model]."""

    text_key: str | None
    """Field or column that holds the text in .jsonl, .json, .csv and .parquet files [default: text]."""

    format: str | None
    """What a row of .jsonl, .json, .csv and .parquet files holds [default: auto: told from the columns]."""

    chat_template: str | None
    """Chat template that writes conversations: chatml, llama-2, llama-3, gemma, phi-3, mistral, alpaca, zephyr, one of the model's by name, or a file [default: the model's own]."""

    train_on: str | None
    """Tokens of a conversation that are trained on: assistant (its turns), last (its last turn) or all [default: assistant]."""

    packing: bool | None
    """Put several conversations into a sequence, each of which attends to itself alone [default: false]."""

    buckets: Whole | str | None
    """Put rows of like length into a batch, and pad it to one of so many lengths: a number, or auto, which chooses them by the rows [default: auto, and one length with packing]."""

    validation: File | Sequence[File] | None
    """Files that the run is evaluated on, of the same kinds as --data, instead of a part of that [default: none]."""

    out: File | None
    """Run directory [default: a new one under runs/]."""

    device: str | None
    """auto, cpu, wgpu, cuda, or wgpu:N and cuda:N [default: auto]."""

    precision: str | None
    """Storage of weights and activations; tf32 is f32 with less exact matmuls [default: f32]."""

    threads: Whole | None
    """CPU threads [default: one on every core; ranks share a machine's]."""

    ranks: Whole | None
    """Processes that train together, each on its part of every batch; mpirun and others that launch them say how many [default: 1]."""

    context_ranks: Whole | None
    """Neighbouring ranks that share each sequence, where it's too long for one; divides ranks and the context [default: 1]."""

    interconnect: str | None
    """What connects the GPUs of ranks, for estimates: nvlink, pcie4, 100gbe, …, or 8xnvlink4+400gbe for nodes of 8 GPUs; auto is what the GPU has by its data sheet [default: auto]."""

    rank_timeout: Whole | None
    """Seconds that a rank waits for one that says nothing before it names it and ends; 0 waits for ever [default: 60]."""

    insecure_ranks: bool | None
    """Let ranks that meet by TCP without TIGHTROPE_SECRET do so elsewhere than on this machine: whoever reaches them can join [default: false]."""

    log_every: Whole | None
    """Steps between logged losses [default: 10]."""

    eval_every: Whole | None
    """Steps between evaluations; 0 is only at the end [default: 250]."""

    sample_every: Whole | None
    """Steps between samples; 0 is only at the end [default: 0]."""

    save_every: Whole | None
    """Steps between checkpoints; 0 is only at the end [default: 500]."""

    keep: Whole | None
    """Newest checkpoints that stay [default: 2]."""

    keep_best: bool | None
    """Save the step with the lowest held-out loss when it's evaluated, and keep that checkpoint beside the newest ones [default: false]."""

    detect_anomaly: bool | None
    """Name the op whose output isn't finite of each step that f16 skips; a run that ends for it names it anyway [default: false]."""


class Keywords(KeywordsButInit, total=False):
    """Keyword arguments of settings."""

    init: File | None
    """Hugging Face directory or checkpoint to start from [default: random weights]."""
