"""Bring emulated links up, measure them, and say whether they are as asked for: ``python -m aiops.lab.wan``."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import click
import msgspec

from aiops.cli import exit_code
from aiops.cli.run import Signals, run
from aiops.errors import ConfigError
from aiops.lab.wan.address import MOST_WORKERS
from aiops.lab.wan.base import Kind
from aiops.lab.wan.door import open_wan
from aiops.lab.wan.gate import Verdict, worst
from aiops.lab.wan.link import WAYS, LinkSpec
from aiops.lab.wan.probe import TRANSFER_S, examine

# What `aiops` exits with where a run ends without what it was asked for.
MISSED = 5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the links are to be made."""

    kind: Kind | Literal["auto"]
    congestion: str | None
    slow_start_after_idle: bool | None
    seed: int


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--links", "n_links", type=int, default=6, show_default=True, help="Workers.")
@click.option("--rate", type=float, default=20.0, show_default=True, help="Mbit/s to the server.")
@click.option("--down", type=float, help="Mbit/s from it.  [default: as --rate]")
@click.option("--delay", type=float, default=25.0, show_default=True, help="One way, in ms.")
@click.option("--jitter", type=float, default=0.0, show_default=True, help="Up to so many ms off.")
@click.option("--loss", type=float, default=0.0, show_default=True, help="Percent of packets.")
@click.option("--queue", type=int, help="Bytes.  [default: two bandwidth-delay products]")
@click.option("--cc", "congestion", help="bbr, cubic or reno.  [default: the system's]")
@click.option("--slow-start-after-idle/--no-slow-start-after-idle", "idle", default=None)
@click.option("--kind", type=click.Choice(["auto", "tun", "netem", "relay"]), default="auto")
@click.option("--seed", type=int, default=0, show_default=True, help="Of losses and jitter.")
@click.option("--seconds", type=float, default=TRANSFER_S, show_default=True, help="A transfer's.")
@click.option("--json", "as_json", is_flag=True, help="Print it for programs.")
def wan(
    *,
    n_links: int,
    rate: float,
    down: float | None,
    delay: float,
    jitter: float,
    loss: float,
    queue: int | None,
    congestion: str | None,
    idle: bool | None,
    kind: Kind | Literal["auto"],
    seed: int,
    seconds: float,
    as_json: bool,
) -> int:
    """Bring emulated links up, measure them, and say whether they are as asked for; if not, exit with 5."""
    if n_links > MOST_WORKERS:
        raise ConfigError(f"links is {n_links}, at most {MOST_WORKERS} can be emulated")
    if not seconds > 0:
        raise ConfigError(f"seconds is {seconds:g}, it must be > 0")
    spec = LinkSpec(
        up_bits_s=rate * 1e6,
        down_bits_s=(rate if down is None else down) * 1e6,
        delay_s=delay / 1e3,
        jitter_s=jitter / 1e3,
        loss=loss / 100,
        queue_bytes=queue,
    )
    options = Options(kind=kind, congestion=congestion, slow_start_after_idle=idle, seed=seed)
    verdict = run(_until_asked([spec] * n_links, options, seconds))
    if isinstance(verdict, int):
        return verdict
    if as_json:
        click.echo(msgspec.json.encode(verdict).decode())
    else:
        click.echo("\n".join(table(spec, verdict)))
    return 0 if verdict.holds else MISSED


# The verdict, or the exit code of the signal that came before it.
async def _until_asked(links: list[LinkSpec], options: Options, seconds: float) -> Verdict | int:
    with Signals() as signals:
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(_measure(links, options, seconds))
            asked = tasks.create_task(signals.asked.wait())
            await asyncio.wait([work, asked], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            work.cancel()
    return signals.code or work.result()


async def _measure(links: list[LinkSpec], options: Options, seconds: float) -> Verdict:
    async with open_wan(
        links,
        kind=options.kind,
        congestion=options.congestion,
        slow_start_after_idle=options.slow_start_after_idle,
        seed=options.seed,
    ) as opened:
        return await examine(opened, transfer_s=seconds)


def table(spec: LinkSpec, verdict: Verdict) -> list[str]:
    """Return a verdict for people.

    Args:
        spec: What all links should be like.
        verdict: What they are like.
    """
    lines = [
        f"{verdict.label}; congestion control {verdict.congestion}, measured with {verdict.probed_with}",
        f"{'link':>7} {'up Mbit/s':>10} {'down Mbit/s':>12} {'round trip ms':>14}",
    ]
    up_bits_s, down_bits_s = (spec.rate(way) * (1 - spec.loss) for way in WAYS)
    lines.append(_row("should", up_bits_s, down_bits_s, spec.round_trip_s()))
    for name, links in (("", verdict.links), (f"{verdict.congestion} ", verdict.own)):
        lines += [
            _row(f"{name}{each.worker}", each.up_bits_s, each.down_bits_s, each.round_trip_s)
            for each in links
        ]
    rate, trip_s = worst([spec] * len(verdict.links), verdict.links)
    lines.append(f"worst: rate {rate:+.2%}, round trip {trip_s * 1e3:+.2f} ms")
    if verdict.late_s is not None and verdict.cores is not None:
        lines.append(
            f"emulator: packets {verdict.late_s * 1e3:.3f} ms late on average, {verdict.cores:.2f} of a core"
        )
    lines += [f"rejected: {reason}" for reason in verdict.reasons] or ["accepted"]
    return lines


def _row(name: str, up_bits_s: float, down_bits_s: float, trip_s: float) -> str:
    return f"{name:>7} {up_bits_s / 1e6:>10.2f} {down_bits_s / 1e6:>12.2f} {trip_s * 1e3:>14.2f}"


if __name__ == "__main__":
    sys.exit(exit_code(wan, None, name="aiops.lab.wan"))
