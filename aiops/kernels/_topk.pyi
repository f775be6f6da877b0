import numpy as np
import numpy.typing as npt

def simd_level() -> int: ...
def select_topk(
    x: npt.NDArray[np.float32],
    k: int,
    index: npt.NDArray[np.uint32],
    value: npt.NDArray[np.float32],
    level: int = -1,
) -> int: ...
def feedback_topk(
    residual: npt.NDArray[np.float32],
    update: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    k: int,
    index: npt.NDArray[np.uint32],
    value: npt.NDArray[np.float32],
    level: int = -1,
) -> tuple[int, float, float]: ...
