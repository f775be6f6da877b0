"""attach(): an ordinary PyTorch loop against a real server, over real sockets, from threads as users run them."""

import asyncio
import copy
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

torch = pytest.importorskip("torch")

import aiops.torch  # noqa: E402
from aiops.errors import (  # noqa: E402
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    NotFinite,
    ShapeMismatch,
)
from tests.certificates import Authority  # noqa: E402


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )


def sgd(model, lr=0.05):
    return torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=lr)


def steps(model, optimizer, link, n, *, seed=0):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(n):
        x = torch.randn(16, 4, generator=draw)
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        link.step(n_samples=len(x))


def together(*work):
    """Run functions in threads of their own; raises what the first failing one raised."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def flat(model):
    return torch.cat([t.detach().double().flatten() for t in model.state_dict().values()])


@pytest.mark.parametrize("work", ["until_model", "fixed:3"])
def test_models_are_streamed_to_attached_modules_too(serving, work):
    server = serving(work=work, min_workers=2, stream_bytes=64, rounds=3)
    models = [net(i) for i in range(2)]

    def worker(model):
        optimizer = sgd(model)
        with aiops.torch.attach(model, optimizer, server.url) as link:
            while not link.done:
                steps(model, optimizer, link, 1)

    together(*(lambda model=model: worker(model) for model in models))
    assert server.version == 3
    assert server.status()["counters"]["chunks_ahead"] > 0
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


# With more to do than there are cores, a compute thread comes to its update before the model could arrive.
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_three_lines_train_two_workers_and_nobody_waits(serving):
    server = serving(work="until_model", min_workers=2)
    losses, meters = {}, {}

    def worker(i):
        model = net(i)
        optimizer = sgd(model)
        link = aiops.torch.attach(model, optimizer, server.url)
        steps(model, optimizer, link, 200, seed=i)
        # Three loops share one interpreter here: how many steps a round takes is the threads' affair.
        while server.version < 4:
            steps(model, optimizer, link, 1, seed=i)
        meters[i] = link.meter
        link.close()
        x = torch.randn(500, 4, generator=torch.Generator().manual_seed(9))
        losses[i] = float(((model.eval()(x) - x.sum(1, keepdim=True)) ** 2).mean().detach())

    together(lambda: worker(0), lambda: worker(1))
    assert server.version > 3
    assert all(loss < 1.0 for loss in losses.values()), losses
    for meter in meters.values():
        # The compute thread never waited for the network.
        assert (meter.waits, meter.wait_s) == (0, 0.0)
        assert meter.n_steps >= 200
        assert meter.overlap_ratio > 0.5


def test_blocking_workers_hold_the_same_bits_after_every_round(serving):
    server = serving(work="fixed:5", min_workers=2)
    models = [net(0), net(1)]
    seen = {0: [], 1: []}

    def worker(i):
        optimizer = sgd(models[i])
        with aiops.torch.attach(models[i], optimizer, server.url) as link:
            for r in range(4):
                steps(models[i], optimizer, link, 5, seed=10 * i + r)
                seen[i].append((link.version, flat(models[i])[:-1].numpy().tobytes()))
            assert link.meter.waits == link.meter.rounds == 4

    together(lambda: worker(0), lambda: worker(1))
    assert [version for version, _ in seen[0]] == [1, 2, 3, 4]
    assert [v for v, _ in seen[1]] == [1, 2, 3, 4]
    # num_batches_tracked is an integer and stays with its worker; it is 40th of 60 values, so compare by name.
    for name in models[0].state_dict():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(models[0].state_dict()[name], models[1].state_dict()[name]), name


@pytest.mark.parametrize("work", ["fixed:3", "until_model"])
def test_attached_modules_share_the_positions_of_what_they_push(serving, work):
    codec = "artopk:0.2"
    server = serving(work=work, min_workers=2, rounds=8, codec=codec, down=codec)
    models = [net(0), net(1)]

    def worker(i):
        optimizer = sgd(models[i])
        with aiops.torch.attach(models[i], optimizer, server.url) as link:
            while not link.done:
                steps(models[i], optimizer, link, 1, seed=i)
            assert link.state_dict()["residuals"][0].any()

    together(lambda: worker(0), lambda: worker(1))
    assert server.status()["counters"]["choices"] >= 8
    for name in models[0].state_dict():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(models[0].state_dict()[name], models[1].state_dict()[name]), name


def test_under_esync_the_fast_worker_fills_the_slow_ones_time(serving):
    server = serving(sync="bulk:0", work="esync", min_workers=2, rounds=12)
    models, done, versions = [net(0), net(1)], {}, {}

    def worker(i, step_s):
        optimizer = sgd(models[i])
        with aiops.torch.attach(models[i], optimizer, server.url) as link:
            while not link.done:
                time.sleep(step_s)
                steps(models[i], optimizer, link, 1, seed=link.meter.n_steps)
            done[i], versions[i] = list(link.meter.steps_per_round), link.version
            assert not link.overlap
            assert link.meter.waits == link.meter.rounds == 12

    together(lambda: worker(0, 0.005), lambda: worker(1, 0.05))
    fast, slow = done[0][2:], done[1][2:]
    # Eight or so fast steps fit into a slow one on an idle machine; a busy one leaves less of the difference.
    assert sum(fast) >= 1.5 * sum(slow), done
    assert sum(slow) <= 2 * len(slow), done
    for name in models[0].state_dict():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(models[0].state_dict()[name], models[1].state_dict()[name]), name
    assert server.status()["counters"]["queries"] > 24


def test_one_blocking_worker_equals_plain_local_training_to_the_last_bit(serving):
    server = serving(work="fixed:1", weights="uniform")
    alone, attached = net(3), net(3)
    optimizer = sgd(attached)
    with aiops.torch.attach(attached, optimizer, server.url) as link:
        steps(attached, optimizer, link, 20)

    class Nothing:
        def step(self, **_):
            pass

    steps(alone, sgd(alone), Nothing(), 20)
    # params + (new - params) rounds once more than the optimizer does: equal to one unit in the last place.
    torch.testing.assert_close(flat(alone), flat(attached), rtol=0, atol=3e-7)


def test_a_later_worker_receives_the_servers_parameters_and_buffers(serving):
    server = serving(work="fixed:5")
    first, second = net(0), net(1)
    optimizer = sgd(first)
    with aiops.torch.attach(first, optimizer, server.url) as link:
        steps(first, optimizer, link, 10)
        with aiops.torch.attach(second, sgd(second), server.url) as late:
            assert late.version == 2
            assert torch.equal(second[0].weight, first[0].weight)
            assert torch.equal(second[1].running_mean, first[1].running_mean)
            assert second[1].running_mean.abs().sum() > 0


def test_buffers_can_be_left_out(serving):
    server = serving(work="fixed:1")
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url, buffers=False) as link:
        steps(model, optimizer, link, 2)
        assert server.params().keys() == dict(model.named_parameters()).keys()


def test_frozen_parameters_are_not_sent_and_stay_as_they_are(serving):
    server = serving(work="fixed:1")
    model = net()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        steps(model, optimizer, link, 3)
    assert "0.weight" not in server.params()
    assert torch.equal(model[0].weight, before)


def test_sixteen_bit_parameters_train_and_their_rounding_is_not_pushed(serving):
    server = serving(work="fixed:1")
    model = torch.nn.Linear(8, 4).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        kept = flat(model)
        for _ in range(5):
            # Nothing is trained, so nothing may move, however the rounding falls.
            optimizer.zero_grad()
            link.step()
        assert torch.equal(flat(model), kept)
        model(torch.ones(2, 8, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        moved = flat(model)
        link.step()
        assert not torch.equal(moved, kept)
        assert torch.equal(flat(model), moved)
    assert server.params()["weight"].dtype == "float32"


def test_a_parameter_in_any_memory_layout_arrives_where_it_belongs(serving):
    server = serving(work="fixed:1")
    model = torch.nn.Linear(6, 4, bias=False)
    model.weight = torch.nn.Parameter(torch.arange(24.0).reshape(6, 4).t())
    assert not model.weight.is_contiguous()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        model(torch.eye(6)).sum().backward()
        optimizer.step()
        link.step()
        assert torch.equal(model.weight, torch.arange(24.0).reshape(6, 4).t() - 1)
        assert not model.weight.is_contiguous()
    assert (server.params()["weight"] == model.weight.detach().numpy()).all()


def test_residuals_survive_a_checkpoint(serving):
    server = serving(work="fixed:1", codec="topk:0.1")
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        steps(model, optimizer, link, 3)
        state = copy.deepcopy(link.state_dict())
    assert state["clock"] == 3
    assert state["residuals"][0].abs().sum() > 0
    with aiops.torch.attach(model, optimizer, server.url) as link:
        link.load_state_dict(state)
        again = link.state_dict()
        assert again["clock"] == 3
        assert torch.equal(again["residuals"][0], state["residuals"][0])
        with pytest.raises(ConfigError, match="state has no clock, residuals"):
            link.load_state_dict({"n_values": 1})
        with pytest.raises(ConfigError, match="state is of 7 values, the model has"):
            link.load_state_dict({**state, "n_values": 7})


def test_the_module_holds_the_newest_global_model_after_close(serving):
    server = serving(work="until_model")
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        steps(model, optimizer, link, 30)
    for name, value in server.params().items():
        assert (model.state_dict()[name].numpy() == value).all(), name


def test_nothing_is_flushed_when_the_loop_ends_with_an_error(serving):
    server = serving(work="fixed:100")
    model = net()
    optimizer = sgd(model)

    def fail():
        with aiops.torch.attach(model, optimizer, server.url) as link:
            steps(model, optimizer, link, 3)
            raise FloatingPointError("loss is NaN")

    with pytest.raises(FloatingPointError, match="loss is NaN"):
        fail()
    assert server.version == 0


def test_the_end_of_training_is_told_and_the_final_model_loaded(serving):
    server = serving(work="fixed:2", rounds=3)
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        for _ in range(100):
            steps(model, optimizer, link, 1)
            if link.done:
                break
        assert link.meter.n_steps == 6
    assert (model.state_dict()["0.weight"].numpy() == server.params()["0.weight"]).all()


@pytest.mark.parametrize("merge", ["reset", "carry", "eager", "mix", "partial"])
def test_every_merge_rule_can_be_chosen_by_the_worker(serving, merge):
    server = serving(work="until_model")
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url, merge=merge, beta=0.5) as link:
        # The server shares this process's interpreter, so how many steps a round takes is the threads' affair.
        while link.meter.rounds < 2:
            steps(model, optimizer, link, 1)
        assert torch.isfinite(flat(model)).all()


def test_a_module_is_attached_over_mutual_tls(serving, tmp_path):
    authority = Authority(tmp_path)
    server = serving(tls=authority.server())
    model = net()
    with aiops.torch.attach(model, sgd(model), server.url, tls=authority.worker()) as link:
        steps(model, sgd(model), link, 3)
    assert server.version >= 1


def test_what_cannot_be_attached_is_refused_before_any_socket_opens():
    model = net()
    nowhere = "aiops://127.0.0.1:1"
    with pytest.raises(ConfigError, match="unknown merge 'partail'"):
        aiops.torch.attach(model, sgd(model), nowhere, merge="partail")
    with pytest.raises(ConfigError, match="scheme 'http' is unknown"):
        aiops.torch.attach(model, sgd(model), "http://localhost")
    with pytest.raises(ConfigError, match="optimizer has none of the module's parameters"):
        aiops.torch.attach(model, sgd(net()), nowhere)
    with pytest.raises(ConfigError, match="no parameter that requires a gradient"):
        aiops.torch.attach(net().requires_grad_(False), sgd(model), nowhere)
    odd = torch.nn.Linear(2, 2, bias=False, dtype=torch.complex64)
    with pytest.raises(ConfigError, match="tensor 'weight' is complex64, known are float32"):
        aiops.torch.attach(odd, torch.optim.SGD(odd.parameters(), lr=1.0), nowhere)


def test_a_missing_server_is_told_with_its_address():
    model = net()
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1: Connection refused"):
        aiops.torch.attach(model, sgd(model), "aiops://127.0.0.1:1", connect_timeout_s=0.2)


def test_another_model_is_refused_with_the_first_tensor_that_differs(serving):
    server = serving()
    first, other = net(), torch.nn.Linear(4, 9)
    with ExitStack() as stack:
        stack.enter_context(aiops.torch.attach(first, sgd(first), server.url))
        with pytest.raises(ShapeMismatch, match=r"tensor 'weight' stands where '0\.weight'"):
            aiops.torch.attach(other, sgd(other), server.url)


def test_a_server_that_is_gone_for_good_ends_the_loop_with_a_typed_error(serving):
    server = serving(work="fixed:1")
    model = net()
    optimizer = sgd(model)
    link = aiops.torch.attach(model, optimizer, server.url, give_up_s=0.3)
    steps(model, optimizer, link, 2)
    loop = server.service._loop
    asyncio.run_coroutine_threadsafe(server._listener.close(), loop).result()
    loop.call_soon_threadsafe(server.service.stop, "gone")
    with pytest.raises(ConnectFailed):
        steps(model, optimizer, link, 1000)
    link.close()


@pytest.mark.parametrize("codec", ["dense", "topk:0.1", "fp16"])
def test_running_statistics_are_averaged_as_values_and_never_leave_their_range(serving, codec):
    # Long phases: a change since the base, one version late, would swing around the true value and below zero.
    server = serving(work="until_model:25,50", codec=codec)
    model = net()
    optimizer = sgd(model, lr=1e-3)
    seen = []
    with aiops.torch.attach(model, optimizer, server.url) as link:
        draw = torch.Generator().manual_seed(1)
        for _ in range(300):
            x = 0.05 * torch.randn(16, 4, generator=draw)
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            link.step(n_samples=16)
            seen.append(float(model[1].running_var.min()))
    assert min(seen) > 0
    assert (server.params()["1.running_var"] > 0).all()
    assert torch.isfinite(model.eval()(x)).all()


def test_blocking_statistics_are_the_mean_over_the_workers(serving):
    server = serving(work="fixed:1", min_workers=2, weights="uniform", server_lr=0.5)
    values = {0: 2.0, 1: 4.0}

    def worker(i):
        model = net()
        optimizer = sgd(model)
        with aiops.torch.attach(model, optimizer, server.url) as link:
            model[1].running_var.fill_(values[i])
            link.step()

    together(lambda: worker(0), lambda: worker(1))
    # server_lr scales what is learned and what is measured alike: half way from 1 to 3.
    assert server.params()["1.running_var"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "spec", [{"work": "fixed:2", "sync": "bulk:0"}, {"work": "until_model:1,3"}], ids=str
)
def test_a_compressed_downlink_changes_nothing_for_the_loop(serving, spec):
    server = serving(down="topk:0.2", codec="topk:0.2", min_workers=2, **spec)
    models = [net(i) for i in range(2)]

    def worker(model, seed):
        optimizer = sgd(model)
        with aiops.torch.attach(model, optimizer, server.url) as link:
            steps(model, optimizer, link, 12, seed=seed)

    together(*(lambda m=m, i=i: worker(m, i) for i, m in enumerate(models)))
    assert server.version >= 4
    status = server.status()["counters"]
    assert status["pushes_merged"] >= 8
    # Whoever left last has the server's final model, which is what the answers added up to.
    final = server.params()
    assert any(
        all(
            torch.equal(tensor, torch.from_numpy(final[name]).reshape(tensor.shape))
            for name, tensor in model.state_dict().items()
            if name in final
        )
        for model in models
    )


def test_a_refused_push_is_told_once_and_training_goes_on_from_the_servers_model(serving):
    server = serving(work="fixed:1")
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        steps(model, optimizer, link, 2)
        good = model[0].weight.detach().clone()
        with torch.no_grad():
            model[0].weight[0, 0] = float("nan")
        with pytest.raises(NotFinite, match=r"tensor '0\.weight'"):
            link.step()
        steps(model, optimizer, link, 3)
        assert torch.isfinite(model[0].weight).all()
        assert not torch.equal(model[0].weight, good)
    assert server.version >= 4


def test_closing_after_a_push_that_came_too_late_waits_for_nobody(serving):
    server = serving(work="until_model", sync="bulk:1")
    model = net()
    optimizer = sgd(model)
    link = aiops.torch.attach(model, optimizer, server.url)
    steps(model, optimizer, link, 3)
    link._flight.wait(None)
    mail = link._machine.mail
    link._machine.deliver(mail, merged=False)
    link._machine.n_steps = 1
    start = time.perf_counter()
    link.close()
    assert time.perf_counter() - start < aiops.sync.link.CLOSE_S / 2


def test_a_closed_link_says_so(serving):
    server = serving()
    model = net()
    link = aiops.torch.attach(model, sgd(model), server.url)
    link.close()
    link.close()
    for verb in (link.step, link.status):
        with pytest.raises(ConnectionLost, match="the link is closed"):
            verb()


def test_after_the_end_no_step_adopts_anything(serving):
    server = serving(work="fixed:1", rounds=2)
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        assert [link.step() for _ in range(4)] == [True, True, False, False]
        assert link.done
        assert link.meter.n_steps == 2


def test_buffers_are_found_by_name_when_the_module_got_new_ones(serving):
    server = serving(work="fixed:1")
    model = net()
    optimizer = sgd(model)
    with aiops.torch.attach(model, optimizer, server.url) as link:
        model[1].running_mean = torch.full((8,), 7.0)
        link.step()
        assert (server.params()["1.running_mean"] == 7.0).all()


def test_what_makes_no_sense_with_this_server_or_step_is_refused(serving):
    blocking, overlapped = serving(work="fixed:1"), serving(work="until_model", bootstrap="authors")
    model = net()
    with pytest.raises(ConfigError, match="this server's rounds are blocking"):
        aiops.torch.attach(model, sgd(model), blocking.url, merge="carry")
    with aiops.torch.attach(model, sgd(model), overlapped.url, merge="partial:0.25") as link:
        assert link._machine.rule == aiops.Rule("partial", 0.5, 0.25, "authors")
        for wrong in (0, -1, 2.5, float("nan"), float("inf"), "8"):
            with pytest.raises(
                ConfigError, match=f"n_samples is {wrong!r}, a step has a whole number"
            ):
                link.step(n_samples=wrong)
        state = {**link.state_dict(), "residuals": {0: torch.zeros(5)}}
        with pytest.raises(ConfigError, match="state does not fit codec 'dense'"):
            link.load_state_dict(state)


def test_a_script_that_forgets_to_close_leaves_without_a_complaint(serving):
    server = serving(work="fixed:1")
    script = (
        "import sys, torch, aiops.torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "link = aiops.torch.attach(model, optimizer, sys.argv[1])\n"
        "link.step()\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, server.url], capture_output=True, text=True, timeout=60
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert server.status()["counters"]["left_left"] == 1
