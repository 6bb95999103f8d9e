"""Records a case of each purpose of an encoder of text beside this file, as `record_models.py` does, with padding and two texts a
sequence.

    pip install torch==2.15.0 transformers==5.24.0
    python3 tests/parity/record_encoders.py tests/parity

Inputs are `tokens`, `types` and `documents`, i32 `(S·A + 1, B, T)`: ids, which of two texts each token belongs to, and 1 for a
token and 0 for padding. What is expected is `targets`, i32 `(S·A + 1, B, T)`, -1 where nothing is masked, or `labels`, i32
`(S·A + 1, B)`.
"""

import sys
from pathlib import Path

import torch
from record_models import record
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

SEQ_LEN, VOCAB, CLASSES = 22, 83, 5
SIZES = {
    "num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 50, "vocab_size": VOCAB,
    "max_position_embeddings": 25, "type_vocab_size": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "attn_implementation": "eager",
}  # fmt: skip


class Texts:
    """Batches of padded texts."""

    def __init__(self, batch):
        self.batch = batch
        self.settings = {"batch": batch, "seq": SEQ_LEN, "vocab": VOCAB}

    def draw(self, count, generator):
        shape = (count, self.batch)
        lengths = torch.randint(SEQ_LEN // 2, SEQ_LEN + 1, shape, generator=generator)
        firsts = torch.randint(1, SEQ_LEN // 2, shape, generator=generator)
        positions = torch.arange(SEQ_LEN)
        documents = (positions < lengths[..., None]).long()
        # The id 0 is padding's, and transformers gives its embedding no gradient.
        tokens = torch.randint(1, VOCAB, (*shape, SEQ_LEN), generator=generator) * documents
        types = (positions >= firsts[..., None]).long() * documents
        return {"tokens": tokens, "types": types, "documents": documents} | self.expected(documents, generator)

    def call(self, model, tokens, types, documents):
        """Logits, and those where padding sees padding alone: no loss depends on the difference, which is padding's own."""
        given = {"input_ids": tokens, "token_type_ids": types}
        logits = model(**given, attention_mask=documents).logits
        with torch.no_grad():
            together = (documents[:, :, None] == documents[:, None, :])[:, None]
            apart = torch.where(together, 0.0, torch.finfo(torch.float32).min)
            shown = model(**given, attention_mask=apart).logits
        return logits, shown


class Masked(Texts):
    def expected(self, documents, generator):
        ids = torch.randint(1, VOCAB, documents.shape, generator=generator)
        chosen = (torch.rand(documents.shape, generator=generator) < 0.3) & (documents == 1)
        return {"targets": torch.where(chosen, ids, -1)}

    def loss(self, model, tokens, types, documents, targets):
        logits, shown = self.call(model, tokens, types, documents)
        real = documents == 1
        torch.testing.assert_close(logits[real], shown[real], rtol=0, atol=1e-6)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1), shown


class Labelled(Texts):
    def expected(self, documents, generator):
        return {"labels": torch.randint(0, CLASSES, documents.shape[:2], generator=generator)}

    def loss(self, model, tokens, types, documents, labels):
        logits, shown = self.call(model, tokens, types, documents)
        torch.testing.assert_close(logits, shown, rtol=0, atol=1e-6)
        return cross_entropy(logits, labels), logits


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    record(root / "bert-case", BertForMaskedLM(BertConfig(**SIZES)), Masked(3), 60)
    classifier = BertForSequenceClassification(BertConfig(**SIZES, num_labels=CLASSES))
    record(root / "bert-classes-case", classifier, Labelled(4), 61, accumulate=2)


if __name__ == "__main__":
    main()
