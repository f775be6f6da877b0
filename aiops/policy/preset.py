"""Known algorithms as specs, to be passed to ``ServerConfig.parse``."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from aiops.policy.table import unknown


class PolicySpec(TypedDict):
    """The specs that make an algorithm."""

    sync: str
    weights: str
    work: str
    merge: str
    optimizer: NotRequired[str]
    compensation: NotRequired[str]
    drift: NotRequired[Literal["off", "infer"]]
    proximal: NotRequired[float]
    auto: NotRequired[bool]


def _averaging(weights: str = "by_samples", steps: int = 10, optimizer: str = "sgd") -> PolicySpec:
    """Full rounds of fresh updates, of so many local steps; the number of steps is a start value."""
    return PolicySpec(
        sync="bulk:0", weights=weights, work=f"fixed:{steps}", merge="reset", optimizer=optimizer
    )


def _on_arrival(weights: str, steps: int, compensation: str, proximal: float = 0.0) -> PolicySpec:
    """Every push a version of its own, corrected for what has changed since it started."""
    return PolicySpec(
        sync="asynchronous",
        weights=weights,
        work=f"fixed:{steps}",
        merge="reset",
        compensation=compensation,
        proximal=proximal,
    )


PRESETS: dict[str, PolicySpec] = {
    # Full rounds, every update one version late, local steps until the model arrives (Zhou et al., 2023). The
    # prototype's weights are uniform; samples come to the same when the workers' batches are equal.
    "nbsync": PolicySpec(sync="bulk:1", weights="by_samples", work="until_model", merge="reset"),
    # The same in rounds of one length, with half of a worker's progress kept and chunks streamed, and with Top-k or
    # drift correction where what is measured calls for it.
    "nbsync-auto": PolicySpec(
        sync="bulk:1",
        weights="by_samples",
        work="fill_the_sync:8",
        merge="partial:0.5",
        auto=True,
    ),
    # Overlapped rounds of one length with an outer Nesterov step, as DiLoCo's blocking ones have: updates that are a
    # version late bear 0.5 and 0.8 where blocking rounds bear 0.7 and 0.9. It makes a step of about 2.5 times the
    # workers' own, so their learning rate is half of what it is without.
    "nbsync-nesterov": PolicySpec(
        sync="bulk:1",
        weights="by_samples",
        work="fill_the_sync:8",
        merge="partial:0.5",
        optimizer="nesterov:0.5,0.8",
    ),
    # The prototype adds delta / N on arrival. Between an overlapped worker's base and its merge all N equally fast
    # workers merge twice, so that 1 / (staleness + 1) is 1 / (2 N): half of the prototype's, as fits the longer delay,
    # with no need to know N, and a straggler's old work counts less.
    "nbsync-async": PolicySpec(
        sync="asynchronous", weights="by_staleness:1", work="until_model", merge="reset"
    ),
    # Full rounds of fresh updates, weighted by samples (McMahan et al., 2017); 10 local steps are a start value.
    "fedavg": PolicySpec(sync="bulk:0", weights="by_samples", work="fixed:10", merge="reset"),
    # The same with one step: the mean gradient of all workers.
    "ssgd": PolicySpec(sync="bulk:0", weights="by_samples", work="fixed:1", merge="reset"),
    # Every update in full on arrival (Dean et al., 2012): divide the workers' learning rate by their number.
    "asp": PolicySpec(sync="asynchronous", weights="uniform", work="fixed:1", merge="reset"),
    # The same with a bounded lead (Ho et al., 2013); 3 to 10 steps are usual.
    "ssp": PolicySpec(sync="ssp:3", weights="uniform", work="fixed:1", merge="reset"),
    # The same with a bound that moves between 3 and 15 steps, push by push (Zhao et al., 2019).
    "dssp": PolicySpec(sync="dssp:3,15", weights="uniform", work="fixed:1", merge="reset"),
    # Asynchronous local SGD, a version from every 3 pushes (Nguyen et al., 2022): 3 to 4 suit 6 to 12 workers, the
    # paper's 10 a hundred. Weights are 1 / sqrt(1 + staleness), over 3.
    "fedbuff": PolicySpec(
        sync="buffered:3", weights="uniform*by_staleness:0.5", work="fixed:10", merge="reset"
    ),
    # One of four fragments every 25 local steps, its answer mixed in 5 steps later (Douillard et al., 2025).
    "streaming-diloco": PolicySpec(
        sync="bulk:0",
        weights="uniform",
        work="fragments:4,100,5",
        merge="mix:0.5",
        optimizer="nesterov:0.4,0.9",
    ),
    # An overlapped worker goes on from the model and its own share of its progress (Kale et al., 2025).
    "eager": PolicySpec(sync="bulk:1", weights="uniform", work="until_model", merge="eager"),
    # FedAvg with local steps held near the model (Li et al., 2020), who tuned mu over 0.001, 0.01, 0.1 and 1.
    "fedprox": PolicySpec(
        sync="bulk:0", weights="by_samples", work="fixed:10", merge="reset", proximal=0.01
    ),
    # Local steps corrected by control variates, all workers in every round (Karimireddy et al., 2020, option II).
    "scaffold": PolicySpec(
        sync="bulk:0", weights="by_steps", work="fixed:10", merge="reset", drift="infer"
    ),
    # FedAvg's rounds in which the slowest worker takes one local step and the others as many as fit (Li et al., 2020);
    # more of its steps, esync:8, suit slow links. The paper's weights are shares of the data, its prototype's are
    # uniform; both came to the same time within the noise on label-skewed digits.
    "esync": PolicySpec(sync="bulk:0", weights="by_samples", work="esync:1", merge="reset"),
    # The plain mean of models after some local steps (Stich, 2019).
    "localsgd": _averaging("uniform"),
    # Weighed by samples and per local step (Wang et al., 2020). With the same number of steps for everybody it is
    # FedAvg: it is for training loops of their own, whose steps differ, such as an epoch of a share of the data.
    "fednova": _averaging("by_steps:by_samples"),
    # A server step with momentum (Hsu et al., 2019), and the adaptive ones (Reddi et al., 2021) with the paper's beta1,
    # beta2 and tau; their learning rates are start values, the paper tunes them together with the workers'.
    "fedavgm": _averaging(optimizer="momentum:1,0.9"),
    "fedadam": _averaging(optimizer="adam:0.01,0.9,0.99,0.001"),
    "fedyogi": _averaging(optimizer="yogi:0.01,0.9,0.99,0.001"),
    "fedadagrad": _averaging(optimizer="adagrad:0.01,0,0.001"),
    # Long local phases and an outer Nesterov step (Douillard et al., 2023); the workers' optimizer is AdamW there.
    "diloco": _averaging("uniform", steps=500, optimizer="nesterov:0.7,0.9"),
    # Each worker's model is mixed in on arrival, the less the older its base, and its steps are held near the one that
    # it started from (Xie et al., 2019).
    "fedasync": _on_arrival("constant:0.6*by_staleness:0.5", 10, "mixing", 0.005),
    "fedasync-constant": _on_arrival("constant:0.6", 10, "mixing", 0.005),
    "fedasync-hinge": _on_arrival("constant:0.6*hinge:10,4", 10, "mixing", 0.005),
    # Single gradients, corrected for their delay (Zheng et al., 2017). The last number is the workers' learning rate:
    # give their own, as --compensation dcasgd:0.04,0.05.
    "dcasgd": _on_arrival("uniform", 1, "dcasgd:0.04,0.1"),
    "dcasgd-adaptive": _on_arrival("uniform", 1, "dcasgd_adaptive:2,0.95,0.1"),
}


def preset(name: str) -> PolicySpec:
    """Return the specs of an algorithm, a copy: ``ServerConfig.parse(**preset("fedavg"))``.

    Args:
        name: A key of :data:`PRESETS`.

    Raises:
        ConfigError: There is no such preset.
    """
    if name not in PRESETS:
        unknown("preset", name, PRESETS)
    return PRESETS[name].copy()
