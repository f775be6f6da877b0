"""The cells of the WAN benchmark: which data, workers and links each method meets.

With S the time of a dense push and pull on an idle link and c a fast worker's step, S/c is what decides; H is the slow
worker's step over c. A model of 50,890 values is 1.7 Mbit on the line: at c = 10 ms and a round trip of 50 ms, links of
100, 20, 10, 5 and 2 Mbit/s come to S/c = 8, 22, 39, 73 and 175.
"""

from __future__ import annotations

from aiops.lab.method import Method
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers

STEP_S = 0.01

# Held for every method and seed: partitions of different seeds differ in difficulty by up to a factor of two.
SPLIT_SEED = 0

SEEDS = (0, 1, 2, 3, 4)
# None of the seeds that are compared.
TUNING_SEEDS = (100, 101)

# About two points below what the model comes to with each split, so that the best methods take 30 rounds and more.
TARGETS = {0.3: 0.85, 0.1: 0.82, None: 0.86}
CNN_TARGETS = {0.3: 0.85}


def cell(
    mbit: float,
    *,
    slow: float = 4.0,
    alpha: float | None = 0.3,
    rtt_ms: float = 50.0,
    count: int = 6,
    model: str = "mlp",
    budget_s: float = 400.0,
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
        budget_s: Longest run.
        congestion: TCP congestion control, in the real lab.
        loss: Share of packets lost, in the real lab.
    """
    target = (CNN_TARGETS if model == "cnn" else TARGETS)[alpha]
    skew = "iid" if alpha is None else f"a{alpha:g}"
    name = f"{model}-{count}w-{mbit:g}mbit-rtt{rtt_ms:g}-h{slow:g}-{skew}"
    if loss:
        name += f"-{congestion}-loss{loss:g}"
    return Scenario(
        name=name,
        seeds=SEEDS,
        target=target,
        budget_s=budget_s,
        eval_s=0.1,
        data=Data(n_train=12_000, n_test=2_000, alpha=alpha, split_seed=SPLIT_SEED),
        model=Model(name="cnn") if model == "cnn" else Model(name="mlp", hidden=(64,)),
        workers=Workers(
            count=count,
            step_s=STEP_S,
            slowdown=(1.0,) * (count - count // 6) + (slow,) * (count // 6),
        ),
        link=Link(up_mbit=mbit, delay_ms=rtt_ms / 2, congestion=congestion, loss=loss),
    )


MAIN = tuple(cell(mbit, slow=slow) for mbit in (100.0, 20.0, 5.0) for slow in (1.0, 4.0, 10.0, 50.0))
MORE = (
    cell(10.0),
    *(cell(mbit, rtt_ms=20.0) for mbit in (100.0, 20.0, 5.0)),
    *(cell(mbit, count=12) for mbit in (20.0, 5.0)),
    cell(20.0, alpha=None),
    cell(20.0, model="cnn"),
)
SKEWED = (cell(10.0, alpha=0.1),)
COMPRESSED = (cell(10.0), cell(5.0), cell(2.0, budget_s=1200.0))
QUICK = (cell(20.0), cell(5.0))

LRS = (0.05, 0.1, 0.2, 0.4)
STEPS = (5, 10, 20, 40)


def _rounds(label: str, algorithm: str, work: str, **settings: str) -> Method:
    return Method(
        label=label,
        algorithm=algorithm,
        settings={"work": work, **settings},
        grid={"lr": LRS, "tau": STEPS},
    )


# Every method has the same 16 points. Weights are those of the publications where these say: FedAvg's and ESync's n_k / n
# is the share of the data.
RIVALS = (
    Method(
        label="ssgd",
        algorithm="ssgd",
        settings={"weights": "by_data"},
        grid={"lr": tuple(round(0.05 * 2 ** (k / 3), 3) for k in range(16))},
    ),
    _rounds("fedavg", "fedavg", "fixed:{tau}", weights="by_data"),
    _rounds("fedasync", "fedasync", "fixed:{tau}"),
    _rounds("fedbuff", "fedbuff", "fixed:{tau}"),
    _rounds("esync", "esync", "esync:{tau}", weights="by_data"),
    _rounds("diloco", "diloco", "fixed:{tau}"),
    Method(
        label="cocod",
        algorithm="nbsync",
        settings={"merge": "carry", "weights": "by_data", "work": "until_model:{tau}"},
        grid={"lr": LRS, "tau": (1, 10, 20, 40)},
    ),
    Method(
        label="eager",
        algorithm="eager",
        settings={"weights": "by_data", "work": "until_model:{tau}"},
        grid={"lr": LRS, "tau": (1, 10, 20, 40)},
    ),
    _rounds("streaming-diloco", "streaming-diloco", "fragments:4,{tau},4"),
)
