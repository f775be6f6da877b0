import numpy as np
import numpy.typing as npt

def scatter_add(
    acc: npt.NDArray[np.float32],
    index: npt.NDArray[np.uint32],
    value: npt.NDArray[np.uint8],
    kind: int,
    scale: npt.NDArray[np.float32],
    weight: float,
    level: int = -1,
) -> int: ...
def scatter_add_coded(
    acc: npt.NDArray[np.float32],
    code: npt.NDArray[np.uint8],
    k: int,
    value: npt.NDArray[np.uint8],
    kind: int,
    scale: npt.NDArray[np.float32],
    weight: float,
    level: int = -1,
) -> int: ...
def gather(
    x: npt.NDArray[np.float32],
    index: npt.NDArray[np.uint32],
    out: npt.NDArray[np.float32],
) -> int: ...
