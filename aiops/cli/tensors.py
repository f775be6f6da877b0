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
