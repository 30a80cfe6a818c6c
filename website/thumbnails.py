"""Draw the pictures of the gallery, by running the examples: all of them, or those that are named.

python website/thumbnails.py [NAME ...]
"""

import subprocess
import sys
import tempfile

from generated import THUMBNAILS, examples

LIMIT = 40_000  # bytes of a picture


def draw(names: list[str]) -> None:
    THUMBNAILS.mkdir(exist_ok=True)
    for path in examples():
        if names and path.stem not in names:
            continue
        picture = THUMBNAILS / f"{path.stem}.png"
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory() as folder:  # some leave files where they run
            subprocess.run([sys.executable, path, "--picture", picture], cwd=folder, check=True)
        if picture.stat().st_size > LIMIT:
            sys.exit(f"{picture} has {picture.stat().st_size} bytes; at most {LIMIT} are allowed. Draw less.")


if __name__ == "__main__":
    draw(sys.argv[1:])
