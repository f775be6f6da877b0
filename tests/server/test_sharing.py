"""Samples that workers share through the server, on the wire: what donors give goes to all others, and no more."""

import asyncio

import numpy as np
import pytest

from aiops.errors import ConfigError, LocalProtocolError, Refused, ShapeMismatch
from aiops.policy.injection import Injection
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from aiops.wire.message import Share, Shared
from aiops.wire.record import Form, Records, pack_records
from tests.server.kit import LEASE, MANY, cluster, count, settle

pytestmark = pytest.mark.virtual

# All give a half.
ALL = {"injection": "random:1,0.5", **LEASE}
IMAGE = (4, 4, 3)


def batch(who, n, shape=IMAGE):
    """Samples that tell whose they are and which."""
    return np.full((n, *shape), who, np.uint8), 1000 * who + np.arange(n)


def packed(who=0, n=2, **options):
    return {"data": pack_records(Records.of(*batch(who, n, **options))), "codec": 0, "dtype": 0}


class Workers:
    """So many workers, each with a batch in every step; what came is kept."""

    def __init__(self, house, n, *, sizes=None, **links):
        self.house, self.n = house, n
        self.sizes = sizes or [24] * n
        self.workers = [house.worker(f"w{rank}", **links) for rank in range(n)]
        self.came = [[] for _ in range(n)]

    async def __aenter__(self):
        for ps in self.workers:
            await ps.__aenter__()
            await ps.init()
        # The first call takes part, and brings nothing.
        await self.step()
        self.came = [[] for _ in range(self.n)]
        return self

    async def __aexit__(self, *exception):
        for ps in self.workers:
            await ps.leave()

    async def one(self, rank):
        ps = self.workers[rank]
        x, y = await ps.share(*batch(ps.worker, self.sizes[rank]))
        assert (x[:, 0, 0, 0] == y // 1000).all()
        self.came[rank].append(y)

    async def step(self, ranks=None):
        async with asyncio.TaskGroup() as tasks:
            for rank in range(self.n) if ranks is None else ranks:
                tasks.create_task(self.one(rank))


async def share(hand, number, *parts):
    request = hand.session.next_request()
    head = hand.session.send(Kind.SHARE, Share(number, len(parts)), request=request)
    await hand.connection.send([(head, ()), *hand.tensors(request, parts)])


async def told(hand, number, *parts):
    await share(hand, number, *parts)
    return await hand.events.get()


async def open_round(*hands):
    """Bring workers so far that round 2 is open, in which all give."""
    for hand in hands:
        await told(hand, 0)
    for hand in hands:
        assert (await told(hand, 1)).body.round == 2


async def test_a_round_by_hand(hand):
    async with cluster(**ALL) as house:
        a, b, c = [await hand(house) for _ in range(3)]
        assert (await told(a, 0)).body == Shared(1, 0, gives=False, again=True)
        await told(b, 0), await told(c, 0)
        assert (await told(a, 1)).body == Shared(2, 3, gives=True)
        await share(a, 2, packed(0))
        await share(b, 2, packed(1, 5))
        await settle()
        assert a.events.empty()
        # A donor that has no samples gives none.
        event = await told(c, 2)
        assert event.body == Shared(3, 3, gives=True, parts=2)
        assert [bytes(part.payload) for part in event.parts] == [
            packed(0)["data"].tobytes(), packed(1, 5)["data"].tobytes()
        ]  # fmt: skip
        assert [part.header.key for part in event.parts] == [0, 1]
        (part,) = (await a.events.get()).parts
        assert bytes(part.payload) == packed(1, 5)["data"].tobytes()
        up = [Form(1, IMAGE).size_bytes(n) for n in (2, 5)]
        assert count(house, "shares") == 2
        assert count(house, "shared_bytes_up") == sum(up)
        assert count(house, "shared_bytes_down") == 2 * sum(up)
        members = house.server.status()["members"]
        assert [member["gave_bytes"] for member in members] == [*up, 0]
        assert [member["took_bytes"] for member in members] == [*reversed(up), sum(up)]
        assert house.server.status()["sharing"] == {"round": 3, "donors": 3, "waiting": 0}


@pytest.mark.parametrize("n", [2, 4, 10])
async def test_workers_train_on_their_first_samples_and_on_what_donors_picked(n):
    rule = Injection(0.5, 0.5, seed=5)
    async with cluster(injection=rule, **LEASE) as house:
        sizes = [24, 8, 0, 77, 24, 1, 30, 30, 12, 9][:n]
        async with Workers(house, n, sizes=sizes, up=Link(delay_s=0.05)) as job:
            for step in range(5):
                first = house.server.status()["sharing"]["round"]
                await job.step()
                donors = rule.donors(first, n)
                plans = [rule.plan(first, sizes, rank) for rank in range(n)]
                assert plans[0].donors == donors
                for rank, ps in enumerate(job.workers):
                    wanted = [1000 * ps.worker + at for at in range(plans[rank].own[rank])]
                    for donor in donors:
                        if donor != rank:
                            wanted += [1000 * donor + at for at in plans[donor].picks]
                    assert job.came[rank][step].tolist() == wanted
                    assert len(wanted) == plans[rank].batches[rank]
                    assert ps.shared.own == plans[rank].own[rank]
                given = [ps.shared.gave_bytes for ps in job.workers]
                assert given == [
                    Form(1, IMAGE).size_bytes(share) if share else 0 for share in plans[0].shares
                ]
                took = [ps.shared.took_bytes for ps in job.workers]
                assert took == [sum(given) - each for each in given]


async def test_a_step_costs_what_it_did_and_memory_stays_bounded():
    async with (
        cluster(injection="random:0.5,0.5", **LEASE) as house,
        Workers(house, 10, sizes=[70] * 10) as job,
    ):
        for _ in range(20):
            await job.step()
        totals = np.sum([[len(y) for y in came] for came in job.came], axis=0)
        assert totals == pytest.approx(np.full(20, 700), rel=0.08)
        pool = house.server.status()["pool"]
        # The model's block, and what five donors gave in two rounds; each at most a page.
        assert pool["outstanding"] <= 2 + 2 * 5
        assert pool["peak_bytes"] <= (2 + 3 * 5) * 4096
        # Up once, and down to nine others: nothing is padded.
        ten = 20 * 5 * Form(1, IMAGE).size_bytes(10)
        assert count(house, "shared_bytes_up") == ten
        assert count(house, "shared_bytes_down") == 9 * ten


async def test_rounds_of_sharing_and_of_parameters_go_together():
    spec = {"sync": "bulk:0", "work": "fixed:1", "min_workers": 4, **ALL}
    async with cluster(**spec) as house, Workers(house, 4) as job:

        async def train(rank):
            ps = job.workers[rank]
            for _ in range(6):
                await job.one(rank)
                y = job.came[rank][-1]
                params = await ps.sync({"w": np.full(4, y.size, np.float32)}, n_samples=y.size)
            return params["w"][0]

        async with asyncio.TaskGroup() as tasks:
            trained = [tasks.create_task(train(rank)) for rank in range(4)]
        # b' = 24 / 3, and 4 of each of three others.
        assert {task.result() for task in trained} == {6 * 20}
        assert count(house, "shares") == 24


async def test_a_donor_that_dies_holds_the_others_no_longer_than_its_lease():
    async with cluster(**ALL) as house, Workers(house, 3) as job:
        loop = asyncio.get_running_loop()
        await job.step()
        victim = job.workers[1]
        victim._link._closing.set()
        victim._link.cut()
        start = loop.time()
        await job.step([0, 2])
        assert 4.0 < loop.time() - start < 6.5
        assert [len(job.came[rank][-1]) for rank in (0, 2)] == [9 + 4] * 2
        start = loop.time()
        await job.step([0, 2])
        assert loop.time() - start < 0.1
        # 24 / (1 + .5 * 2), and half of the other's 12.
        assert [len(job.came[rank][-1]) for rank in (0, 2)] == [12 + 6] * 2


async def test_a_donor_that_lives_and_never_gives_is_gone_on_without_after_a_lease():
    async with cluster(**ALL) as house, Workers(house, 3) as job:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await job.step([0, 2])
        assert 5.0 < loop.time() - start < 6.5
        assert count(house, "shares_missed") == 1
        assert len(house.server.status()["members"]) == 3
        # It has missed two rounds when it comes back, shares in the same one as the others, and is drawn from then on.
        start = loop.time()
        await job.step([0, 2])
        for _ in range(3):
            await job.step()
        assert loop.time() - start < 0.1
        assert [len(came[-1]) for came in job.came] == [9 + 2 * 4] * 3


async def test_who_was_away_does_not_share_one_round_behind_the_others_for_good():
    # Under bulk sync who is behind would wait for pushes of those that wait for what it gives.
    spec = {"sync": "bulk:0", "work": "fixed:1", "min_workers": 3, **ALL}
    async with cluster(**spec) as house, Workers(house, 3) as job:
        loop = asyncio.get_running_loop()

        async def train(rank, steps):
            for _ in range(steps):
                await job.one(rank)
                await job.workers[rank].sync({"w": np.ones(4, np.float32)})

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(train(0, 6)), tasks.create_task(train(2, 6))
            # It misses a round while the others wait for its push.
            await asyncio.sleep(8.0)
            start = loop.time()
            tasks.create_task(train(1, 6))
        assert loop.time() - start < 0.1
        assert count(house, "shares_missed") == 1


@pytest.mark.parametrize("n", [4, 4 * MANY])
@pytest.mark.parametrize(
    "spec",
    [
        {"sync": "bulk:0", "work": "fixed:4"},
        {"sync": "bulk:0", "work": "fixed:4", "injection": "random:0.5,0.5"},
        {"sync": "bulk:0", "work": "fixed:4", "fold": "arrival"},
        {"sync": "bulk:0", "work": "fixed:4", "codec": "artopk:0.5"},
        # Work that overlaps if the worker wants it to, which need not be so.
        {},
        {"sync": "ssp:0", "work": "fixed:4"},
        {"sync": "asynchronous"},
    ],
    ids=str,
)
async def test_who_begins_later_shares_several_times_between_two_pushes_without_a_wait(spec, n):
    # The first has shared by itself before the last is there: they share equally often, and in other rounds.
    async with cluster(n, **{"min_workers": 3, **ALL, **spec}) as house:
        loop = asyncio.get_running_loop()

        async def train(rank):
            async with house.worker(f"w{rank}") as ps:
                await ps.init()
                await asyncio.sleep(0.3 * rank)
                for version in range(5):
                    n_given = 0
                    for _ in range(4):
                        await asyncio.sleep(0.25 + 0.1 * rank)
                        _, y = await ps.share(*batch(ps.worker, 24))
                        n_given += len(y) - ps.shared.own
                    await ps.sync({"w": np.ones(n, np.float32)}, n_steps=4)
                    given[version, rank] = n_given

        given = {}
        async with asyncio.TaskGroup() as tasks:
            for rank in range(3):
                tasks.create_task(train(rank))
        # Whoever waited in vain would do so for 5 s.
        assert loop.time() < 0.6 + 5 * 4 * 0.45 + 0.5
        assert count(house, "shares_missed") == 0
        if spec.get("sync") == "bulk:0" and "injection" not in spec:
            # b' = 24 / 2.5, and half of the 9 of each of two others.
            later = [given[version, rank] for version in range(1, 5) for rank in range(3)]
            assert later == [32] * 12


@pytest.mark.parametrize("n", [4, 8 * MANY])
@pytest.mark.parametrize("sync", ["ssp:0", "ssp:1", "dssp:0,1"])
async def test_who_is_held_back_until_others_push_is_not_waited_for_by_them(sync, n):
    # A large push is merged in a thread, so that its worker is held back some time after it came.
    async with cluster(n, sync=sync, work="fixed:1", min_workers=2, **ALL) as house:
        loop = asyncio.get_running_loop()
        update = {"w": np.ones(n, np.float32)}
        async with house.worker("a") as a, house.worker("b") as b:
            await a.init()
            await b.init()
            await asyncio.gather(a.sync(update), b.sync(update))
            await asyncio.gather(a.share(*batch(0, 24)), b.share(*batch(1, 24)))
            start = loop.time()

            async def asks():
                await a.share(*batch(0, 24))
                assert loop.time() - start < 1.0
                for _ in range(2):
                    await a.sync(update)

            async def pushes():
                await asyncio.sleep(0.1)
                for _ in range(2):
                    await b.sync(update)

            await asyncio.gather(asks(), pushes())


async def test_who_waits_for_the_choice_of_one_that_asks_is_not_waited_for():
    spec = {"sync": "bulk:0", "work": "fixed:1", "min_workers": 2, "codec": "artopk:0.5", **ALL}
    async with cluster(64, **spec) as house:
        loop = asyncio.get_running_loop()
        update = {"w": np.ones(64, np.float32)}
        async with house.worker("a") as a, house.worker("b") as b:
            await a.init()
            await b.init()

            async def train(ps, n_shares, delay_s):
                await asyncio.sleep(delay_s)
                for _ in range(n_shares):
                    await ps.share(*batch(ps.worker, 24))
                await ps.sync(update)

            # Each leads in turn, so that in either of two rounds the other asks for a choice of one that still shares.
            for first, second in ((1, 1), (2, 1), (2, 1), (1, 2), (1, 2)):
                await asyncio.gather(train(a, first, 0.0), train(b, second, 0.1))
        assert loop.time() < 2.0
        assert count(house, "shares_missed") == 0


async def test_a_cut_line_is_mended_and_nothing_is_given_twice():
    async with cluster(**ALL) as house, Workers(house, 2, up=Link(delay_s=0.05)) as job:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job.one(0))
            await settle()
            # It has given, and hears nothing of it on this line.
            job.workers[0]._link.cut()
            await asyncio.sleep(1.0)
            tasks.create_task(job.one(1))
        assert [len(came[-1]) for came in job.came] == [12 + 6] * 2
        assert count(house, "shares") == 2
        await job.step()
        assert [len(came[-1]) for came in job.came] == [12 + 6] * 2


async def test_a_share_that_is_too_large_is_refused_in_a_sentence_and_holds_nobody_up(hand):
    size = Form(1, IMAGE).size_bytes(2)
    async with cluster(share_bytes=size, **ALL) as house:
        a, b = await hand(house), await hand(house)
        await open_round(a, b)
        await share(b, 2, packed(1))
        await settle()
        before = house.server.status()["pool"]["outstanding_bytes"]
        event = await told(a, 2, packed(0, 3))
        assert event.kind is Kind.REFUSE
        assert (
            event.body.message == f"share has {size + 56} bytes, the limit is {size} (share_bytes)"
        )
        assert house.server.status()["pool"]["outstanding_bytes"] == before
        assert (await b.events.get()).body == Shared(3, 2, gives=True)
        assert count(house, "refused_Refused") == 1
        # The connection is as good as before.
        assert (await told(a, 2)).body == Shared(3, 2, gives=True, parts=1)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([packed() | {"data": np.zeros(9, np.uint8)}], "records say dtype 0"),
        ([packed() | {"data": packed()["data"][:-1]}], "records have 143 bytes, 2 of uint8"),
        ([packed(shape=(5,))], "shared samples are uint8 of shape (5,), those of others are uint8"),
        ([packed() | {"key": 1}], "share has more than one part with records, one of key 0 is due"),
        ([packed(), packed()], "share has more than one part with records"),
    ],
)
async def test_what_are_no_records_of_this_job_is_refused_and_goes_to_nobody(hand, parts, sentence):
    async with cluster(**ALL) as house:
        a, b = await hand(house), await hand(house)
        await open_round(a, b)
        await share(b, 2, packed(1))
        event = await told(a, 2, *parts)
        assert event.kind is Kind.REFUSE
        assert sentence in event.body.message
        assert (await b.events.get()).body.parts == 0


async def test_what_nobody_asked_for_takes_no_memory(hand):
    async with cluster(**ALL) as house:
        a, b = await hand(house), await hand(house)
        await open_round(a, b)
        await share(a, 2, packed(0))
        await settle()
        pool = house.server.service.pool
        before = pool.outstanding
        # It has given already; and a round that is not open; and eight at once that are never whole.
        await share(a, 2, packed(0)), await share(b, 9, packed(1, 500))
        await settle()
        assert pool.outstanding == before
        for _ in range(8):
            request = b.session.next_request()
            head = b.session.send(Kind.SHARE, Share(2, 2), request=request)
            (part,) = b.tensors(request, [packed(1)])
            await b.connection.send([(head, ()), part])
        await settle()
        assert pool.outstanding == before + 1
        b.connection.abort()
        await settle()
        assert pool.outstanding == before


async def test_a_server_without_injection_shares_nothing(hand):
    async with cluster(**LEASE) as house:
        a = await hand(house)
        event = await told(a, 0)
        assert event.body.message == "this server has no injection, samples are not shared"
        assert "sharing" not in house.server.status()
        assert "gave_bytes" not in house.server.status()["members"][0]
        async with house.worker("w") as ps:
            with pytest.raises(ConfigError, match="the server shares no samples"):
                await ps.share(*batch(0, 4))
            assert ps.shared is None


async def test_what_a_worker_says_wrong_is_said_at_once():
    async with cluster(**ALL) as house, Workers(house, 2) as job:
        ps = job.workers[0]
        with pytest.raises(ConfigError, match="labels have shape"):
            await ps.share(np.zeros((2, 3)), np.zeros(3, int))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job.one(0))
            await asyncio.sleep(0)
            with pytest.raises(LocalProtocolError, match="share is under way already"):
                await ps.share(*batch(0, 4))
            tasks.create_task(job.one(1))
        # Another shape: whoever gives it is refused, and the others go on.
        with pytest.raises((Refused, ShapeMismatch), match="shared samples are uint8 of shape"):
            await ps.share(*batch(0, 4, shape=(7,)))


async def test_a_call_that_is_given_up_leaves_the_next_one_as_good():
    async with cluster(**ALL) as house, Workers(house, 2) as job:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await job.one(0)
        await job.step()
        await job.step()
        assert [len(came[-1]) for came in job.came] == [12 + 6] * 2
        assert not job.workers[0]._link._requests
