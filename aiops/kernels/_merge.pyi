import numpy as np
import numpy.typing as npt

def weighted_add(
    acc: npt.NDArray[np.float32],
    x: npt.NDArray[np.float32],
    weight: float,
) -> None: ...
def merge(
    arrays: tuple[npt.NDArray[np.float32], ...],
    weights: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None: ...
def swap_update(
    x: npt.NDArray[np.float32],
    base: npt.NDArray[np.float32],
    fresh: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None: ...
def first_nonfinite(x: npt.NDArray[np.float32]) -> int: ...
