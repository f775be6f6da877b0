import numpy as np
import numpy.typing as npt

def weighted_add(
    acc: npt.NDArray[np.float32],
    x: npt.NDArray[np.float32],
    weight: float,
    level: int = -1,
) -> None: ...
def lerp(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.float32],
    a: float,
    level: int = -1,
) -> None: ...
def merge(
    arrays: tuple[npt.NDArray[np.float32], ...],
    weights: tuple[float, ...],
    out: npt.NDArray[np.float32],
    level: int = -1,
) -> None: ...
def merge_checked(
    base: npt.NDArray[np.float32],
    arrays: tuple[npt.NDArray[np.float32], ...],
    weights: tuple[float, ...],
    gain: float,
    out: npt.NDArray[np.float32],
    bypass: bool,
    level: int = -1,
) -> int: ...
def copy_checked(
    x: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    bypass: bool,
    level: int = -1,
) -> int: ...
def swap_update(
    x: npt.NDArray[np.float32],
    base: npt.NDArray[np.float32],
    fresh: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    level: int = -1,
) -> None: ...
def first_nonfinite(x: npt.NDArray[np.float32]) -> int: ...
