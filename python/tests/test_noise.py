"""Noise on embeddings (NEFTune), held against transformers' models with the same noise where its hook adds it."""

import numpy as np
import pytest

import tightrope as tr

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ALPHA, BATCH, TOKENS, CHANNELS, LETTER = 20.0, 2, 8, 32, 97

SIZES = dict(vocab_size=256, hidden_size=CHANNELS, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
DECODER = dict(SIZES, num_key_value_heads=2, head_dim=8, max_position_embeddings=TOKENS)
NONE = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
CONFIGURATIONS = {
    "GPT2": dict(
        vocab_size=256, n_embd=CHANNELS, n_layer=2, n_head=4, n_positions=TOKENS, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
    "Llama": dict(DECODER, tie_word_embeddings=False),
    "Gemma2": dict(DECODER, query_pre_attn_scalar=8, sliding_window=TOKENS),
    "Gemma3Text": dict(DECODER, query_pre_attn_scalar=8, sliding_window=TOKENS),
}


@pytest.mark.parametrize("family", CONFIGURATIONS)
def test_loss_and_gradients_are_those_of_the_noised_model(family, tmp_path):
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**CONFIGURATIONS[family], **NONE)
    model = getattr(transformers, "Gemma3ForCausalLM" if family == "Gemma3Text" else f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")(config).eval()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(chr(LETTER) * 4000)
    settings = tr.Settings(
        init=tmp_path / "model", data=tmp_path / "text.txt", tokenizer="byte", context=TOKENS, batch=BATCH, micro_batch=BATCH,
        steps=2, optimizer="sgd", clip=0, weight_decay=0, lr=0.1, device="cpu", threads=1,
    )  # fmt: skip
    last = "transformer.h.1.mlp.c_fc.weight" if family == "GPT2" else "model.layers.1.mlp.up_proj.weight"
    trainer = tr.Trainer(neftune=ALPHA, watch=["wte", "noise", f"grad.{last}"], **settings)
    found = trainer.step()

    scale = CHANNELS**0.5 if family.startswith("Gemma") else 1.0
    noise = torch.from_numpy((trainer.activations["noise"] - trainer.activations["wte"]) * scale)
    bound = ALPHA / (TOKENS * CHANNELS) ** 0.5
    assert bound * 0.9 < noise.abs().max() <= bound * (1 + 1e-5) and abs(noise.mean()) < 0.1 * bound
    model.get_input_embeddings().register_forward_hook(lambda module, given, output: output + noise)
    ids = torch.full((BATCH, TOKENS), LETTER)
    scores = model(ids).logits
    loss = torch.nn.functional.cross_entropy(scores.reshape(-1, 256), ids.reshape(-1))
    loss.backward()
    assert found.loss == pytest.approx(loss.item(), rel=1e-5)
    assert tr.Trainer(**settings).step().loss != pytest.approx(loss.item(), rel=1e-3)
    gradient = dict(model.named_parameters())[last].grad.numpy()
    np.testing.assert_allclose(trainer.gradients[last], gradient, atol=2e-5 * np.abs(gradient).max())


def test_a_resumed_run_draws_what_the_whole_one_does(tiny, tmp_path):
    whole, part = (tr.Trainer(**tiny, steps=6, neftune=ALPHA) for _ in range(2))
    losses = [step.loss for step in whole]
    for _ in range(3):
        part.step()
    resumed = tr.Trainer.resume(part.save(tmp_path / "kept"), data=tiny["data"], threads=1)
    assert [step.loss for step in resumed] == losses[3:]
    assert resumed.evaluate().loss == whole.evaluate().loss
