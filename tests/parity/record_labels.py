"""Records a data set with named classes beside this file, `labels`, as `datasets` writes it: a Parquet file, a folder of `save_to_disk`, and
lines of JSON beside the card that it writes for the hub.

    pip install datasets==5.2.0 pyarrow==26.0.1
    python3 tests/parity/record_labels.py tests/parity/labels
"""

import json
import shutil
import sys
from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Value
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCardData

NAMES = ["negative", "positive", "it's \"mixed\"", "1", "yes"]


def main():
    root = Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    (root / "card/data").mkdir(parents=True)
    features = Features({"text": Value("string"), "label": ClassLabel(names=NAMES), "idx": Value("int32")})
    rows = {"text": [f"text {n}" for n in range(6)], "label": [1, 0, 4, 2, 3, 1], "idx": list(range(6))}
    data = Dataset.from_dict(rows, features)
    data.to_parquet(root / "rows.parquet")
    data.save_to_disk(root / "saved")
    data.to_json(root / "card/data/rows.jsonl")
    card = DatasetCardData(license="mit", language=["en"])
    DatasetInfosDict({"default": data.info}).to_dataset_card_data(card)
    (root / "card/README.md").write_text(f"---\n{card.to_yaml()}\n---\n# Reviews\n")
    (root / "names.json").write_text(json.dumps(NAMES) + "\n")


if __name__ == "__main__":
    main()
