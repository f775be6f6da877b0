"""The command line in this process: what is refused, how, and with which exit code."""

import asyncio
import json
import threading

import numpy as np
import pytest

from aiops.api.connecting import connect
from aiops.api.serving import serve
from aiops.cli import main
from aiops.errors import ConfigError
from aiops.sync import LoopThread


@pytest.fixture
def server():
    thread = LoopThread("server")

    async def enter():
        params = {"a": np.arange(4, dtype=np.float32), "b": np.ones((2, 3), np.float32)}
        return await serve(params=params, work="fixed:1").__aenter__()

    server = thread.run(enter())
    yield server
    thread.run(server.stop())
    thread.close()


def run(capsys, *arguments):
    code = main(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--sync", "blk"], "unknown sync 'blk'"),
        (["serve", "--sync", "ssp:x"], "ssp:x"),
        (["serve", "--codec", "topk:2"], r"topk's density is 2"),
        (["serve", "--weights", "by_sample"], "did you mean 'by_samples'?"),
        (["serve", "--port", "70000"], "port is 70000, it must be in 0..65535"),
        (["serve", "--host", "0.0.0.0"], "there is no token"),
        (["serve", "--token-file", "/nowhere/token"], "cannot read the token file /nowhere/token"),
        (["serve", "--init", "/nowhere/x.safetensors"], "cannot read /nowhere/x.safetensors"),
        (["serve", "--config", "/nowhere/c.toml"], "cannot read /nowhere/c.toml"),
        (["serve", "--rounds", "0"], "rounds is 0, it must be >= 1"),
        (["serve", "--landing-bytes", "9"], "use sync bulk, fold 'arrival' and no stream_bytes"),
        (["serve", "--lease-s", "1"], "heartbeat_s is 2, it must be less than half of lease_s"),
        (["serve", "--algorithm", "ssgd", "--merge", "carry"], "merge"),
        (["status", "http://x"], "scheme 'http' is unknown"),
        (["demo", "--workers", "1"], "demo has 1 workers, it takes at least 2"),
        (["demo", "--slowdown", "1,2"], "slowdown names 2 workers, there are 4"),
        (["demo", "--slowdown", "fast"], "slowdown is 'fast', it must be numbers with commas"),
        (["demo", "--target", "1.5"], "target is 1.5, it must be between 0 and 1"),
        (["demo", "--rate-mbit", "0"], "rate is 0"),
        (["demo", "--merge", "rset"], "unknown merge 'rset'"),
        (["demo", "--picture", "/nowhere/demo.png"], "/nowhere is no directory to write to"),
        (["demo", "--picture", "demo.xyz"], "picture is demo.xyz, it must end in .png"),
        (["demo", "--alpha", "0"], "alpha is 0.0, it must be > 0"),
        (["serve", "--save", "/nowhere/x.safetensors"], "/nowhere is no directory to write to"),
        (["status", "aiops://x", "--timeout-s", "0"], "timeout is 0 s, it must be > 0"),
        (["pull", "aiops://x", "x", "--timeout-s", "-1"], "timeout is -1 s, it must be > 0"),
        (["demo", "--fedavg-steps", "0"], "fixed"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence_with_exit_code_2(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["serve", "--prt", "1"], ["serv"], ["demo", "--workers", "x"], ["status"]]
)
def test_a_usage_error_shows_the_usage_with_exit_code_2(capsys, arguments):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "Usage: aiops" in err


def test_help_and_version_say_what_they_should(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(verb in out for verb in ("serve", "status", "pull", "demo"))
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("aiops, version")


@pytest.mark.parametrize("verb", [["status"], ["pull"]])
def test_a_server_that_is_down_gives_exit_code_3_and_its_address(capsys, tmp_path, verb):
    file = [str(tmp_path / "x.safetensors")] if verb == ["pull"] else []
    code, out, err = run(capsys, *verb, "aiops://127.0.0.1:1", *file, "--timeout-s", "0.2")
    assert (code, out) == (3, "")
    assert "127.0.0.1:1: Connection refused" in err


def test_status_tells_people_and_programs(capsys, server):
    code, out, _ = run(capsys, "status", server.url)
    assert code == 0
    assert out.startswith("version   0")
    code, out, _ = run(capsys, "status", server.url, "--json")
    assert json.loads(out)["version"] == 0
    assert json.loads(out)["members"] == []


def test_status_tells_how_much_may_be_on_its_way_in_and_how_much_is(capsys, serving):
    server = serving(params={"a": np.zeros(4, np.float32)}, fold="arrival", landing_bytes=64)
    _, out, _ = run(capsys, "status", server.url)
    assert "landing   0 of 64 bytes, 0 pushes wait\n" in out


def test_status_tells_what_auto_has_turned_on_and_why(capsys, serving):
    server = serving(params={"a": np.zeros(4, np.float32)}, auto=True)
    _, out, _ = run(capsys, "status", server.url)
    assert "auto      Top-k and drift correction are off\n" in out
    server.service.autopilot.reason = "Top-k both ways is on: links are slow"
    _, out, _ = run(capsys, "status", server.url)
    assert "auto      Top-k both ways is on: links are slow\n" in out


def test_pull_writes_the_newest_parameters(capsys, server, tmp_path):
    from safetensors.numpy import load_file

    path = tmp_path / "model.safetensors"
    code, out, _ = run(capsys, "pull", server.url, str(path))
    assert code == 0
    assert out.strip() == f"{path}: version 0, 2 tensors, 10 values"
    np.testing.assert_array_equal(load_file(path)["a"], np.arange(4, dtype=np.float32))
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_pull_from_a_server_without_parameters_says_so_at_once(capsys, tmp_path):
    thread = LoopThread("server")

    async def enter():
        return await serve().__aenter__()

    server = thread.run(enter())
    try:
        code, _, err = run(capsys, "pull", server.url, str(tmp_path / "x.safetensors"))
        assert (code, "has no parameters yet: waiting for the first worker" in err) == (3, True)
    finally:
        thread.run(server.stop())
        thread.close()


def test_a_file_of_types_that_numpy_lacks_is_refused_in_a_sentence(capsys, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    path = tmp_path / "half.safetensors"
    save_file({"w": torch.ones(3, dtype=torch.bfloat16)}, path)
    code, _, err = run(capsys, "serve", "--init", str(path), "--port", "0")
    assert (code, "save it as float32" in err) == (2, True)


def test_pull_that_cannot_write_says_where(capsys, server):
    code, _, err = run(capsys, "pull", server.url, "/nowhere/x.safetensors")
    assert code == 2
    assert "cannot write /nowhere/x.safetensors" in err


def test_a_wrong_token_gives_exit_code_4(capsys):
    thread = LoopThread("server")

    async def enter():
        return await serve(token="secret").__aenter__()

    server = thread.run(enter())
    try:
        code, _, err = run(capsys, "status", server.url, "--timeout-s", "2")
        assert code == 4
        assert "this server asks for a token" in err
        code, out, _ = run(capsys, "status", server.url.replace("//", "//secret@"))
        assert code == 0
        assert "secret" not in out
    finally:
        thread.run(server.stop())
        thread.close()


async def test_the_urls_token_is_shown_to_the_server():
    async with (
        serve(token="secret") as server,
        connect(server.url.replace("//", "//secret@")) as ps,
    ):
        assert ps.worker == 0


def test_a_taken_port_names_it(capsys, server):
    port = server.url.rpartition(":")[2]
    code, _, err = run(capsys, "serve", "--port", port)
    assert code == 2
    assert f"cannot bind 127.0.0.1:{port}" in err
    assert "is another server running there?" in err


def test_serve_reads_its_options_from_a_file_and_the_command_line_wins(capsys, tmp_path):
    path = tmp_path / "serve.toml"
    path.write_text('sync = "blk"\nport = 0\n')
    code, _, err = run(capsys, "serve", "--config", str(path))
    assert (code, "unknown sync 'blk'" in err) == (2, True)
    code, _, err = run(capsys, "serve", "--config", str(path), "--sync", "blq")
    assert (code, "unknown sync 'blq'" in err) == (2, True)
    path.write_text("prt = 1\n")
    code, _, err = run(capsys, "serve", "--config", str(path))
    assert (code, "sets 'prt', which is no option of serve" in err) == (2, True)
    path.write_text('init = "/nowhere/a"\nlease_s = 20\n')
    code, _, err = run(capsys, "serve", "--config", str(path))
    assert (code, "cannot read /nowhere/a as safetensors" in err) == (2, True)
    path.write_text("rounds = [1, 2]\n")
    code, _, err = run(capsys, "serve", "--config", str(path))
    assert (code, "sets rounds to [1, 2], it must be text or a number" in err) == (2, True)
    path.write_bytes(b"\xff\xfe")
    code, _, err = run(capsys, "serve", "--config", str(path))
    assert (code, "cannot read" in err) == (2, True)
    path.write_text("prt = \n")
    code, _, err = run(capsys, "serve", "--config", str(path))
    assert (code, "cannot read" in err) == (2, True)


def test_serve_in_a_loop_of_another_threads_is_still_ended_by_stop():
    # The embedded server has no signal handlers: those belong to the process, that is to the command.
    async def work():
        async with serve() as server:
            return server.url

    result = []
    thread = threading.Thread(target=lambda: result.append(asyncio.run(work())))
    thread.start()
    thread.join()
    assert result[0].startswith("aiops://127.0.0.1:")


def test_config_and_single_settings_together_are_refused():
    from aiops.config import ServerConfig

    with pytest.raises(ConfigError, match="not both"):
        serve(config=ServerConfig(), sync="bulk")
