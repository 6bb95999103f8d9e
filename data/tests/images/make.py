"""Writes one picture as JPEG and as PNG: python3 data/tests/images/make.py data/tests/images (needs pillow)."""

import sys

from PIL import Image

picture = Image.new("RGB", (24, 16))
picture.putdata([(10 * x, 15 * y, 128 + 5 * (x - y)) for y in range(16) for x in range(24)])
picture.save(f"{sys.argv[1]}/gradient.jpg", quality=95, subsampling=0)
picture.save(f"{sys.argv[1]}/gradient.png")
picture.convert("L").save(f"{sys.argv[1]}/grey.jpg", quality=95)
picture.quantize(200).save(f"{sys.argv[1]}/palette.png")
picture.resize((10, 12), Image.Resampling.BILINEAR).save(f"{sys.argv[1]}/resized.png")
