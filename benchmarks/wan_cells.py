"""The cells of the WAN benchmark: which data, workers and links each method meets, and what of each method is tuned.

With S the time of a dense push and pull on an idle link and c a fast worker's step, S/c is what decides; H is the slow
worker's step over c. A perceptron of 50,890 values is 1.7 Mbit on the line: at c = 10 ms and a round trip of 50 ms,
links of 100, 20, 10, 5 and 2 Mbit/s come to S/c = 8, 22, 39, 73 and 175.
"""

from __future__ import annotations

from aiops.lab.method import Method
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers

STEP_S = 0.01

# Held for every method and seed: partitions of different seeds differ in difficulty by up to a factor of two.
SPLIT_SEED = 0

SEEDS = (0, 1, 2, 3, 4)
# None of those that are compared.
TUNING_SEEDS = (100, 101)

# About two points below what the models come to, so that the best methods take 30 rounds and more.
TARGETS = {("mlp", 0.3): 0.84, ("mlp", 0.1): 0.80, ("mlp", None): 0.86, ("cnn", 0.3): 0.84}


def cell(
    mbit: float,
    *,
    slow: float = 4.0,
    alpha: float | None = 0.3,
    rtt_ms: float = 50.0,
    count: int = 6,
    model: str = "mlp",
    budget_s: float = 60.0,
    congestion: str = "bbr",
    loss: float = 0.0,
) -> Scenario:
    """Return a cell: one worker in six is ``slow`` times as slow as the others.

    Args:
        mbit: Rate of every link, each way.
        slow: The slow workers' step over a fast one's.
        alpha: Dirichlet concentration of the label skew; None is IID.
        rtt_ms: Round trip.
        count: Workers.
        model: "mlp" or "cnn".
        budget_s: Longest run: about four times what the best methods take.
        congestion: TCP congestion control, in the real lab.
        loss: Share of packets lost, in the real lab.
    """
    skew = "iid" if alpha is None else f"a{alpha:g}"
    name = f"{model}-{count}w-{mbit:g}mbit-rtt{rtt_ms:g}-h{slow:g}-{skew}"
    slow_ones = count // 6
    return Scenario(
        name=name + (f"-{congestion}-loss{loss:g}" if loss else ""),
        seeds=SEEDS,
        target=TARGETS[model, alpha],
        budget_s=budget_s,
        eval_s=0.25,
        data=Data(n_train=60_000, n_test=4_000, alpha=alpha, split_seed=SPLIT_SEED),
        model=Model(name="cnn") if model == "cnn" else Model(name="mlp", hidden=(64,)),
        workers=Workers(
            count=count,
            step_s=STEP_S,
            slowdown=(1.0,) * (count - slow_ones) + (slow,) * slow_ones,
        ),
        link=Link(up_mbit=mbit, delay_ms=rtt_ms / 2, congestion=congestion, loss=loss),
    )


# Links so fast that the best methods take 7 to 19 s.
FAST = {"budget_s": 40.0}
GRID = (
    *(cell(mbit, slow=slow) for mbit in (20.0, 5.0) for slow in (4.0, 1.0, 10.0, 50.0)),
    *(cell(100.0, slow=slow, **FAST) for slow in (4.0, 1.0, 10.0, 50.0)),
)
MORE = (
    cell(10.0),
    *(cell(mbit, rtt_ms=20.0) for mbit in (20.0, 5.0)),
    cell(100.0, rtt_ms=20.0, **FAST),
    *(cell(mbit, count=12) for mbit in (20.0, 5.0)),
    cell(20.0, alpha=None),
    cell(20.0, model="cnn"),
)
SKEWED = (cell(10.0, alpha=0.1),)
# How far tuned FedAvg is behind is to be seen here.
COMPRESSED = (cell(10.0, budget_s=150.0), cell(5.0, budget_s=150.0), cell(2.0, budget_s=400.0))
QUICK = (cell(20.0), cell(5.0))

# The likely best first: what is hopeless after that is given up early. In the cells that were searched widely first,
# nobody who arrived with every seed did best at either end, so that others like them are searched finely in between.
WIDE = (0.2, 0.1, 0.4, 0.05)
FINE = (0.2, 0.1, 0.14, 0.28)

# Local steps of the slowest worker per round, by H: they make windows of about 10 to 160 fast steps.
STEPS = {1.0: (40, 20, 80, 10), 4.0: (20, 10, 40, 5), 10.0: (5, 10, 2, 20), 50.0: (2, 1, 5, 10)}

# A chunk that takes a fraction of the model, but not so little that frames cost.
CHUNK_BYTES = 16 * 1024

# What several of our methods have in common: numbers that are tuned, and settings.
LEAST = {"least": (1, 10, 20, 40)}
FLOOR = {"floor": (8, 16, 32, 64)}
OUTER = {"outer": ("nesterov:0.5,0.8", "nesterov:0.7,0.6", "nesterov:0.3,0.9", "sgd")}
PLAN = {"merge": "partial:0.5", "weights": "by_data", "work": "fill_the_sync:{floor}"}
WHOLE = {**PLAN, "work": "fill_the_sync:8", "optimizer": "{outer}"}


Lrs = tuple[float, ...]


def lrs_of(scenario: Scenario) -> Lrs:
    """Return the learning rates that every method is tried with."""
    known = scenario.model.name == "mlp" and scenario.data.skew == 0.3
    return FINE if known and scenario not in QUICK else WIDE


def _method(
    label: str, algorithm: str, lrs: Lrs, grid: dict[str, tuple[object, ...]], **settings: object
) -> Method:
    return Method(label=label, algorithm=algorithm, settings=settings, grid={"lr": lrs, **grid})


def rivals(slow: float, lrs: Lrs) -> tuple[Method, ...]:
    """Return the methods of others, for a slow worker that takes ``slow`` times as long; each has 16 points.

    Weights are n_k / n where the publication says so, which is the share of the data.
    """
    tau = {"tau": STEPS[slow]}
    fixed = "fixed:{tau}"
    least = {"tau": (1, 10, 20, 40)}
    fragments = {
        "work": ("fragments:4,32,7", "fragments:4,64,15", "fragments:4,128,31", "fragments:2,32,15")
    }
    return (
        Method(
            label="ssgd",
            algorithm="ssgd",
            settings={"weights": "by_data"},
            grid={"lr": tuple(round(0.05 * 2 ** (k / 3), 3) for k in range(16))},
        ),
        _method("fedavg", "fedavg", lrs, tau, work=fixed, weights="by_data"),
        _method("fedasync", "fedasync", lrs, tau, work=fixed),
        _method("fedbuff", "fedbuff", lrs, tau, work=fixed),
        _method("esync", "esync", lrs, tau, work="esync:{tau}", weights="by_data"),
        _method("diloco", "diloco", lrs, tau, work=fixed),
        _method(
            "cocod",
            "nbsync",
            lrs,
            least,
            merge="carry",
            weights="by_data",
            work="until_model:{tau}",
        ),
        _method("eager", "eager", lrs, least, weights="by_data", work="until_model:{tau}"),
        _method("streaming-diloco", "streaming-diloco", lrs, fragments, work="{work}"),
    )


def ours(lrs: Lrs) -> tuple[Method, ...]:
    """Return the paper's NBSync and the best of ours; each has 16 points."""
    return (
        _method("nbsync", "nbsync", lrs, LEAST, work="until_model:{least}", weights="uniform"),
        _method("nbsync stream outer", "nbsync", lrs, OUTER, **WHOLE, stream_bytes=CHUNK_BYTES),
    )


def parts(lrs: Lrs) -> tuple[Method, ...]:
    """Return NBSync with one part of ours after the other; each has 16 points."""
    streamed = {"stream_bytes": CHUNK_BYTES}
    drift = {**PLAN, "weights": "by_steps:by_data", "drift": "infer"}
    return (
        _method("nbsync partial", "nbsync", lrs, FLOOR, **PLAN),
        _method("nbsync stream", "nbsync", lrs, FLOOR, **PLAN, **streamed),
        _method("nbsync outer", "nbsync", lrs, OUTER, **WHOLE),
        _method("nbsync auto", "nbsync", lrs, FLOOR, **PLAN, auto=True),
        _method("nbsync stream drift", "nbsync", lrs, FLOOR, **drift, **streamed),
    )


def borrowed() -> tuple[Method, ...]:
    """Return ESync with our outer step, and with streaming, too; each has 16 points."""
    lrs, grid = (0.2, 0.1), {"tau": (20, 10), **OUTER}
    settings = {"work": "esync:{tau}", "weights": "by_data", "optimizer": "{outer}"}
    return (
        _method("esync outer", "esync", lrs, grid, **settings),
        _method("esync stream outer", "esync", lrs, grid, **settings, stream_bytes=CHUNK_BYTES),
    )


def compressed() -> tuple[Method, ...]:
    """Return methods with Top-k and error feedback both ways, for a slow worker 4 times as slow; each has 16 points.

    Rounds are short, so that fewer steps are tried than without. What the workers' choices sum up to has more values
    than each of them, so that more of them travel down; int8 halves what a value and its place take.
    """
    lrs, density = (0.2, 0.14), {"density": (0.05, 0.03)}
    topk = {"codec": "topk_int8:{density}", "down": "topk_int8:0.1"}
    tau, shorter = {**density, "tau": (5, 10, 20, 2)}, {**density, "floor": (8, 16, 4, 32)}
    few = {**density, "outer": ("nesterov:0.7,0.6", "nesterov:0.7,0.3"), "floor": (8, 16)}
    mean = {"weights": "by_data", **topk}
    return (
        _method("fedavg topk", "fedavg", lrs, tau, work="fixed:{tau}", **mean),
        _method("esync topk", "esync", lrs, tau, work="esync:{tau}", **mean),
        _method("diloco topk", "diloco", lrs, tau, work="fixed:{tau}", **topk),
        _method("nbsync topk", "nbsync", lrs, shorter, **PLAN, **topk),
        _method("nbsync topk outer", "nbsync", lrs, few, **PLAN, **topk, optimizer="{outer}"),
    )


def skewed(slow: float, lrs: Lrs) -> tuple[Method, ...]:
    """Return the blocking methods with the same drift correction as ours; each has 16 points."""
    tau = {"tau": STEPS[slow]}
    steps = {"weights": "by_steps:by_data", "drift": "infer"}
    return (
        _method("scaffold", "scaffold", lrs, tau, work="fixed:{tau}", **steps),
        _method("esync drift", "esync", lrs, tau, work="esync:{tau}", **steps),
    )
