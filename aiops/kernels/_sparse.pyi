import numpy as np
import numpy.typing as npt

def scatter_add(
    acc: npt.NDArray[np.float32],
    index: npt.NDArray[np.uint32],
    value: npt.NDArray[np.float32],
    weight: float,
) -> int: ...
def gather(
    x: npt.NDArray[np.float32],
    index: npt.NDArray[np.uint32],
    out: npt.NDArray[np.float32],
) -> int: ...
