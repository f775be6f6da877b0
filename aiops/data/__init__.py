"""Real data sets by name, from files on this machine or in this package.

No hub, no download, no torch, and no environment variables: who reads those passes the paths in.
"""

from __future__ import annotations

from pathlib import Path

from aiops.data import digits, fashion
from aiops.data.base import Dataset
from aiops.data.split import partition
from aiops.errors import ConfigError

__all__ = ["NAMES", "Dataset", "default_cache", "is_available", "load", "partition"]

NAMES = (fashion.NAME, digits.NAME)


def default_cache() -> Path:
    """Return where the set-up script puts data sets when no environment variable says otherwise."""
    return Path.home() / ".cache" / "aiops" / "datasets"


def is_available(
    name: str, *, root: str | Path | None = None, cache: str | Path | None = None
) -> bool:
    """Tell whether `load` would find the files of a data set; looks at names only, not at contents.

    Args:
        name: One of `NAMES`.
        root: As for `load`.
        cache: As for `load`.

    Raises:
        ConfigError: There is no data set of that name.
    """
    _check_name(name)
    return name == digits.NAME or fashion.find(root=_path(root), cache=_cache(cache)) is not None


def load(name: str, *, root: str | Path | None = None, cache: str | Path | None = None) -> Dataset:
    """Read a data set into memory.

    ``fashion-mnist`` is looked for in ``root``, then where Debian's package puts it, then in ``cache``; each place may
    also have the layout of torchvision. ``digits`` is part of this package. The contents are checked against the
    publishers' checksums.

    Args:
        name: One of `NAMES`.
        root: A directory with data of the user's own.
        cache: The cache directory; `default_cache` unless the caller, who knows the environment, gives another.

    Raises:
        ConfigError: There is no data set of that name, its files are not found, or one of them is damaged.
    """
    _check_name(name)
    if name == digits.NAME:
        return digits.load()
    return fashion.load(root=_path(root), cache=_cache(cache))


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ConfigError(f"no data set is called {name!r}, there are {', '.join(NAMES)}")


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _cache(cache: str | Path | None) -> Path:
    return default_cache() if cache is None else Path(cache)
