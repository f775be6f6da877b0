"""attach(): what the server has its workers do beside plain local steps, on a real server over real sockets."""

import threading

import pytest

torch = pytest.importorskip("torch")

import aiops.torch  # noqa: E402
from aiops.api.connecting import connect  # noqa: E402
from aiops.errors import ConfigError  # noqa: E402
from aiops.policy.auto import UP_DENSITY  # noqa: E402
from aiops.policy.base import Change, Choice  # noqa: E402
from aiops.policy.weight import by_steps  # noqa: E402
from aiops.sync import Link  # noqa: E402
from aiops.types import TensorSpec  # noqa: E402


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
    with pytest.raises(ConfigError, match="drift correction adds to the parameters what 16-bit"):
        attach(Well().to(torch.bfloat16), server)


def test_a_merge_rule_that_drift_correction_diverges_with_is_refused(serving):
    server = serving(merge="partial:0.5", weights="by_steps", drift="infer")
    with pytest.raises(ConfigError, match="needs merge partial with 0 < beta < 1, not 'eager'"):
        attach(Well(), server, merge="eager")
    with attach(Well(), server, merge="partial:0.25"):
        pass


@pytest.mark.parametrize("work", ["fixed:3", "until_model:3"])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda params: torch.optim.SGD(params, lr=0.1), id="sgd"),
        pytest.param(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), id="momentum"),
        pytest.param(lambda params: torch.optim.Adam(params, lr=0.1), id="adam"),
    ],
)
def test_the_proximal_term_is_that_of_a_loss_which_has_it(serving, work, make):
    mu = 0.7
    server = serving(work=work, proximal=mu)
    models = [Well(2.0), Well(2.0)]
    optimizers = [make(model.parameters()) for model in models]
    anchor = [param.detach().clone() for param in models[1].parameters()]
    with aiops.torch.attach(models[0], optimizers[0], server.url) as link:
        # Of the first phase; after it the two models are no longer the same.
        for _ in range(3):
            params = zip(models[1].parameters(), anchor, strict=True)
            term = sum(((param - start) ** 2).sum() for param, start in params) * mu / 2
            for model, extra in zip(models, (0.0, term), strict=True):
                (model() + extra).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
                assert torch.allclose(mine, theirs, atol=1e-6)
            link.step()
        while link.version == 0:
            models[0]().backward()
            optimizers[0].step()
            link.step()
        # The anchor is the model that has come since.
        w = torch.from_numpy(link._machine.proximal.anchor[:6]).view(2, 3)
        assert (w != 0).all()
        # An overlapped server is a version further by now.
        if not link.overlap:
            assert torch.equal(w, torch.from_numpy(server.params()["w"]))


def test_a_closed_link_leaves_the_optimizer_as_it_was(serving):
    server = serving(work="fixed:3", proximal=5.0)
    model = Well(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    link = aiops.torch.attach(model, optimizer, server.url)
    train(model, link, 2)
    link.close(flush=False)
    with torch.no_grad():
        model.w.fill_(0.5)
    model().backward()
    optimizer.step()
    assert model.w.detach().numpy() == pytest.approx(0.55)


def test_a_loop_that_adds_no_proximal_term_is_refused_by_a_server_that_has_one(serving):
    server = serving(proximal=0.5)
    specs = [TensorSpec("w", (2,), "float32")]
    client = connect(server.url)
    with pytest.raises(
        ConfigError, match=r"a proximal term of 0\.5, which this training loop does"
    ):
        Link(client, specs, gather=lambda flat: flat.fill(0), scatter=lambda flat: None)


@pytest.mark.parametrize("delay", [0, 3])
def test_a_model_in_fragments_trains_two_workers_to_the_optimum_of_both(serving, delay):
    server = serving(
        sync="bulk:0",
        weights="uniform",
        work=f"fragments:2,8,{delay}",
        merge="mix:0.5",
        bucket_bytes=16,
        min_workers=2,
        rounds=80,
    )
    models, links = [Well(1.0), Well(-2.0)], [None, None]

    def worker(i):
        with attach(models[i], server) as links[i]:
            # Seven parameters make four buckets and two statistics one; the last fragment has three of them.
            while not links[i].done:
                train(models[i], links[i], 1)

    together(lambda: worker(0), lambda: worker(1))
    assert server.version == 80
    params = server.params()
    for name in "wb":
        assert params[name].flatten() == pytest.approx(-0.5, abs=1e-3)
        # At the end all hold the global model, every fragment of it.
        for model in models:
            assert (dict(model.named_parameters())[name].detach().numpy() == params[name]).all()
    for link in links:
        assert link.meter.rounds == 80
        assert link._machine.restarts == 0
        # Who pushes without delay waits for the answer.
        assert delay or link.meter.waits > 0


def test_a_worker_leaves_a_model_in_fragments_with_the_newest_one(serving):
    server = serving(work="fragments:2,4,1", merge="mix", bucket_bytes=16)
    model = Well(1.0)
    with attach(model, server) as link:
        train(model, link, 11)
    # Five pushes; what was done since stays behind.
    assert server.version == 5
    assert (model.w.detach().numpy() == server.params()["w"]).all()
    assert link.version >= 4


def test_a_model_in_fragments_takes_no_half_precision_and_no_other_merge_rule(serving):
    spec = {"work": "fragments:2,4,1", "merge": "mix", "bucket_bytes": 16}
    with pytest.raises(ConfigError, match="fragments would push what they round: train in float32"):
        attach(Well().to(torch.bfloat16), serving(**spec))
    server = serving(**spec)
    with pytest.raises(ConfigError, match="merge is 'reset', a model in fragments is merged by"):
        attach(Well(), server, merge="reset")
    with attach(Well(), server, merge="mix:0.25") as link:
        assert link._machine._alpha == 0.25


class Script:
    """Decides what is written down, by version."""

    measuring = range(0)

    def decide(self, seen):
        choice = {3: Choice.TOPK, 8: Choice.PLAIN, 12: Choice.DRIFT}.get(seen.version)
        return choice and Change(choice, f"it is {choice.value}")

    def agreement(self, cosines, losses):
        return None

    def dense_s(self, before_s, settled_s, now_s, *, share):
        return now_s

    def corrected(self, weights):
        return by_steps(weights)


def test_two_workers_follow_a_policy_that_changes_while_they_train(serving):
    server = serving(auto=True, weights="uniform", min_workers=2, rounds=60, shared_memory=False)
    server.service.autopilot._policy = Script()
    models, links = [Well(1.0), Well(-2.0)], [None, None]
    codecs, corrected = set(), [False, False]

    def worker(i):
        with attach(models[i], server) as links[i]:
            while not links[i].done:
                train(models[i], links[i], 1)
                codecs.add(links[i]._client.policy.codec)
                corrected[i] |= links[i]._machine.correction is not None

    together(lambda: worker(0), lambda: worker(1))
    assert server.version == 60
    assert codecs == {"dense", f"topk_int8:{UP_DENSITY}"}
    assert corrected == [True, True]
    assert server.status()["auto"]["on"] == "drift"
    params = server.params()
    for name in "wb":
        assert params[name].flatten() == pytest.approx(-0.5, abs=0.05)
    assert [link._machine.restarts for link in links] == [0, 0]
