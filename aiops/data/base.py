"""What every data set looks like, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A labelled image data set, split the way its publishers (or we, see `aiops.data.digits`) split it.

    The arrays are C-contiguous, writable and the caller's own: ``torch.from_numpy`` takes them without a copy, the
    pixels are ready for a model's first layer and the labels for a cross-entropy.

    Attributes:
        name: The name it was loaded by.
        n_classes: Labels are 0 to ``n_classes - 1``.
        x_train: float32, shape (n, height, width), grey levels in [0, 1]. Not standardised: whoever wants mean 0 takes
            the mean of ``x_train``.
        y_train: int64, shape (n,).
        x_test: Like ``x_train``.
        y_test: Like ``y_train``.
    """

    name: str
    n_classes: int
    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]


def unit_range(grey: NDArray[np.uint8], top: int) -> NDArray[np.float32]:
    """Return grey levels 0 to ``top`` as float32 in [0, 1], in memory of their own."""
    return np.divide(grey, np.float32(top), dtype=np.float32)
