"""``aiops status``: what a server is doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from aiops.api.connecting import connect
from aiops.cli.run import check_timeout, run
from aiops.cli.secure import files, tls_options
from aiops.transport.certificate import Tls


@click.command()
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Print it for programs.")
@click.option("--timeout-s", type=float, default=10.0, show_default=True, help="To connect.")
@tls_options
def status(
    url: str,
    *,
    as_json: bool,
    timeout_s: float,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Print what the server at URL is doing."""
    check_timeout(timeout_s)
    report = run(_ask(url, timeout_s, files(tls_cert, tls_key, tls_ca)))
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
        return
    click.echo(f"version   {report['version']}")
    if report["waiting"]:
        click.echo(f"state     {report['waiting']}")
    for member in report["members"]:
        name = f" ({member['name']})" if member["name"] else ""
        state = "" if member["connected"] else ", disconnected"
        click.echo(
            f"worker    {member['worker']}{name}: {member['merged']} pushes merged, "
            f"{member['clock']} local steps{state}"
        )
    if "landing" in report:
        now, most, waiting = (report["landing"][k] for k in ("bytes", "limit_bytes", "waiting"))
        click.echo(f"landing   {now} of {most} bytes, {waiting} pushes wait")
    if "auto" in report:
        click.echo(f"auto      {report['auto']['reason'] or 'Top-k and drift correction are off'}")
    for name, count in report["counters"].items():
        click.echo(f"count     {name}: {count}")


async def _ask(url: str, timeout_s: float, tls: Tls | None) -> dict[str, Any]:
    async with connect(url, connect_timeout_s=timeout_s, give_up_s=0.0, tls=tls) as ps:
        report = await ps.status()
        # The one who asks is a member while it asks; nobody wants to read about that.
        report["members"] = [m for m in report["members"] if m["worker"] != ps.worker]
        report["n_members"] -= 1
        return report
