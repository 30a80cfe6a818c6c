"""A folder of images with a file of labels: pixels as features, thumbnails for the page."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 32  # pixels of the squares that images are brought to
THUMBNAIL = 96


def pixels(folder: Path, names: list[str]) -> np.ndarray:
    """Return the pixels of images, from 0 to 1, a row for each: grey if all are, otherwise in three colours."""
    images = [np.asarray(_opened(folder / name).convert("RGB").resize((SIDE, SIDE))) for name in names]
    stack = np.stack(images).astype(np.float32) / 255
    if (stack == stack[..., :1]).all():
        stack = stack[..., 0]
    return stack.reshape(len(names), -1)


def thumbnail(path: Path) -> str:
    """Return a small PNG as an address that holds it."""
    image = _opened(path).convert("RGB")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _opened(path: Path) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ImportError("images are read with Pillow: pip install 'bilax[clean]'.") from None
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no image {path}, which the file of labels names.") from None
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from None
