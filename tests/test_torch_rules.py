"""attach(): what the server has its workers do beside plain local steps, on a real server over real sockets."""

import threading

import pytest

torch = pytest.importorskip("torch")

import aiops.torch  # noqa: E402
from aiops.api.serving import serve  # noqa: E402
from aiops.errors import ConfigError  # noqa: E402
from aiops.sync import LoopThread  # noqa: E402


@pytest.fixture
def serving():
    """Start servers in a loop of their own; returns a function that gives a running server."""
    thread = LoopThread("server")
    servers = []

    def start(**spec):
        async def enter():
            return await serve(**spec).__aenter__()

        servers.append(thread.run(enter()))
        return servers[-1]

    yield start
    for server in servers:
        thread.run(server.stop())
    thread.close()


class Well(torch.nn.Module):
    """f(w, b) = curve * ((w - at)^2 + (b - at)^2) / 2 per value, and a statistic that counts in tenths."""

    def __init__(self, at=0.0, curve=1.0):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3, 2).t())
        self.b = torch.nn.Parameter(torch.zeros(()))
        self.register_buffer("seen", torch.zeros(2))
        self.at, self.curve = at, curve

    def forward(self):
        self.seen += 0.1
        return self.curve * (((self.w - self.at) ** 2).sum() + (self.b - self.at) ** 2) / 2


def train(model, link, n, *, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(n):
        model().backward()
        optimizer.step()
        optimizer.zero_grad()
        link.step()


def attach(model, server, **more):
    return aiops.torch.attach(
        model, torch.optim.SGD(model.parameters(), lr=0.1), server.url, **more
    )


def together(*work):
    threads = [threading.Thread(target=function) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize("drift", ["off", "infer"])
def test_two_skewed_workers_find_the_optimum_of_both_where_their_drift_is_corrected(serving, drift):
    server = serving(
        sync="bulk:0", work="fixed:8", weights="by_steps", min_workers=2, rounds=40, drift=drift
    )

    def worker(at, curve):
        model = Well(at, curve)
        with attach(model, server) as link:
            while not link.done:
                train(model, link, 1)

    together(lambda: worker(1.0, 0.5), lambda: worker(-2.0, 3.0))
    # (0.5 * 1 + 3 * -2) / 3.5; both drift to their own optima otherwise.
    params = server.params()
    off = [abs(float(value) + 11 / 7) for name in "wb" for value in params[name].flatten()]
    assert (max(off) < 1e-3) == (drift == "infer")
    assert min(off) > 0.3 or drift == "infer"
    # What is counted by both alike comes out as counted: statistics are not corrected.
    assert params["seen"] == pytest.approx([32.0, 32.0], rel=1e-3)


def test_what_a_half_precision_module_rounds_away_is_not_corrected(serving):
    server = serving(work="fixed:8", sync="bulk:0", weights="by_steps", drift="infer")
    with pytest.raises(ConfigError, match="drift 'infer' adds to the parameters what 16-bit"):
        attach(Well().to(torch.bfloat16), server)


def test_a_merge_rule_that_drift_correction_diverges_with_is_refused(serving):
    server = serving(merge="partial:0.5", weights="by_steps", drift="infer")
    with pytest.raises(ConfigError, match="needs merge partial with 0 < beta < 1, not 'eager'"):
        attach(Well(), server, merge="eager")
    with attach(Well(), server, merge="partial:0.25"):
        pass
