"""The proximal term of FedProx and FedAsync: local steps are held near the newest global model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiops.kernels import weighted_add
from aiops.worker.ticket import Snapshot


class Proximal:
    """Makes local steps minimize ``f(x) + mu / 2 * |x - w|^2``, w being the newest global model adopted.

    FedProx (Li et al., 2020) and the local problem of FedAsync (Xie et al., 2019). Running statistics are left alone.

    Args:
        x: float32, shape (n,): the model to start from.
        mu: The term's weight, > 0.
        accumulated: Leading values that are held; the rest are running statistics.

    Attributes:
        mu: The term's weight.
        anchor: w, float32, shape (accumulated,).
    """

    def __init__(self, x: NDArray[np.float32], mu: float, *, accumulated: int) -> None:
        self.mu = mu
        self.anchor = x[:accumulated].copy()
        self._gap: NDArray[np.float32] | None = None

    def note(self, x: NDArray[np.float32]) -> None:
        """Note where a local step begins; ``x`` is float32, shape (n,)."""
        if self._gap is None:
            self._gap = np.empty_like(self.anchor)
        np.subtract(x[: self.anchor.size], self.anchor, out=self._gap)

    def pull(self, x: NDArray[np.float32], lr: float) -> None:
        """Add what the term makes of the step that began where it was noted: ``-lr * mu * (x_before - w)``.

        With a gradient step of learning rate ``lr`` it is exactly the gradient step on both terms.

        Args:
            x: float32, shape (n,): the parameters after the step; changed in place.
            lr: The step's learning rate.
        """
        assert self._gap is not None
        weighted_add(x[: self.anchor.size], self._gap, -lr * self.mu)

    def adopt(self, new: Snapshot) -> None:
        """Hold to this model from now on."""
        np.copyto(self.anchor, new.flat[: self.anchor.size])
