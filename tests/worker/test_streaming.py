"""Streaming DiLoCo: the machine by table, a hand-computed trace, and training on a cluster in virtual time."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from aiops.errors import ConfigError, Refused, RemoteProtocolError
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Policy, Push
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.fragment import FragmentRequest, cut
from aiops.worker.machine import Move, Rule
from aiops.worker.meter import Meter
from aiops.worker.overlap import Step, overlapped
from aiops.worker.rounds import blocking
from aiops.worker.streaming import Streaming, streaming_of
from aiops.worker.ticket import Snapshot, Ticket

# Three buckets of two values and an averaged one of one, in two fragments: keys 0, and 1 to 3.
TABLE = Table(
    (TensorEntry("w", (5,), "float32", 0, 5), TensorEntry("b", (1,), "float32", 5, 1)),
    (BucketEntry(0, 2, 0), BucketEntry(2, 4, 1), BucketEntry(4, 6, 0), BucketEntry(6, 7, 0, True)),
)


def vector(*values):
    return np.array(values, np.float32)


def machine(x, *, version=0, steps=2, delay=1, alpha=0.5):
    table = Table((), tuple(BucketEntry(i, i + 1, 0) for i in range(x.size)))
    return Streaming(x, version, cut(table, x.size), steps=steps, delay=delay, alpha=alpha)


def arrive(streaming, version, flat, **more):
    streaming.deliver(Snapshot(version, flat), **more)


def test_a_table_is_cut_into_fragments_of_as_many_keys():
    first, second = cut(TABLE, 2)
    assert (first.keys, first.place) == (range(1), slice(0, 2))
    assert (second.keys, second.place) == (range(1, 4), slice(2, 7))
    assert [(b.start, b.stop, b.averaged) for b in second.table.buckets] == [
        *[(0, 2, False), (2, 4, False), (4, 5, True)]
    ]
    # Of the tensor that lies in both fragments the second one has values 2 to 4.
    assert [second.table.tensor_at(i).name for i in range(4)] == ["w", "w", "w", "b"]
    assert 1 - second.table.tensor_at(1).offset == 3


def test_a_fragment_is_pushed_every_so_many_steps_and_adopted_some_steps_later():
    x = vector(0.0, 0.0)
    streaming = machine(x, steps=3, delay=2)
    assert [streaming.stepped() for _ in range(3)] == [Move.COMPUTE, Move.COMPUTE, Move.PUSH]
    x += 6
    update = streaming.push(x)
    assert (update.values, update.base, update.n_steps, update.fragment.number) == (6.0, 0, 3, 0)
    assert streaming.move() is Move.COMPUTE
    assert streaming.stepped() is Move.COMPUTE
    assert streaming.stepped() is Move.WAIT
    arrive(streaming, 1, vector(2.0))
    assert streaming.move() is Move.ADOPT
    streaming.adopt(x)
    np.testing.assert_array_equal(x, vector(4.0, 6.0))
    np.testing.assert_array_equal(streaming.model, vector(2.0, 0.0))
    assert streaming.move() is Move.COMPUTE
    # The third step since the push: it is the other one's turn.
    assert streaming.stepped() is Move.PUSH
    update = streaming.push(x)
    assert (update.values, update.base, update.n_steps, update.fragment.number) == (6.0, 1, 3, 1)


def test_an_answer_that_comes_early_waits_for_its_step():
    x = vector(0.0)
    streaming = machine(x, steps=4, delay=3)
    for _ in range(4):
        streaming.stepped()
    streaming.push(x)
    arrive(streaming, 1, vector(1.0))
    assert [streaming.stepped() for _ in range(3)] == [Move.COMPUTE, Move.COMPUTE, Move.ADOPT]


def test_without_delay_a_worker_waits_where_it_pushes():
    x = vector(0.0)
    streaming = machine(x, steps=1, delay=0)
    assert streaming.stepped() is Move.PUSH
    streaming.push(x)
    assert streaming.move() is Move.WAIT


@pytest.mark.parametrize(
    ("alpha", "x_after"),
    [
        pytest.param(0.0, 10.0, id="0 is the global fragment"),
        pytest.param(0.5, 7.0, id="a half is the mean"),
        pytest.param(0.75, 5.5, id="the rest is its own"),
    ],
)
def test_the_next_progress_is_the_distance_to_the_global_fragment(alpha, x_after):
    x = vector(0.0)
    streaming = machine(x, alpha=alpha)
    x += 4
    streaming.stepped()
    streaming.stepped()
    streaming.push(x)
    arrive(streaming, 1, vector(10.0))
    streaming.stepped()
    streaming.adopt(x)
    assert x == vector(x_after)
    x += 1
    streaming.stepped()
    assert streaming.push(x).values == vector(x_after + 1 - 10)


def test_a_worker_whose_push_came_too_late_is_in_before_it_takes_another_step():
    x = vector(0.0, 0.0)
    streaming = machine(x, steps=6, delay=4)
    for _ in range(6):
        streaming.stepped(n_samples=5, loss=2.0)
    x += 3
    streaming.push(x)
    assert streaming.stepped(n_samples=5, loss=2.0) is Move.COMPUTE
    arrive(streaming, 7, vector(8.0, 9.0), merged=False)
    # It does not wait for its step: what it computes belongs to a model that is gone.
    assert streaming.stepped() is Move.ADOPT
    streaming.adopt(x)
    np.testing.assert_array_equal(x, vector(8.0, 9.0))
    assert (streaming.restarts, streaming.version, streaming.move()) == (1, 7, Move.PUSH)
    update = streaming.push(x)
    assert (update.values, update.base, update.fragment.number) == (0.0, 7, 1)
    assert (update.n_steps, update.n_samples) == (0, 0)
    # Too late again, and then not: the first regular push comes its steps after that.
    assert streaming.move() is Move.WAIT
    arrive(streaming, 8, vector(1.0, 2.0), merged=False)
    streaming.adopt(x)
    assert streaming.push(x).base == 8
    arrive(streaming, 9, vector(5.0))
    assert streaming.move() is Move.ADOPT
    streaming.adopt(x)
    np.testing.assert_array_equal(x, vector(3.0, 2.0))
    assert [streaming.stepped() for _ in range(6)] == [Move.COMPUTE] * 5 + [Move.PUSH]
    streaming.push(x)
    assert [streaming.stepped() for _ in range(4)] == [Move.COMPUTE] * 3 + [Move.WAIT]


def test_who_comes_later_pushes_after_its_first_step_and_then_with_the_others():
    x = vector(0.0)
    streaming = machine(x, version=5, steps=3)
    assert streaming.stepped() is Move.PUSH
    streaming.push(x)
    arrive(streaming, 6, vector(0.0))
    assert streaming.stepped() is Move.ADOPT
    streaming.adopt(x)
    assert [streaming.stepped() for _ in range(2)] == [Move.COMPUTE, Move.PUSH]


def policy(**more):
    told = {"overlap": True, "min_steps": 2, "max_steps": None, "codec": "dense", "alpha": 0.5}
    told |= {"merge": "mix", "beta": 0.5, "bootstrap": "fixed", "fragments": 2, "delay": 1}
    return Policy(**told | more)


def test_a_worker_may_keep_another_share_but_not_merge_otherwise():
    x = np.zeros(7, np.float32)
    assert streaming_of(policy(), TABLE, x, 0, rule=Rule("mix", alpha=0.25))._alpha == 0.25
    with pytest.raises(
        ConfigError, match="merge is 'carry', a model in fragments is merged by mix"
    ):
        streaming_of(policy(), TABLE, x, 0, rule=Rule("carry"))


def test_an_answer_with_a_key_of_another_fragment_ends_the_connection():
    message = Push(1, 0, 0, 0, 0, 0.0, 3, want=True, fragment=1)
    fragment = cut(TABLE, 2)[1]
    request = FragmentRequest(
        fragment, message, [], None, np.zeros(5, np.float32), None, ticket=Ticket()
    )
    assert len(request.land(Header(Kind.TENSOR, 1, 1, 1, 3, 1, 4))) == 4
    for key in (0, 4):
        with pytest.raises(RemoteProtocolError, match=f"has key {key}, the fragment has 1 to 3"):
            request.land(Header(Kind.TENSOR, 1, 1, 1, key, 1, 8))


class Lab:
    """Runs workers that train on a streaming server, and keeps what happened."""

    def __init__(
        self, changes, *, n=2, step_s=None, one_way_s=0.25, rounds=None, joins=None, **spec
    ):
        self.changes, self.n, self.rounds = changes, n, rounds
        self.step_s = step_s or [1.0] * len(changes)
        self.joins = joins or [0.0] * len(changes)
        self.one_way_s = one_way_s
        self.spec = {"sync": "bulk:0", "weights": "uniform", "merge": "mix:0.5", "bucket_bytes": 4}
        self.spec |= {"min_workers": 2} | spec
        self.pushes = [[] for _ in changes]
        self.bytes = [[] for _ in changes]
        self.seen = [[] for _ in changes]
        self.meters, self.newest, self.left = ([None] * len(changes) for _ in range(3))

    async def run(self, loop_fn=overlapped):
        async with Cluster(rounds=self.rounds, **self.spec) as cluster:
            self.cluster = cluster
            self.server = cluster.server
            await asyncio.gather(*(self.worker(i, loop_fn) for i in range(len(self.changes))))
            self.status, self.model = cluster.server.status(), cluster.server.params()["w"]
        return self

    async def worker(self, i, loop_fn):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.joins[i])
        wire = {"up": Link(self.one_way_s), "down": Link(self.one_way_s)}
        async with AsyncExitStack() as stack:
            ps = self.cluster.worker(f"w{i}", connect_timeout_s=60.0, **wire)
            await stack.enter_async_context(ps)
            start = await ps.init({"w": np.zeros(self.n, np.float32)})
            self.meters[i] = meter = Meter(loop.time())

            async def step(x):
                self.seen[i].append(x.copy())
                await asyncio.sleep(self.step_s[i])
                x += self.changes[i](x)
                return Step(n_samples=4)

            push = ps.push_flat

            def note(update, **options):
                fragment = options["fragment"]
                number = None if fragment is None else fragment.number
                self.pushes[i].append((options["base"], number, update.tolist()))
                ticket = push(update, **options)
                ticket.then(lambda _: self.bytes[i].append(ticket.bytes))
                return ticket

            ps.push_flat = note
            self.newest[i] = await loop_fn(ps, start["w"].copy(), step, meter=meter)
            self.left[i] = ps.residuals()


def always(value):
    return lambda x: np.full_like(x, value)


@pytest.mark.virtual
async def test_the_trace_by_hand():
    # Two values, one fragment each; A adds 1 to both in every step, B adds 3. A push every 2 steps, adopted 1 step
    # later, half and half.
    lab = await Lab([always(1.0), always(3.0)], rounds=4, work="fragments:2,4,1").run()
    # Step 2: x = 2 and 6, w0 = (2 + 6) / 2 = 4. Step 3: (3 + 4) / 2 and (9 + 4) / 2.
    # Step 4: x1 = 4 and 12, w1 = 8. Step 5: (5 + 8) / 2 and (15 + 8) / 2.
    # Step 6: x0 = 6.5 and 15.5, less 4; w0 = 4 + (2.5 + 11.5) / 2 = 11. Step 7: (7.5 + 11) / 2 and (18.5 + 11) / 2.
    # Step 8: x1 = 9.5 and 20.5, less 8; w1 = 8 + (1.5 + 12.5) / 2 = 15.
    assert lab.pushes[0] == [(0, 0, [2.0]), (1, 1, [4.0]), (2, 0, [2.5]), (3, 1, [1.5])]
    assert lab.pushes[1] == [(0, 0, [6.0]), (1, 1, [12.0]), (2, 0, [11.5]), (3, 1, [12.5])]
    assert [x.tolist() for x in lab.seen[0]] == [
        *[[0, 0], [1, 1], [2, 2], [3.5, 3], [4.5, 4], [5.5, 6.5], [6.5, 7.5], [9.25, 8.5]],
        [10.25, 9.5],
    ]
    assert lab.model.tolist() == [11.0, 15.0]
    for newest, meter in zip(lab.newest, lab.meters, strict=True):
        assert newest.tolist() == [11.0, 15.0]
        # The network takes half a step and each answer has a step to come.
        assert (meter.waits, meter.rounds, meter.overlap_ratio) == (0, 4, 1.0)


@pytest.mark.virtual
async def test_the_velocity_of_a_fragment_moves_in_its_own_rounds_alone():
    # The same with v = v / 2 + u and w = w + u + v / 2, u being the mean that is pushed: w0 = 4 + 4 / 2, w1 = 8 + 4.
    lab = await Lab(
        [always(1.0), always(3.0)], rounds=4, work="fragments:2,4,1", optimizer="nesterov:1,0.5"
    ).run()
    # Step 6: x0 = (3 + 6) / 2 + 3 and (9 + 6) / 2 + 9, less 6; v0 = 4 / 2 + 6, w0 = 6 + 6 + 8 / 2.
    # Step 8: x1 = (5 + 12) / 2 + 3 and (15 + 12) / 2 + 9, less 12; v1 = 8 / 2 + 5, w1 = 12 + 5 + 9 / 2.
    assert lab.pushes[0] == [(0, 0, [2.0]), (1, 1, [4.0]), (2, 0, [1.5]), (3, 1, [-0.5])]
    assert lab.pushes[1] == [(0, 0, [6.0]), (1, 1, [12.0]), (2, 0, [10.5]), (3, 1, [10.5])]
    assert lab.model.tolist() == [16.0, 21.5]


@pytest.mark.virtual
@pytest.mark.parametrize("fold", ["ordered", "arrival"])
async def test_fragments_are_merged_alike_however_they_are_added_up(fold):
    lab = await Lab([always(1.0), always(3.0)], rounds=4, work="fragments:2,4,1", fold=fold).run()
    assert lab.model.tolist() == [11.0, 15.0]


@pytest.mark.virtual
async def test_one_fragment_without_delay_and_share_is_local_sgd_to_the_last_bit():
    targets = np.random.default_rng(0).standard_normal((2, 24)).astype(np.float32)

    def towards(target):
        return lambda x: np.float32(0.1) * (target - x)

    changes = [towards(target) for target in targets]
    streamed = await Lab(changes, n=24, rounds=5, work="fragments:1,3,0", merge="mix:0").run()
    rounds = await Lab(changes, n=24, rounds=5, work="fixed:3", merge="reset").run(blocking)
    assert streamed.model.tobytes() == rounds.model.tobytes()
    assert [meter.waits for meter in streamed.meters] == [5, 5]


@pytest.mark.virtual
@pytest.mark.parametrize("one_way_s", [0.25, 4.0])
async def test_workers_find_the_mean_of_their_optima_whether_the_network_keeps_up_or_not(one_way_s):
    targets = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    changes = [lambda x, t=target: np.float32(0.1) * (t - x) for target in targets]
    lab = await Lab(
        changes,
        n=64,
        step_s=[1.0, 1.2, 2.0],
        one_way_s=one_way_s,
        rounds=160,
        work="fragments:4,24,3",
        bucket_bytes=64,
        min_workers=3,
    ).run()
    np.testing.assert_allclose(lab.model, targets.mean(axis=0), atol=1e-5)
    # A quarter of the model goes up and a quarter comes down: the peak is a quarter of a whole exchange.
    assert {n for each in lab.bytes for n in each} == {2 * 4 * 64 // 4}
    for pushes in lab.pushes:
        assert [(base, number) for base, number, _ in pushes] == [(v, v % 4) for v in range(160)]
    # The slowest worker waits for the network only; the others wait for it too.
    assert (lab.meters[2].waits == 0) == (one_way_s == 0.25)


@pytest.mark.virtual
@pytest.mark.parametrize(("step_s", "refused"), [(1.0, 0), (7.3, 2), (60.0, 2)])
async def test_a_worker_that_comes_later_is_taken_in_however_slow_it_is(step_s, refused):
    lab = await Lab(
        [always(1.0), always(1.0), always(1.0)],
        step_s=[1.0, 1.0, step_s],
        joins=[0.0, 0.0, 33.3],
        rounds=40,
        work="fragments:2,10,2",
    ).run()
    late = [base for base, _, _ in lab.pushes[2]]
    # The others are at version 6 when it comes, and close 12 rounds in each step of a minute. What it gets in its
    # second step is as old by the third; then it stands still until it is in.
    assert late[0] == 6
    assert late[refused:] == list(range(late[refused], 40))
    assert late[refused] <= 30
    assert lab.status["counters"]["pushes_merged"] == 2 * 40 + len(late) - refused
    assert lab.status["counters"].get("refused_StalePush", 0) == refused


@pytest.mark.virtual
async def test_what_rounding_leaves_behind_stays_with_its_fragment():
    targets = np.random.default_rng(2).standard_normal((2, 64)).astype(np.float32)
    changes = [lambda x, t=target: np.float32(0.1) * (t - x) for target in targets]
    lab = await Lab(
        changes, n=64, rounds=200, work="fragments:4,8,1", bucket_bytes=64, codec="int8"
    ).run()
    np.testing.assert_allclose(lab.model, targets.mean(axis=0), atol=0.02)
    # All that was pushed is in the model or left, value by value.
    pushed, left = np.zeros(64), np.zeros(64)
    for pushes, rests in zip(lab.pushes, lab.left, strict=True):
        for _, number, values in pushes:
            pushed[16 * number : 16 * (number + 1)] += np.array(values) / 2
        assert sorted(rests) == [0, 1, 2, 3]
        left += np.concatenate([rests[key] for key in range(4)]) / 2
    assert np.abs(left).max() > 1e-4
    np.testing.assert_allclose(lab.model + left, pushed, atol=1e-5)


@pytest.mark.virtual
@pytest.mark.parametrize("loop_fn", [blocking, None])
async def test_a_push_of_the_whole_model_is_refused_in_a_sentence(loop_fn):
    async with (
        Cluster(work="fragments:2,4,1", merge="mix", bucket_bytes=4) as cluster,
        cluster.worker("w") as ps,
    ):
        x = (await ps.init({"w": np.zeros(2, np.float32)}))["w"]

        async def step(x):
            await asyncio.sleep(1)

        with pytest.raises(Refused, match="push is of the whole model, a round of this server"):
            await (ps.push({"w": x}) if loop_fn is None else loop_fn(ps, x.copy(), step))
        assert cluster.server.version == 0


@pytest.mark.virtual
async def test_an_error_in_a_step_or_a_push_comes_out_as_itself():
    def fail(x):
        raise FloatingPointError("a bug of the user's")

    for change, error, text in (
        (fail, FloatingPointError, "a bug of the user's"),
        (always(np.nan), Refused, "update holds nan in tensor 'w' .value 0 of 2."),
    ):
        with pytest.raises(error, match=text):
            await Lab([change], work="fragments:2,4,1", min_workers=1).run()


@pytest.mark.virtual
async def test_stop_ends_training_at_a_boundary_and_returns_the_newest_fragments():
    async with (
        Cluster(work="fragments:2,4,1", merge="mix", bucket_bytes=4) as cluster,
        cluster.worker("w") as ps,
    ):
        await ps.init({"w": np.zeros(2, np.float32)})
        steps = 0

        async def step(x):
            nonlocal steps
            await asyncio.sleep(1)
            steps += 1
            x += 1

        newest = await overlapped(ps, np.zeros(2, np.float32), step, stop=lambda: steps == 5)
        # The first fragment after two steps, the second after four; the fifth would have adopted that.
        assert (steps, newest.tolist()) == (5, [2.0, 0.0])
        assert cluster.server.params()["w"].tolist() == [2.0, 4.0]
