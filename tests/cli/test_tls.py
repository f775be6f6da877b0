"""TLS on the command line: the server as a process, and the verbs that connect to it."""

import asyncio
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from aiops.cli import main
from aiops.launch.process import Child
from tests.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


def options(tls, *, ca="--tls-ca"):
    pairs = (("--tls-cert", tls.cert), ("--tls-key", tls.key), (ca, tls.ca))
    return [text for name, value in pairs if value is not None for text in (name, str(value))]


# The verbs run loops of their own.
async def run(capsys, *arguments):
    code = await asyncio.to_thread(main, arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.timeout(60)
async def test_status_and_pull_reach_a_server_with_mutual_tls(authority, tmp_path, capsys):
    start, file = tmp_path / "start.safetensors", tmp_path / "model.safetensors"
    save_file({"w": np.arange(40, dtype=np.float32)}, start)
    serve = ["serve", "--port", "0", "--init", str(start)]
    serve += options(authority.server(), ca="--tls-client-ca")
    async with Child("aiops", serve, name="server") as server:
        url = (await server.hear(20)).decode()
        assert url.startswith("aiops+tls://127.0.0.1:")
        own = options(authority.worker())
        code, out, err = await run(capsys, "status", url, "--json", *own)
        assert (code, json.loads(out)["version"]) == (0, 0), err
        code, out, err = await run(capsys, "pull", url, str(file), *own)
        assert code == 0, err
        np.testing.assert_array_equal(load_file(file)["w"], np.arange(40))
        # Without a certificate, without the authority, and without TLS.
        code, _, err = await run(capsys, "status", url, "--tls-ca", str(authority.file))
        assert (code, "refuses our certificate" in err) == (4, True)
        code, _, err = await run(capsys, "status", url)
        assert (code, "its certificate is not accepted" in err) == (4, True)
        code, _, err = await run(capsys, "status", url.replace("+tls", ""))
        assert (code, "whose url begins with aiops+tls://" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--tls-cert", "/nowhere/c"], "cannot read the certificate /nowhere/c: No such"),
        (["serve", "--tls-key", "/nowhere/k"], "tls has no certificate, a server needs one"),
        (["serve", "--tls-client-ca", "/nowhere/ca"], "tls has no certificate, a server needs one"),
        (["status", "aiops://x", "--tls-ca", "/nowhere/ca"], "the url is aiops://, which goes"),
        (["status", "aiops+tls://x", "--tls-ca", "/nowhere/ca"], "cannot read the authorities"),
        (["pull", "aiops+tls://x", "y", "--tls-key", "/nowhere/k"], "there is a key, /nowhere/k"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence_with_exit_code_2(capsys, arguments, message):
    code = main(arguments)
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert message in told.err
    assert len(told.err.strip().splitlines()) == 1


def test_mutual_tls_lets_a_server_be_reached_without_a_token_and_tls_alone_does_not(
    authority, capsys
):
    own = authority.server()
    arguments = ["serve", "--host", "0.0.0.0", *options(own, ca="--tls-client-ca")[:4]]
    assert main(arguments) == 2
    assert "give --token-file or --tls-client-ca" in capsys.readouterr().err
    # It gets as far as the next mistake.
    assert main([*arguments, "--tls-client-ca", str(own.ca), "--rounds", "0"]) == 2
    assert "rounds is 0" in capsys.readouterr().err
