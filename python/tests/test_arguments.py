"""Arguments that are refused where they are said, in words of Python."""

import numpy as np
import pytest

import tightrope as tr
from tightrope import nn

CPU = dict(device="cpu", threads=1)
INPUTS = {"x": ("f32", (8,)), "y": ("i32", ())}


class Mlp(tr.Model):
    def __init__(self):
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 10)

    def loss(self, x, y):
        return nn.cross_entropy(self.down(nn.gelu(self.up(x))), y)


@pytest.fixture(scope="module")
def trainer():
    return tr.Trainer(Mlp(), inputs=INPUTS, batch=4, **CPU)


LAYERS = {
    "p=2: it must be at least 0 and below 1": lambda: nn.Dropout(2),
    "p=-0.1: it must be at least 0 and below 1": lambda: nn.Dropout(-0.1),
    "p=nan: it must be at least 0 and below 1": lambda: nn.Dropout(float("nan")),
    "outputs=-1: it must be at least 1": lambda: nn.Linear(64, -1),
    "inputs=0: it must be at least 1": lambda: nn.Linear(0, 4),
    "rows=-3: it must be at least 1": lambda: nn.Embedding(-3, 4),
    "columns=0: it must be at least 1": lambda: nn.Embedding(3, 0),
    "channels=0: it must be at least 1": lambda: nn.LayerNorm(0),
    "channels=-8: it must be at least 1": lambda: nn.RmsNorm(-8),
    "heads=0: it must be at least 1": lambda: nn.Attention(12, 0),
    "heads=5: it must divide channels=12": lambda: nn.Attention(12, 5),
    "kv_heads=2: it must divide heads=3": lambda: nn.Attention(12, 3, kv_heads=2),
    "rope=10000.0: it turns pairs of channels, and a head has 3": lambda: nn.Attention(12, 4, rope=1e4),
    "rope=0: it must be finite and above 0": lambda: nn.Attention(12, 3, rope=0),
    "window=0: it must be at least 1": lambda: nn.Attention(12, 3, window=0),
    "cap=-1: it must be finite and above 0": lambda: nn.Attention(12, 3, cap=-1),
    "dropout=1: it must be at least 0 and below 1": lambda: nn.Attention(12, 3, dropout=1),
    "kernel=0: it must be at least 1": lambda: nn.Conv2d(1, 2, 0),
    "stride=0: it must be at least 1": lambda: nn.Conv2d(1, 2, 3, stride=(1, 0)),
    "padding=-1: it must be at least 0": lambda: nn.Conv2d(1, 2, 3, padding=-1),
    "kernel=(1, 2, 3): it must be a whole number, or two": lambda: nn.Conv2d(1, 2, (1, 2, 3)),
}


@pytest.mark.parametrize("message", LAYERS)
def test_layers(message):
    with pytest.raises(ValueError) as caught:
        LAYERS[message]()
    assert str(caught.value) == message


@pytest.mark.parametrize("wrong", [lambda: nn.Linear(6.5, 2), lambda: nn.Linear("6", 2), lambda: nn.Linear(True, 2), lambda: nn.Dropout("0.1")])
def test_arguments_that_are_no_numbers(wrong):
    with pytest.raises(TypeError, match="it must be a"):
        wrong()


def test_numbers_of_numpy_are_numbers():
    class Of(Mlp):
        def __init__(self):
            self.up, self.down = nn.Linear(np.int64(8), np.int32(16)), nn.Linear(np.uint8(16), 10)
            self.drop = nn.Dropout(np.float32(0.5))

    assert tr.plan(Of(), inputs=INPUTS, **CPU).peak_bytes > 0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (dict(temperature=-1), "temperature=-1: it must be finite and at least 0"),
        (dict(temperature=float("inf")), "temperature=inf: it must be finite and at least 0"),
        (dict(top_p=2), "top_p=2: it must be above 0 and at most 1"),
        (dict(top_p=0), "top_p=0: it must be above 0 and at most 1"),
        (dict(top_k=-2), "top_k=-2: it must be at least 0"),
        (dict(max_tokens=-1), "max_tokens=-1: it must be at least 0"),
        (dict(seed=-1), "seed=-1: it must be at least 0"),
        (dict(prompt=""), 'prompt="": it must have a character or more to go on from'),
    ],
)
def test_generation(trainer, said, message):
    with pytest.raises(ValueError) as caught:
        trainer.generate(**{"prompt": "to be", **said})
    assert str(caught.value) == message


def test_an_evaluation_of_nothing(trainer):
    with pytest.raises(ValueError, match=r"at least one: evaluate\(x=…, y=…\)"):
        trainer.evaluate()
    with pytest.raises(ValueError, match="no samples to evaluate"):
        trainer.evaluate(x=np.zeros((0, 8)), y=np.zeros(0, int))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 8)), np.zeros(3, int), "the inputs have 3 samples, and a step takes batch=4"),
        (np.zeros((4, 8)), np.array([0, 10, 0, 0]), "ids below 10 for `y`, got 10 in sample 1"),
    ],
)
def test_a_wrong_batch_is_no_fault_of_the_device(trainer, x, y, message):
    with pytest.raises(tr.BatchError) as caught:
        trainer.step(x=x, y=y)
    text = str(caught.value)
    assert message in text and "device" not in text
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, tr.Error)
    assert not isinstance(caught.value, tr.DeviceError) and trainer.steps_done == 0


def test_what_a_trainer_was_made_with_stays(trainer):
    for name in ("lr", "steps", "learning_rate"):
        with pytest.raises(AttributeError, match=rf"setting `{name}` would do nothing: give {name}= to Trainer"):
            setattr(trainer, name, 0.1)

    with pytest.raises(AttributeError, match="`weights` is read"):
        trainer.weights = {}

    class Own(tr.Trainer):
        """A program's own, which keeps what it likes."""

    own = Own(Mlp(), inputs=INPUTS, batch=4, **CPU)
    own.losses = []
    with pytest.raises(AttributeError, match="`lr` would do nothing"):
        own.lr = 0.1


def refused(**said):
    with pytest.raises((tr.SettingError, tr.DoesNotFit, tr.Error)) as caught:
        tr.plan(**said)
    return caught.value


GPT2 = dict(preset="gpt2", batch=4, **CPU)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (dict(GPT2, memory="100MiB"), "memory="),
        (dict(preset="gpt2-xl", batch=4, gpu="rtx-4090"), "offload="),
        (dict(GPT2, memory="1993MiB", micro_batch=4, recompute="none"), 'micro_batch="auto" recompute="auto"'),
        (dict(preset="tiny", heads=3), "`tightrope.settings()` lists them all"),
        (dict(GPT2, precision="f8"), "`precision=` must be f32, tf32, bf16 or f16"),
        (dict(preset="tiny", settings={"run.precision": "f8"}), "`precision=` must be"),
        (dict(GPT2, lr=-1), "`lr=`"),
    ],
)
def test_messages_name_keywords(said, words):
    text = str(refused(**said))
    assert words in text and "--" not in text, text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (dict(bathc=3), "did you mean `batch`?"),
        (dict(lr="fast"), "`lr=` must be a number"),
        (dict(settings={"train.beta3": 0.9}), "did you mean `train.beta1`?"),
        (dict(batch=np.array([2, 3])), "`batch=` must be a whole number"),
    ],
)
def test_settings_are_checked_where_they_are_made(said, words):
    with pytest.raises(tr.SettingError) as caught:
        tr.Settings(**said)
    assert words in str(caught.value), caught.value


def test_settings_are_arguments_of_several_plans():
    tiny = tr.Settings(preset="tiny", settings={"memory.optimizer_bits": 8}, **CPU)
    assert tiny == dict(preset="tiny", settings={"memory.optimizer_bits": 8}, **CPU)
    peaks = [tr.plan(batch=batch, **tiny).peak_bytes for batch in (1, 8)]
    assert peaks[0] < peaks[1] == tr.plan(**tr.Settings(batch=8, **tiny)).peak_bytes


def test_numbers_of_numpy_are_numbers():
    numpy = dict(batch=np.int64(4), layers=np.array(3), lr=np.float32(0.5), packing=np.bool_(False))
    plain = dict(batch=4, layers=3, lr=0.5, packing=False)
    found, right = (tr.plan(preset="tiny", **CPU, **it).to_dict() for it in (numpy, plain))
    assert found["peak_bytes"] == right["peak_bytes"] and found["by_class"] == right["by_class"]


def test_advice_names_keywords():
    advice = tr.plan(**GPT2, memory="4GiB").advice()
    words = [it["words"] for it in advice["allowed"]]
    assert 'precision="bf16"' in words and 'settings={"memory.optimizer_bits": 8}' in words
    assert "--" not in repr(advice)


@pytest.mark.parametrize(
    "said",
    [
        dict(preset="gpt2", gpu="h100", offload="optimizer"),
        dict(preset="gpt2", gpu="h100", precision="bf16", micro_batch=1, batch=4),
        dict(preset="gpt2", gpu="h100", offload="optimizer,gradients,activations", precision="bf16"),
        dict(preset="tiny", device="cpu", settings={"memory.optimizer_bits": 8}),
        dict(preset="tiny", device="cpu", micro_batch=1, batch=5),
        dict(preset="tiny", device="cpu", buckets="auto"),
    ],
)
def test_classes_add_up_to_the_peak(said):
    plan = tr.plan(**said)
    assert sum(plan.by_class.values()) == plan.peak_bytes and min(plan.by_class.values()) >= 0
