"""Drift correction: a control variate in the unit of progress, so that it knows no optimizer and no learning rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aiops.kernels import weighted_add
from aiops.worker.ticket import Snapshot


class Drift:
    """Keeps a worker from drifting towards its own data between two models.

    After SCAFFOLD's option II (Karimireddy et al., 2020). Let p be a worker's progress per local step in the window
    that it pushed last, and P the mean of that over all pushes of the same round, which is the change of the model
    divided by the steps that it has moved. Until the next model every local step is followed by ``x += P - p``.

    What is pushed leaves these corrections out. Over the pushes of a round they sum to zero, so the model comes out the
    same; where they do not, because somebody joined, left or began anew, their sum would be part of every later P.

    Args:
        x: float32, shape (n,): the model to start from.
        version: Its version.
        accumulated: Leading values that are corrected; running statistics are not.
    """

    def __init__(self, x: NDArray[np.float32], version: int, *, accumulated: int) -> None:
        self._version = version
        self._part = slice(accumulated)
        self._model = x[self._part].copy()
        self._own = np.zeros_like(self._model)
        self._whole = np.zeros_like(x)
        self._correction = self._whole[self._part]
        self._known = False

    @property
    def correction(self) -> NDArray[np.float32] | None:
        """What is added after each local step, float32, shape (n,); None until it is known."""
        return self._whole if self._known else None

    def pushing(
        self, progress: NDArray[np.float32], n_steps: int, new: Snapshot | None = None
    ) -> None:
        """Take a window's corrections out of its progress, which is pushed then.

        Args:
            progress: float32, shape (n,); changed in place.
            n_steps: Local steps in it, >= 1.
            new: The model that is adopted with this push; it holds the push before.
        """
        raw = progress[self._part]
        if self._known:
            weighted_add(raw, self._correction, -n_steps)
        if new is not None:
            self.learn(new)
        np.multiply(raw, np.float32(1 / n_steps), out=self._own)

    def learn(self, new: Snapshot) -> None:
        """Compute the next corrections from the model that the last push is part of."""
        # Over more than one version at once it is not known how many steps each has moved.
        self._known = new.version == self._version + 1 and new.moved_steps > 0
        if self._known:
            np.subtract(new.flat[self._part], self._model, out=self._correction)
            self._correction *= np.float32(1 / new.moved_steps)
            self._correction -= self._own
        self._keep(new)

    def forget(self, new: Snapshot) -> None:
        """Begin anew from a model that the last push is not part of, without corrections."""
        self._known = False
        self._keep(new)

    def _keep(self, new: Snapshot) -> None:
        self._version = new.version
        np.copyto(self._model, new.flat[self._part])
