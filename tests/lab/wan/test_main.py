"""``python -m aiops.lab.wan``: the table, the line of JSON, and exit codes."""

import msgspec
import pytest
from click.testing import CliRunner

from aiops.errors import ConfigError
from aiops.lab.wan.__main__ import table, wan
from aiops.lab.wan.gate import LinkCheck, Verdict
from aiops.lab.wan.link import LinkSpec

SPEC = LinkSpec(up_bits_s=20e6, down_bits_s=10e6, delay_s=0.025, loss=0.1)


def verdict(*reasons, up_bits_s=18e6):
    link = LinkCheck(worker=0, up_bits_s=up_bits_s, down_bits_s=9e6, round_trip_s=0.0502)
    return Verdict(
        label="TUN emulator",
        congestion="cubic",
        probed_with="bbr",
        links=[link],
        own=[msgspec.structs.replace(link, up_bits_s=1e6)],
        late_s=0.00005,
        cores=0.25,
        reasons=list(reasons),
    )


def test_the_table_has_every_number():
    assert table(SPEC, verdict()) == [
        "TUN emulator; congestion control cubic, measured with bbr",
        "   link  up Mbit/s  down Mbit/s  round trip ms",
        " should      18.00         9.00          50.08",
        "      0      18.00         9.00          50.20",
        "cubic 0       1.00         9.00          50.20",
        "worst: rate +0.00%, round trip +0.12 ms",
        "emulator: packets 0.050 ms late on average, 0.25 of a core",
        "accepted",
    ]


def test_the_table_says_what_is_wrong():
    assert table(SPEC, verdict("it is slow", "it is far"))[-2:] == [
        "rejected: it is slow",
        "rejected: it is far",
    ]


def test_a_run_prints_json_and_exits_with_0_or_5():
    arguments = ["--kind", "relay", "--links", "2", "--seconds", "0.2", "--delay", "1", "--json"]
    result = CliRunner().invoke(wan, arguments, standalone_mode=False)
    told = msgspec.json.decode(result.output, type=Verdict)
    assert (told.label, len(told.links)) == ("split TCP", 2)
    assert result.return_value == (0 if told.holds else 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--links", "201"], "links is 201, at most 200 can be emulated"),
        (["--seconds", "0"], "seconds is 0, it must be > 0"),
        (["--rate", "0"], "up_bits_s is 0.0, it must be > 0"),
        (["--kind", "relay", "--loss", "1"], "a loss of 0.01, a relay splits TCP"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    result = CliRunner().invoke(wan, arguments, standalone_mode=False)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
