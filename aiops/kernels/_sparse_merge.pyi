import numpy as np
import numpy.typing as npt

def merge_sparse(
    indices: tuple[npt.NDArray[np.uint32], ...],
    values: tuple[npt.NDArray[np.float32], ...],
    weights: npt.NDArray[np.float32],
    n: int,
    index: npt.NDArray[np.uint32],
    value: npt.NDArray[np.float32],
    level: int = -1,
) -> tuple[int, int]: ...
