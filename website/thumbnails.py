"""Draw the pictures of the gallery, by running the examples: all of them, or those that are named.

python website/thumbnails.py [NAME ...]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generated import THUMBNAILS, examples
from PIL import Image

LIMIT = 40_000  # bytes of a picture


def draw(names: list[str]) -> None:
    THUMBNAILS.mkdir(exist_ok=True)
    for path in examples():
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:  # some leave files where they run
            started = time.perf_counter()
            subprocess.run([sys.executable, path, "--picture", "picture.png"], cwd=folder, check=True)
            print(f"{path.name}: {time.perf_counter() - started:.0f} s", flush=True)
            shrink(Path(folder, "picture.png"), THUMBNAILS / f"{path.stem}.png")


def shrink(picture: Path, thumbnail: Path) -> None:
    """Write a picture with a palette of colours, as many as fit: 128 take half the bytes."""
    for colours in (128, 64, 32):
        Image.open(picture).convert("RGB").quantize(colours).save(thumbnail, optimize=True)
        if thumbnail.stat().st_size <= LIMIT:
            return
    sys.exit(f"{thumbnail} has {thumbnail.stat().st_size} bytes; at most {LIMIT} are allowed. Draw less.")


if __name__ == "__main__":
    draw(sys.argv[1:])
