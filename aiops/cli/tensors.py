"""Parameters in safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError


def load(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file by name.

    Raises:
        ConfigError: It cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot read {path} as safetensors: {error}") from None
    except (KeyError, TypeError) as error:
        # numpy has no bfloat16 and no 8-bit floats.
        raise ConfigError(
            f"cannot read {path}: {error}; numpy has no such type, save it as float32"
        ) from None


def check_place(path: Path) -> None:
    """Check that a file can be written there, before there is anything to lose.

    Raises:
        ConfigError: Its directory is not there, or not writable.
    """
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK) or path.is_dir():
        raise ConfigError(f"cannot write {path}: {path.parent} is no directory to write to")


def save(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write tensors to a safetensors file, whole or not at all.

    Raises:
        ConfigError: It cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    part = path.with_name(path.name + ".part")
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot write {path}: {error}") from None
