#!/usr/bin/env python3
"""Libraries for a machine that has none: what of a wheel the engine loads, compressed on the way.

pack.py WHEEL FOLDER: packs the libraries of a wheel into a folder.
"""
import lzma
import pathlib
import shutil
import sys
import zipfile

# NVRTC with what it reads. cuBLASLt is larger than a machine's lender lets through.
LIBRARIES = ("libnvrtc.so", "libnvrtc-builtins.so")
PACKED = ".xz"


def pack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if pathlib.PurePath(name).name.startswith(LIBRARIES)]
        for name in found:
            target = pathlib.Path(folder) / (pathlib.PurePath(name).name + PACKED)
            with archive.open(name) as source, lzma.open(target, "wb") as packed:
                shutil.copyfileobj(source, packed)
    if not found:
        sys.exit(f"{wheel} has none of {', '.join(LIBRARIES)}")


def unpack(folder):
    """Unpacks what was packed into a folder, once."""
    for packed in pathlib.Path(folder).glob(f"*{PACKED}"):
        target = packed.with_suffix("")
        if not target.exists():
            partial = target.with_name(f".{target.name}.partial")
            with lzma.open(packed) as source, partial.open("wb") as file:
                shutil.copyfileobj(source, file)
            partial.replace(target)


if __name__ == "__main__":
    pack(*sys.argv[1:])
