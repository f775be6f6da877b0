"""The peers: each is behind the one door, sums what it should, and says when it is not here."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

from aiops.bench import native
from aiops.bench.layout import RESNET50_VALUES, resnet50, sizes
from aiops.bench.peers import base, zmq
from aiops.bench.peers.__main__ import main as peers_main
from aiops.bench.peers.base import Case, Skipped, package, pieces
from aiops.bench.peers.sockets import SOURCE
from aiops.bench.peers.table import PEERS, peer
from aiops.bench.peers.total import Total


@pytest.mark.parametrize("key", PEERS)
def test_every_peer_has_a_name_and_a_version_or_says_what_is_missing(key):
    found = peer(key)
    assert found.name
    assert found.spins in (True, False)
    try:
        told = found.versions()
    except Skipped as error:
        told = str(error)
    assert told


def test_a_package_that_is_not_there_is_skipped_with_its_name():
    with pytest.raises(Skipped, match="nothing-of-the-kind is not installed"):
        package("nothing-of-the-kind")


def test_a_package_without_its_module_is_skipped(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Skipped, match="numpy is not installed"):
        package("numpy")


def test_without_a_compiler_the_bound_is_skipped(monkeypatch):
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    with pytest.raises(Skipped, match="no C compiler"):
        peer("sockets").versions()


def test_a_broken_compiler_is_a_sentence(monkeypatch, tmp_path):
    cc = tmp_path / "cc"
    cc.write_text("#!/bin/sh\necho 'note: hello' >&2\necho 'fatal error: no stdio.h' >&2\nexit 1\n")
    cc.chmod(0o755)
    monkeypatch.setattr(native.shutil, "which", lambda name: str(cc))
    with pytest.raises(Skipped, match=r"cannot compile sockets.c: fatal error: no stdio.h$"):
        native.build(str(tmp_path), SOURCE)
    assert [path.name for path in tmp_path.iterdir()] == ["cc"]
    cc.write_text("no program at all")
    cc.chmod(0o644)
    with pytest.raises(Skipped, match=r"cannot compile sockets.c: Permission denied"):
        native.build(str(tmp_path), SOURCE)


@pytest.mark.parametrize("n_workers", [1, 2, 4])
def test_a_total_is_the_sum_of_one_push_of_everybody_round_after_round(n_workers):
    total, case = Total(n_workers, 3), Case(n_bytes=12, n_workers=n_workers)
    for factor in (1, 2, 3):
        for rank in range(n_workers):
            merged = total.add(factor * case.update(rank))
            assert (merged is not None) == (rank == n_workers - 1)
        np.testing.assert_array_equal(merged, np.full(3, factor * case.total, np.float32))


def test_a_sum_on_its_way_is_not_overwritten_by_the_next_round():
    total = Total(2, 1)
    for value in (1, 5):
        total.add(np.full(1, value, np.float32))
        merged = total.add(np.full(1, value, np.float32))
        if value == 1:
            first = merged
    assert first[0] == 2


def test_resnet50_has_161_tensors_and_its_known_number_of_parameters():
    assert len(list(resnet50())) == 161
    assert sum(resnet50()) == RESNET50_VALUES


@pytest.mark.parametrize("layout", ["one", "3", "100", "resnet50"])
def test_tensors_of_a_layout_add_up_to_the_case(layout):
    case = Case(n_bytes=4 * (RESNET50_VALUES if layout == "resnet50" else 1000), layout=layout)
    assert sum(sizes(case)) == case.n_values


def test_pieces_cover_everything_once():
    assert list(pieces(10, 4)) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert list(pieces(0, 4)) == []


@pytest.mark.parametrize("n_values", [1, 2, 7])
def test_what_pyzmq_sends_in_pieces_is_whole_again(monkeypatch, n_values):
    monkeypatch.setattr(zmq, "WHOLE_BYTES", 8)
    monkeypatch.setattr(zmq, "PIECE_BYTES", 8)
    case, messages = Case(n_bytes=4 * n_values), []
    update = np.arange(n_values, dtype=np.float32)
    socket = SimpleNamespace(send_multipart=lambda parts, copy: messages.append(parts))
    zmq._send(socket, update, b"worker 1")
    assert len(messages) == -(-n_values // 2)
    assert {parts[0] for parts in messages} == {b"worker 1"}
    coming = zmq.Incoming(case)
    for _ in range(2):
        *first, last = [coming.take(memoryview(parts[1]).cast("B")) for parts in messages]
        assert all(part is None for part in first)
        np.testing.assert_array_equal(last, update)


def test_a_first_round_that_is_no_sum_is_found():
    with pytest.raises(base.WrongSum, match="gave 1, the workers pushed 3"):
        base._check(1.0, Case(n_bytes=4, n_workers=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: key"),
        (["ray"], "invalid choice: 'ray'"),
        (["ours", "abc"], "'abc' is no whole number above 0"),
        (["ours", "0"], "'0' is no whole number above 0"),
        (["ours", "4096", "0"], "'0' is no whole number above 0"),
        (["ours", "1001"], "1001 bytes are no whole number of float32 values"),
        (["sockets"], "there is no C compiler"),
    ],
)
def test_a_peer_alone_is_refused_in_one_sentence(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    monkeypatch.setattr("sys.argv", ["aiops.bench.peers", *arguments])
    with pytest.raises(SystemExit) as ended:
        peers_main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
