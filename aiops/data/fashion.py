"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017) from files that are already on the machine.

It knows where the files may lie and what must be in them, and downloads nothing. 60,000 training and 10,000 test images
of 28 x 28 grey levels, ten classes in equal shares.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiops.data import idx
from aiops.data.base import Dataset, unit_range
from aiops.errors import ConfigError

NAME = "fashion-mnist"
APT_COMMAND = "apt-get install dataset-fashion-mnist"

# Where Debian's package puts the files.
SYSTEM_DIRECTORY = Path("/usr/share/datasets/fashion-mnist")

# SHA-256 of what is in each file *after* gunzip: Debian compressed the publishers' bytes anew, so the .gz files of
# the two differ while their contents are the same.
DIGESTS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


def find(*, root: Path | None, cache: Path) -> Path | None:
    """Return the first directory that holds all four files, or None.

    Args:
        root: Where the user says that data lies; looked at first. It may hold the files themselves, a directory
            ``fashion-mnist``, or torchvision's ``FashionMNIST/raw``.
        cache: Where the set-up script puts data sets; looked at after the system's directory.
    """
    for directory in _candidates(root, cache):
        if all(_file(directory, name) is not None for name in DIGESTS):
            return directory
    return None


def load(*, root: Path | None, cache: Path) -> Dataset:
    """Read the data set; takes about a second and 220 MB.

    Args:
        root: As for `find`.
        cache: As for `find`.

    Raises:
        ConfigError: The files are nowhere, or one of them is not what its publishers released.
    """
    directory = find(root=root, cache=cache)
    if directory is None:
        searched = ", ".join(str(path) for path in _candidates(root, cache))
        raise ConfigError(
            f"{NAME} is in none of {searched}: install it with '{APT_COMMAND}', or take 'digits', which is always here"
        )
    x_train, y_train, x_test, y_test = (_read(directory, name) for name in DIGESTS)
    return Dataset(
        name=NAME,
        n_classes=10,
        x_train=unit_range(x_train, 255),
        y_train=y_train.astype(np.int64),
        x_test=unit_range(x_test, 255),
        y_test=y_test.astype(np.int64),
    )


def _candidates(root: Path | None, cache: Path) -> Iterator[Path]:
    if root is not None:
        yield root
        yield root / NAME
        yield root / "FashionMNIST" / "raw"
    yield SYSTEM_DIRECTORY
    yield cache / NAME
    yield cache / "FashionMNIST" / "raw"


def _file(directory: Path, name: str) -> Path | None:
    # torchvision leaves both forms behind; the plain one spares the gunzip.
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _read(directory: Path, name: str) -> NDArray[np.uint8]:
    path = _file(directory, name)
    assert path is not None, "find() has just seen it"
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != DIGESTS[name]:
        raise ConfigError(
            f"{path} is not the published file: the sha256 of its content is {digest}, expected {DIGESTS[name]}"
        )
    return idx.parse(content, source=str(path))
