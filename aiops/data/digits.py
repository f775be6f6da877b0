"""The UCI handwritten digits (Alpaydin and Kaynak, 1998), which ship with this package.

1797 images of 8 x 8 grey levels, ten classes: small enough for every test and for a machine without a network.
Source and licence are in README.md beside this file.
"""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np

from aiops.data.base import Dataset, unit_range

NAME = "digits"
FILE = "digits.csv.gz"

# Of each class, every fifth image is for the test. The file comes without a split of its own, and its order repeats the
# classes, so that a plain stride over all images would leave some of them out of the test.
TEST_STRIDE = 5


def load() -> Dataset:
    """Read the data set; takes some tens of milliseconds."""
    text = gzip.decompress((resources.files("aiops.data") / FILE).read_bytes()).decode("ascii")
    table = np.loadtxt(text.splitlines(), delimiter=",", dtype=np.uint8)
    x = unit_range(table[:, :-1].reshape(-1, 8, 8), 16)
    y = table[:, -1].astype(np.int64)
    in_test = np.zeros(len(y), dtype=bool)
    for label in range(10):
        in_test[np.flatnonzero(y == label)[TEST_STRIDE - 1 :: TEST_STRIDE]] = True
    return Dataset(
        name=NAME,
        n_classes=10,
        x_train=x[~in_test],
        y_train=y[~in_test],
        x_test=x[in_test],
        y_test=y[in_test],
    )
