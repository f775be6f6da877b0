"""What is trained, made of a scenario: each worker's share of the data, the model, and how good a version of it is."""

from __future__ import annotations

import functools
import sys

import numpy as np
from numpy.typing import NDArray

from aiops import data as datasets
from aiops.errors import ConfigError
from aiops.lab.model import Images, Labels, Model, Perceptron, Vector
from aiops.lab.scenario import Scenario


class Problem:
    """The training problem of a scenario.

    Args:
        scenario: What it is made of.
        data_root: Where the data's files are; None searches the usual places.

    Attributes:
        model: What is trained.
        shares: Positions of each worker's training samples.
        size: Parameters of the model.
        slope: float32, shape (size,): room for one gradient, of whoever takes a step until it next awaits something.
    """

    def __init__(self, scenario: Scenario, *, data_root: str | None = None) -> None:
        asked = scenario.data
        whole = _load(asked.name, data_root)
        for what, limit, there in (
            ("n_train", asked.n_train, len(whole.y_train)),
            ("n_test", asked.n_test, len(whole.y_test)),
        ):
            if limit is not None and limit > there:
                raise ConfigError(f"{what} is {limit}, {asked.name} has {there}")
        self._x: Images = _flat(whole.x_train[: asked.n_train])
        self._y: Labels = whole.y_train[: asked.n_train]
        self._x_test: Images = _flat(whole.x_test[: asked.n_test])
        self._y_test: Labels = whole.y_test[: asked.n_test]
        self.shares = datasets.partition(
            self._y, scenario.workers.count, alpha=asked.skew, seed=asked.split_seed
        )
        self.batch = asked.batch
        self.model = _model(scenario, self._x.shape[1], whole.n_classes)
        self.size = sum(int(np.prod(spec.shape)) for spec in self.model.specs)
        self.slope: Vector = np.empty(self.size, np.float32)

    def sampler(self, worker: int, seed: int) -> Sampler:
        """Return the endless stream of a worker's batches; the same for the same seed."""
        rng = np.random.default_rng([seed, worker])
        return Sampler(self._x, self._y, self.shares[worker], self.batch, rng)

    def evaluate(self, x: Vector) -> tuple[float, float]:
        """Return accuracy and mean loss on the test samples; the loss is the largest float where it is beyond that."""
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.model.scores(x, self._x_test)
            accuracy = float(np.mean(scores.argmax(axis=1) == self._y_test))
            top = scores.max(axis=1)
            log_sum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
            loss = float(np.mean(log_sum - scores[np.arange(len(scores)), self._y_test]))
        # JSON has no word for infinity.
        return accuracy, loss if np.isfinite(loss) else sys.float_info.max


class Sampler:
    """One worker's batches, drawn with replacement from its share."""

    def __init__(
        self,
        x: Images,
        y: Labels,
        share: NDArray[np.int64],
        batch: int,
        rng: np.random.Generator,
    ) -> None:
        self._x, self._y, self._share, self._batch, self._rng = x, y, share, batch, rng

    def draw(self) -> tuple[Images, Labels]:
        """Return the next batch, in memory of its own."""
        pick = self._share[self._rng.integers(len(self._share), size=self._batch)]
        return self._x[pick], self._y[pick]


def _flat(images: NDArray[np.float32]) -> Images:
    return np.ascontiguousarray(images.reshape(len(images), -1), np.float32)


# Two scenarios of one process share what was read.
@functools.lru_cache(2)
def _load(name: str, root: str | None) -> datasets.Dataset:
    return datasets.load(name, root=root)


def _model(scenario: Scenario, n_inputs: int, n_classes: int) -> Model:
    if scenario.model.name == "mlp":
        return Perceptron((n_inputs, *scenario.model.hidden, n_classes))
    # Imported here because torch takes seconds, and perceptrons need none of it.
    from aiops.lab.cnn import Convolutional

    return Convolutional(n_inputs, n_classes)
