"""What label-cleaning runs store besides their rows, and the pictures made from it."""

import io
from typing import Any

import jax
import numpy as np

from bilax.errors import Doubts
from bilax.problems import HyperCleaning
from bilax.report import Gallery, Specimen
from bilax.results import Result
from bilax.storage.runs import ARRAYS, read_rows

LEAST_TRUSTED = 40  # images stored per run
SHOWN = 20  # of those, on a page


def kept_weights(data: HyperCleaning, result: Result) -> dict[str, np.ndarray]:
    """Return the learned weights, and the images that are trusted least."""
    weights = np.asarray(jax.nn.sigmoid(result.x))
    least = np.argsort(weights, kind="stable")[:LEAST_TRUSTED]
    images = data.features[least, :-1]
    side = int(images.shape[1] ** 0.5)
    return {
        "weights": weights,
        "given": data.labels.astype(np.uint8),
        "true": data.true_labels.astype(np.uint8),
        "least": least,
        "images": images.reshape(-1, side, side).astype(np.float16),
    }


def galleries(plates: list[Any]) -> list[Gallery]:
    """Return, for every problem and variant with labels to clean, the images of the run that tells wrong ones best."""
    best: dict[tuple[str, str], tuple[float, Any]] = {}
    for plate in plates:
        for run in plate.runs:
            rows = read_rows(run.folder)
            auroc = rows[-1].get("auroc") if rows else None
            if auroc is not None and (run.folder / ARRAYS).is_file():
                key = (run.facts["title"], plate.variant)
                if key not in best or auroc > best[key][0]:
                    best[key] = (auroc, run)
    shown = [_gallery(title, variant, *found) for (title, variant), found in best.items()]
    return [gallery for gallery in shown if gallery is not None]


def _gallery(title: str, variant: str, auroc: float, run: Any) -> Gallery | None:
    try:
        with np.load(io.BytesIO((run.folder / ARRAYS).read_bytes())) as file:
            arrays = dict(file)
        return _of(title, variant, auroc, run, arrays)
    except Exception as error:
        Doubts().add(f"{run.folder / ARRAYS} is damaged ({type(error).__name__}: {error}), so it is not shown.")
        return None


def _of(title: str, variant: str, auroc: float, run: Any, arrays: dict[str, np.ndarray]) -> Gallery:
    chosen = arrays["least"][:SHOWN]
    specimens = tuple(
        Specimen(
            np.asarray(image, np.float32), str(arrays["given"][i]), str(arrays["true"][i]), float(arrays["weights"][i])
        )
        for i, image in zip(chosen, arrays["images"], strict=False)
    )
    wrong = int((arrays["given"][chosen] != arrays["true"][chosen]).sum())
    note = (
        f"{run.facts['method']}, seed {run.facts['seed']}: the run whose weights tell wrong from right labels best, "
        f"AUROC {auroc:.3f}. {wrong} of these {len(chosen)} labels are wrong."
    )
    return Gallery(f"Trusted least: {title}, {variant}", note, specimens)
