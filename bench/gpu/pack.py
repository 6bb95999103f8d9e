#!/usr/bin/env python3
"""What a machine with a GPU lacks, compressed on the way there: lenders limit what is carried.

pack.py FILE FOLDER: packs a file into a folder; of a wheel, the libraries that the engine loads.
"""
import lzma
import pathlib
import shutil
import sys
import zipfile

# NVRTC with what it reads. cuBLASLt is too large to be carried.
LIBRARIES = ("libnvrtc.so", "libnvrtc-builtins.so")
WHEEL, PACKED = ".whl", ".xz"
RUNS = 0o755


def pack(path, folder):
    path = pathlib.Path(path)
    if path.suffix != WHEEL:
        with path.open("rb") as source:
            compress(source, path.name, folder)
        return
    with zipfile.ZipFile(path) as archive:
        found = [name for name in archive.namelist() if pathlib.PurePath(name).name.startswith(LIBRARIES)]
        for name in found:
            with archive.open(name) as source:
                compress(source, pathlib.PurePath(name).name, folder)
    if not found:
        sys.exit(f"{path} has none of {', '.join(LIBRARIES)}")


def compress(source, name, folder):
    with lzma.open(pathlib.Path(folder) / (name + PACKED), "wb") as packed:
        shutil.copyfileobj(source, packed)


def unpack(folder):
    """Unpacks what was packed into a folder, once."""
    for packed in pathlib.Path(folder).glob(f"*{PACKED}"):
        target = packed.with_suffix("")
        if not target.exists():
            partial = target.with_name(f".{target.name}.partial")
            with lzma.open(packed) as source, partial.open("wb") as file:
                shutil.copyfileobj(source, file)
            partial.chmod(RUNS)
            partial.replace(target)


if __name__ == "__main__":
    pack(*sys.argv[1:])
