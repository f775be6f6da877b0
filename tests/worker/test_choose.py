"""A choice as its worker sees it: what it asks and sends, and which answers it does not believe."""

import asyncio

import msgspec
import numpy as np
import pytest

from aiops.codec.artopk import artopk
from aiops.errors import NotFinite, RemoteProtocolError, StalePush
from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link as Wire
from aiops.wire.frame import HEADER_BYTES, Frame, Header, Kind, parse_header
from aiops.wire.message import Choose, Chosen, Hello, Model, Refuse, Welcome, decode, encode
from aiops.wire.session import Event, Role, Session
from aiops.wire.table import BucketEntry, Table, TensorEntry
from aiops.worker.choose import ChooseRequest
from aiops.worker.mirror import Mirror
from tests.worker.kit import POLICY

CODEC = artopk(0.5)
# Two buckets that accumulate, and running statistics.
TABLE = Table(
    (TensorEntry("w", (10,), "float32", 0, 10), TensorEntry("m", (2,), "float32", 10, 2, True)),
    (BucketEntry(0, 6, 0), BucketEntry(6, 10, 0), BucketEntry(10, 12, 0, True)),
)
OWN = {0: np.array([0, 2, 5], np.uint32), 1: np.array([1, 3], np.uint32)}
SIZE = 16


@pytest.fixture
def session():
    made = Session(Role.WORKER)
    made.send(Kind.HELLO, Hello(0, "", 0, "a", 1))
    policy = msgspec.structs.replace(POLICY, codec=CODEC.name)
    data = encode(Kind.WELCOME, Welcome(0, "", 0, 0, 1.0, 1.0, 1.0, policy, 0))
    made.receive(Frame(Header(Kind.WELCOME, 0, 0, 0, 0, 0, len(data)), memoryview(data), None))
    return made


def answer(body, positions=None, *, sizes=(6, 4)):
    parts = []
    for key, index in (positions or {}).items():
        data = index if isinstance(index, bytes) else CODEC.write(index, sizes[key]).tobytes()
        header = Header(Kind.TENSOR, 10, 0, 1, key, 0, len(data))
        parts.append(Frame(header, memoryview(data), None))
    kind = Kind.CHOSEN if isinstance(body, Chosen) else Kind.REFUSE
    return Event(kind, 1, body, parts)


def test_a_question_is_a_frame_and_a_choice_has_one_more_for_each_bucket(session):
    ((head, _),) = ChooseRequest(TABLE, CODEC, None).frames(session, 1)
    assert decode(Kind.CHOOSE, memoryview(head)[HEADER_BYTES:]) == Choose()
    frames = ChooseRequest(TABLE, CODEC, OWN).frames(session, 1)
    assert decode(Kind.CHOOSE, memoryview(frames[0][0])[HEADER_BYTES:]) == Choose(True, 2)
    for key, (head, views) in enumerate(frames[1:]):
        header = parse_header(memoryview(head), 1 << 20)
        assert (header.key, header.codec, header.dtype, header.request) == (key, 10, 0, 1)
        n = (6, 4)[key]
        np.testing.assert_array_equal(CODEC.read(memoryview(b"".join(views)), n), OWN[key])


@pytest.mark.parametrize(
    ("own", "given"), [(None, OWN), (OWN, None), (OWN, {0: OWN[0] * 0 + [0, 1, 2], 1: OWN[1]})]
)
def test_what_comes_is_taken_and_nothing_says_that_it_is_ones_own(session, own, given):
    request = ChooseRequest(TABLE, CODEC, own)
    given = given and {key: index.astype(np.uint32) for key, index in given.items()}
    assert request.answered(session, answer(Chosen(7, parts=2 if given else 0), given)) is None
    choice = request.ticket._result
    assert choice.number == 7
    for key, index in (given or own).items():
        np.testing.assert_array_equal(choice.codecs[key].index, index)
        assert choice.codecs[key].n == (6, 4)[key]


def test_who_is_to_lead_hears_so(session):
    request = ChooseRequest(TABLE, CODEC, None)
    request.answered(session, answer(Chosen(0, lead=True)))
    assert request.ticket._result.codecs is None


def test_a_refusal_is_raised(session):
    request = ChooseRequest(TABLE, CODEC, None)
    request.answered(session, answer(Refuse(1, "late", (2, 1))))
    assert isinstance(request.ticket.exception(), StalePush)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param(None, "positions of 0 keys, those of all 2", id="none"),
        pytest.param({0: OWN[0]}, "positions of 1 keys, those of all 2", id="too few"),
        pytest.param({0: OWN[0], 1: bytes(SIZE)}, "choice's key 1: artopk positions: ", id="zeros"),
        pytest.param({0: b"\xff" * SIZE, 1: OWN[1]}, "key 0: artopk positions: ", id="ones"),
        pytest.param({0: b"", 1: OWN[1]}, "key 0: artopk positions' payload has 0", id="empty"),
    ],
)
def test_what_is_no_choice_ends_the_connection_and_the_push(session, given, sentence):
    request = ChooseRequest(TABLE, CODEC, None)
    with pytest.raises(RemoteProtocolError, match=sentence):
        request.answered(session, answer(Chosen(1, parts=len(given or ())), given))
    assert isinstance(request.ticket.exception(), RemoteProtocolError)


def test_an_answer_of_another_kind_ends_the_connection(session):
    with pytest.raises(RemoteProtocolError, match="MODEL does not answer request 1"):
        ChooseRequest(TABLE, CODEC, None).answered(session, Event(Kind.MODEL, 1, Model(1, 0, 0, 0)))


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (Header(Kind.TENSOR, 10, 0, 1, 3, 0, SIZE), "key 3, which has none"),
        (Header(Kind.TENSOR, 10, 0, 1, 2, 0, SIZE), "key 2, which has none"),
        (Header(Kind.TENSOR, 10, 0, 1, 0, 0, 1 << 40), "16 in codec 10 are due"),
        (Header(Kind.TENSOR, 1, 0, 1, 0, 0, SIZE), "16 bytes in codec 1, 16 in codec 10 are due"),
    ],
)
def test_no_memory_is_taken_for_what_can_be_no_positions(header, sentence):
    with pytest.raises(RemoteProtocolError, match=sentence):
        ChooseRequest(TABLE, CODEC, None).land(header)
    good = Header(Kind.TENSOR, 10, 0, 1, 0, 0, SIZE)
    assert len(ChooseRequest(TABLE, CODEC, None).land(good)) == SIZE


def test_changes_at_positions_that_nobody_has_chosen_are_not_believed():
    mirror = Mirror(CODEC)
    mirror.take(1, np.zeros(12, np.float32))
    flat, data = np.zeros(12, np.float32), np.ones(3, np.float32).tobytes()
    parts = [Frame(Header(Kind.TENSOR, 10, 1, 1, 0, 2, 12), memoryview(data), None)]
    model = Model(2, 0, 1, 1, since=1)
    with pytest.raises(RemoteProtocolError, match="no positions are chosen"):
        mirror.add(TABLE, model, parts, flat, {})
    assert mirror.version == 1
    mirror.add(TABLE, model, parts, flat, {0: CODEC.at(OWN[0], 6)})
    np.testing.assert_array_equal(flat[:6], [1, 0, 1, 0, 0, 1])


# -- whole workers --

N = 100
SPEC = {"codec": "artopk:0.1", "work": "fixed:1", "sync": "bulk:0", "weights": "uniform"}


def ramp(sign=1):
    return {"w": sign * np.arange(N, dtype=np.float32)}


@pytest.mark.virtual
async def test_an_overflow_is_found_before_anything_is_asked_and_the_rest_is_kept():
    async with (
        Cluster(params={"w": np.zeros(N, np.float32)}, **SPEC) as house,
        house.worker("a") as ps,
    ):
        await ps.init()
        await ps.sync(ramp())
        before = ps.residuals()[0].copy()
        assert before.any()
        huge = before.copy()
        huge[50] = 3e38
        ps.restore_residuals({0: huge})
        with pytest.raises(NotFinite, match="key 0: update plus residual is inf at position 50"):
            await ps.sync({"w": np.full(N, 1e38, np.float32)})
        np.testing.assert_array_equal(ps.residuals()[0], huge)
        ps.restore_residuals({0: before})
        await ps.sync(ramp())
        whole = house.server.params()["w"] + ps.residuals()[0]
        np.testing.assert_array_equal(whole, 2 * ramp()["w"])


@pytest.mark.virtual
async def test_pushes_that_wait_in_line_go_each_with_its_rounds_choice():
    async with (
        Cluster(params={"w": np.zeros(N, np.float32)}, **SPEC) as house,
        house.worker("a", up=Wire(0.1), down=Wire(0.1)) as ps,
    ):
        await ps.init()
        tickets = [ps.push(ramp(), base=turn) for turn in range(3)]
        assert [await ticket for ticket in tickets] == [1, 2, 3]
        whole = house.server.params()["w"] + ps.residuals()[0]
        np.testing.assert_array_equal(whole, 3 * ramp()["w"])


@pytest.mark.virtual
@pytest.mark.parametrize("n_rounds", [1, 4])
async def test_a_round_takes_four_ways_once_who_leads_is_known(n_rounds):
    way_s = 0.25
    async with Cluster(params={"w": np.zeros(N, np.float32)}, min_workers=3, **SPEC) as house:

        async def work(i):
            async with house.worker(f"w{i}", up=Wire(way_s), down=Wire(way_s)) as ps:
                await ps.init()
                took = []
                for _ in range(n_rounds):
                    start = asyncio.get_running_loop().time()
                    await ps.sync(ramp())
                    took.append(asyncio.get_running_loop().time() - start)
                return took

        for took in await asyncio.gather(*map(work, range(3))):
            # The first leader is found by asking.
            assert took[0] == pytest.approx(6 * way_s)
            assert took[1:] == pytest.approx([4 * way_s] * (n_rounds - 1))


@pytest.mark.virtual
async def test_a_push_that_is_given_up_by_its_caller_goes_on_and_the_next_one_waits():
    async with (
        Cluster(params={"w": np.zeros(N, np.float32)}, min_workers=2, **SPEC) as house,
        house.worker("a") as a,
        house.worker("b") as b,
    ):
        await a.init()
        await b.init()
        ticket = a.sync(ramp())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await ticket
        await b.sync(ramp(-1))
        await ticket
        assert house.server.version == 1
