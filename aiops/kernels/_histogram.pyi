import numpy as np
import numpy.typing as npt

def energy_histogram(
    x: npt.NDArray[np.float32],
    block: int,
    every: int,
    seed: int,
    counts: npt.NDArray[np.int64],
    energies: npt.NDArray[np.float64],
) -> int: ...
