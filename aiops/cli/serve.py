"""``aiops serve``: a standalone server process."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import click

from aiops.api.serving import Server
from aiops.api.serving import serve as make_server
from aiops.cli.run import Signals, run
from aiops.cli.secure import files
from aiops.cli.tensors import check_place, load, save
from aiops.config import CODEC, BootstrapName, DriftName, FoldName, ServerConfig, preset
from aiops.errors import ConfigError
from aiops.policy.preset import PRESETS
from aiops.sync.thread import LOOPS, LoopName

log = logging.getLogger("aiops.server")


def _defaults(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        settings = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    names = {
        text.removeprefix("--"): option.name
        for option in context.command.params
        for text in option.opts
        if option.name != "config"
    }
    for name, value in settings.items():
        if name.replace("_", "-") not in names:
            raise ConfigError(f"{path} sets {name!r}, which is no option of serve")
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"{path} sets {name} to {value!r}, it must be text or a number")
    context.default_map = {
        str(names[name.replace("_", "-")]): value for name, value in settings.items()
    }


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_defaults,
    help="TOML file with these options by name; the command line wins.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind.")
@click.option(
    "--port", type=int, default=4711, show_default=True, help="Port to bind; 0 takes a free one."
)
@click.option(
    "--algorithm",
    type=click.Choice(sorted(PRESETS)),
    help="Settings of a published algorithm; single options win.",
)
@click.option(
    "--sync", help="When a round closes: bulk, asynchronous, ssp:3, dssp:3,15, buffered:3."
)
@click.option(
    "--weights", help="What a push weighs: by_samples, uniform, by_staleness:0.5, a*b, ..."
)
@click.option(
    "--work",
    help="Local steps between pushes: until_model:1,50 or fill_the_sync:8 (overlap), fixed:10, esync:4, "
    "fragments:4,100,5.",
)
@click.option(
    "--codec",
    help=f"How updates travel: {', '.join(CODEC)}; topk and artopk with a density, topk:0.01.",
)
@click.option("--merge", help="Overlap: reset, carry, eager, mix:0.5, partial:0.5.")
@click.option(
    "--drift", type=click.Choice(get_args(DriftName)), help="Correct workers' drift (by_steps)."
)
@click.option("--proximal", type=float, help="Hold local steps near the model: FedProx's mu.")
@click.option(
    "--bootstrap", type=click.Choice(get_args(BootstrapName)), help="Overlap: first push."
)
@click.option(
    "--fold",
    type=click.Choice(get_args(FoldName)),
    help="Add a bulk round's pushes when it closes, or each as it comes, which needs no memory per worker.",
)
@click.option(
    "--landing-bytes",
    type=int,
    help="Most bytes of pushes on their way in at once, the others wait; needs --fold arrival.",
)
@click.option("--server-lr", type=float, help="What a merged update is multiplied by.")
@click.option(
    "--aggregation", help="What a round's pushes come to: mean, median, trimmed_mean:0.1, krum:1,2."
)
@click.option(
    "--optimizer",
    help="How that moves the parameters: sgd, momentum:1,0.9, nesterov:0.7,0.9, adam, yogi, adagrad.",
)
@click.option(
    "--down", help="How what a round changes travels to the workers: dense, topk:0.01, any codec."
)
@click.option(
    "--compensation",
    help="What late pushes are corrected by: none, mixing, dcasgd:0.04,LR, dcasgd_adaptive:2,0.95,LR.",
)
@click.option("--shards", type=int, help="Partitions of the parameters.")
@click.option(
    "--min-workers", type=int, help="No round closes before so many workers have pushed once."
)
@click.option("--max-members", type=int, help="Most workers at one time.")
@click.option("--rounds", type=int, help="Tell workers to end after so many versions.")
@click.option("--lease-s", type=float, help="Silence after which a worker is dropped, in seconds.")
@click.option("--heartbeat-s", type=float, help="Time between signs of life, in seconds.")
@click.option("--idle-timeout-s", type=float, help="Longest transfer without progress, in seconds.")
@click.option("--bucket-bytes", type=int, help="Largest bucket.")
@click.option("--max-frame-bytes", type=int, help="Largest frame accepted.")
@click.option(
    "--stream-bytes",
    type=int,
    help="Send the model back in chunks of so many bytes while pushes still come; needs bulk.",
)
@click.option(
    "--auto",
    is_flag=True,
    default=None,
    help="Overlap, stream chunks, and turn Top-k or drift correction on and off by what is measured.",
)
@click.option(
    "--injection", help="Samples that workers share: random:alpha,beta (ScaDLES' data injection)."
)
@click.option("--share-bytes", type=int, help="Most bytes of samples that a worker may share.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    envvar="AIOPS_TOKEN_FILE",
    help="File with the secret that workers must show.  [env: AIOPS_TOKEN_FILE]",
)
@click.option("--insecure", is_flag=True, help="Bind beyond this machine and let everybody in.")
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    help="Speak TLS and show this certificate (PEM, with what is between it and the authority).",
)
@click.option(
    "--tls-key",
    type=click.Path(path_type=Path),
    help="Its key, not encrypted; in the same file unless given.",
)
@click.option(
    "--tls-client-ca",
    type=click.Path(path_type=Path),
    help="Let in only workers whose certificate these authorities have signed (mutual TLS).",
)
@click.option(
    "--init",
    "start",
    type=click.Path(path_type=Path),
    help="Parameters to start from: safetensors.",
)
@click.option(
    "--save", "end", type=click.Path(path_type=Path), help="Write the parameters there at the end."
)
@click.option(
    "--congestion",
    help="TCP congestion control; the system's unless given, on loopback the fastest allowed.",
)
@click.option(
    "--shared-memory/--no-shared-memory",
    default=True,
    help="Let workers of this user on this machine go past TCP.  [default: they do]",
)
@click.option("--loop", type=click.Choice(LOOPS), default="auto", help="Event loop.")
@click.option(
    "--end-with-stdin",
    is_flag=True,
    help="End when standard input does: for whoever starts this and must not leave it behind.",
)
def serve(
    host: str,
    port: int,
    *,
    algorithm: str | None,
    token_file: Path | None,
    insecure: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    start: Path | None,
    end: Path | None,
    rounds: int | None,
    congestion: str | None,
    shared_memory: bool,
    loop: LoopName,
    end_with_stdin: bool,
    **settings: Any,  # noqa: ANN401 -- click passes the options of ServerSpec by name
) -> int:
    """Serve parameters; the first line on stdout is the URL for workers.

    SIGTERM or Ctrl-C says goodbye to the workers and ends; a second one ends at once.
    """
    spec: dict[str, Any] = dict(preset(algorithm)) if algorithm else {}
    spec |= {name: value for name, value in settings.items() if value is not None}
    spec["token"] = _token(token_file)
    config = ServerConfig.parse(**spec)
    anybody = config.token is None and tls_client_ca is None
    if anybody and not insecure and not _is_local(host):
        raise ConfigError(
            f"host {host} can be reached from other machines and there is no token: "
            "give --token-file or --tls-client-ca, or --insecure to let everybody in"
        )
    if end is not None:
        check_place(end)
    params = None if start is None else load(start)
    server = make_server(
        host,
        port,
        config=config,
        params=params,
        rounds=rounds,
        congestion=congestion,
        shared_memory=shared_memory,
        tls=files(tls_cert, tls_key, tls_client_ca),
    )
    _allow_descriptors()
    return run(_serve(server, end, end_with_stdin=end_with_stdin), loop=loop)


async def _serve(server: Server, end: Path | None, *, end_with_stdin: bool) -> int:
    with Signals() as signals:
        if end_with_stdin:
            asyncio.get_running_loop().add_reader(sys.stdin, _watch, signals)
        async with server:
            click.echo(server.url)
            log.info("serving at %s", server.url)
            async with asyncio.TaskGroup() as tasks:
                waiters = [
                    tasks.create_task(server.wait()),
                    tasks.create_task(signals.asked.wait()),
                ]
                await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
                waiters[1].cancel()
                if signals.asked.is_set():
                    if end is not None and server.service.store.seeded:
                        save(end, server.params())
                    await server.stop("server was told to end")
    return signals.code


# The usual limit, 1024, is for programs that ask the system about descriptors in a fixed table: nobody here does.
def _allow_descriptors() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems call it unlimited and allow less.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _watch(signals: Signals) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin)
        signals.asked.set()


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token file {path}: {error}") from None


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
