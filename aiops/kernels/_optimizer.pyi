import numpy as np
import numpy.typing as npt

def sgd(
    params: npt.NDArray[np.float32],
    update: npt.NDArray[np.float32],
    rate: float,
    out: npt.NDArray[np.float32],
    bypass: bool,
    level: int = -1,
) -> int: ...
def momentum(
    params: npt.NDArray[np.float32],
    velocity: npt.NDArray[np.float32],
    update: npt.NDArray[np.float32],
    rate: float,
    beta: float,
    nesterov: bool,
    out: npt.NDArray[np.float32],
    bypass: bool,
    level: int = -1,
) -> int: ...
