"""Writes scikit-learn's handwritten digits as IDX files packed by gzip: 1,797 images of 8 × 8, from the test set of
<https://archive.ics.uci.edu/dataset/80> (E. Alpaydin and C. Kaynak, 1998; CC BY 4.0). Their 17 shades, 0 to 16, become 0 to 255.

    pip install scikit-learn==1.9.1
    python3 data/assets/digits.py data/assets/digits
"""

import gzip
import struct
import sys
from pathlib import Path

from sklearn.datasets import load_digits


def write(path, elements):
    header = struct.pack(">BBBB", 0, 0, 0x08, elements.ndim) + struct.pack(f">{elements.ndim}I", *elements.shape)
    # Without a time and a name, equal elements give equal files.
    path.write_bytes(gzip.compress(header + elements.astype("uint8").tobytes(), 9, mtime=0))


folder = Path(sys.argv[1])
digits = load_digits()
write(folder / "digits-images-idx3-ubyte.gz", (digits.images * 255 / 16 + 0.5) // 1)
write(folder / "digits-labels-idx1-ubyte.gz", digits.target)
