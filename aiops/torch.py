"""PyTorch: :func:`attach` keeps a module in sync with a parameter server, three lines in an existing loop."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aiops.api.connecting import connect
from aiops.errors import ConfigError, LocalProtocolError
from aiops.policy.table import parse_merge
from aiops.sync import Link as SyncLink
from aiops.sync.link import CLOSE_S
from aiops.transport.certificate import Tls
from aiops.types import TENSOR_DTYPES, TensorSpec
from aiops.worker.client import Client
from aiops.worker.machine import Rule, Vector


class Link(SyncLink):
    """A module's line to its parameter server; made by :func:`attach`. See :class:`aiops.sync.Link`."""

    holds = True

    def __init__(
        self,
        module: torch.nn.Module,
        tensors: Mapping[str, torch.Tensor],
        client: Client,
        *,
        rule: Rule | None,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._module = module
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._names = tuple(tensors)
        trained = {name for name, _ in module.named_parameters()}
        super().__init__(
            client,
            [
                TensorSpec(name, tuple(tensor.shape), _dtype(tensor), name not in trained)
                for name, tensor in tensors.items()
            ],
            gather=lambda flat: self._copy(flat, into_module=False),
            scatter=lambda flat: self._copy(flat, into_module=True),
            exact=all(tensor.dtype is torch.float32 for tensor in tensors.values()),
            rule=rule,
        )
        if self._machine.proximal is not None:
            self._hook = optimizer.register_step_pre_hook(lambda *_: self._hold())

    def close(self, *, flush: bool = True, timeout_s: float = CLOSE_S) -> None:
        """Leave the training, see :meth:`aiops.sync.Link.close`; the optimizer's steps are its own again."""
        if self._hook is not None:
            self._hook.remove()
        super().close(flush=flush, timeout_s=timeout_s)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs beside the module's and the optimizer's: counters, and residuals.

        The residuals (what compression left behind) are tensors of their own, float32, by key of the agreed table.
        """
        residuals = self._client.residuals()
        return {
            "clock": self._client.clock,
            "n_values": self._client.table.size,
            "residuals": {key: torch.from_numpy(rest.copy()) for key, rest in residuals.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`.

        Raises:
            ConfigError: It belongs to another model or codec, or something is missing.
        """
        missing = {"clock", "n_values", "residuals"} - set(state)
        if missing:
            raise ConfigError(f"state has no {', '.join(sorted(missing))}")
        if state["n_values"] != self._client.table.size:
            raise ConfigError(
                f"state is of {state['n_values']} values, the model has {self._client.table.size}"
            )
        residuals = {int(key): rest.numpy() for key, rest in state["residuals"].items()}
        self._thread.run(self._restore(residuals, int(state["clock"])))

    async def _restore(self, residuals: dict[int, NDArray[np.float32]], clock: int) -> None:
        try:
            self._client.restore_residuals(residuals)
        except LocalProtocolError as error:
            codec = self._client.policy.codec
            raise ConfigError(f"state does not fit codec {codec!r}: {error}") from None
        self._client.clock = clock

    # torch converts types, devices and strides on the way; a flat vector is seen as tensors without a copy.
    @torch.no_grad()
    def _copy(self, flat: Vector, *, into_module: bool) -> None:
        whole, at = torch.from_numpy(flat), 0
        # By name every time: moving a module to another device gives it new buffers.
        tensors = dict(self._module.named_parameters()) | dict(self._module.named_buffers())
        for name in self._names:
            tensor = tensors[name]
            part = whole[at : at + tensor.numel()].view(tensor.shape)
            at += tensor.numel()
            if into_module:
                tensor.copy_(part)
            else:
                part.copy_(tensor)

    # In the gradients, so that it is the gradient of both terms for every optimizer.
    @torch.no_grad()
    def _hold(self) -> None:
        proximal = self._machine.proximal
        if proximal is None or self.done:
            return
        for tensor, anchor in self._learned(proximal.anchor):
            if tensor.grad is not None:
                tensor.grad.add_(tensor - anchor.to(tensor), alpha=proximal.mu)

    @torch.no_grad()
    def _correct(self, correction: Vector) -> None:
        for tensor, part in self._learned(correction):
            tensor.add_(part.to(tensor.device))

    # Parameters stand first, and running statistics behind them.
    def _learned(self, flat: Vector) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        whole, at = torch.from_numpy(flat), 0
        params = dict(self._module.named_parameters())
        for name in self._names:
            tensor = params.get(name)
            if tensor is None:
                break
            yield tensor, whole[at : at + tensor.numel()].view(tensor.shape)
            at += tensor.numel()


def attach(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    url: str,
    *,
    name: str | None = None,
    buffers: bool = True,
    merge: str | None = None,
    alpha: float = 0.5,
    beta: float = 0.5,
    connect_timeout_s: float = 10.0,
    give_up_s: float = 600.0,
    tls: Tls | ssl.SSLContext | None = None,
    n_data: int = 0,
) -> Link:
    """Connect a module to a parameter server and load the server's parameters into it.

    The first worker's parameters become the server's; every later one receives them. Trained parameters
    (``requires_grad``) and floating-point buffers (BatchNorm statistics) are kept in sync, of any float dtype, device
    and stride. Frozen parameters and integer buffers stay as they are. The optimizer's state stays local.

    Where the server corrects drift, :meth:`Link.step` adds to the parameters; where it has a proximal term, a hook adds
    that to the gradients at the start of each ``optimizer.step()``, after whatever clips them. An optimizer that
    computes gradients itself (a closure) gets none.

    Args:
        module: What is trained.
        optimizer: What trains it.
        url: Where the server is: ``aiops://[token@]host[:port]``, or ``aiops+tls://...``.
        name: What this worker is called; see :func:`aiops.connect`.
        buffers: Whether floating-point buffers are kept in sync. Their values are averaged, and sent in full
            whatever the codec: a running variance must not be the sum of changes.
        merge: What becomes of the local model when the global one arrives, instead of what the server says: "reset"
            (the NBSync authors' rule), "carry", "eager", "mix" or "partial" (see :class:`aiops.Rule`), the last two
            also as "mix:0.5" and "partial:0.5". "partial" with ``beta=0.5`` bore the largest learning rates in our
            measurements.
        alpha: Share of its own model that "mix" keeps, in [0, 1).
        beta: Share of the progress that "partial" keeps, in [0, 1].
        connect_timeout_s: How long to wait for a server.
        give_up_s: How long a lost connection is tried to be replaced before :meth:`Link.step` raises.
        tls: Certificates, for ``aiops+tls://``; see :func:`aiops.connect`.
        n_data: Training samples that this worker has, such as ``len(dataset)``, for weights ``by_data``.

    Returns:
        The link: call ``link.step(n_samples=len(batch))`` after every ``optimizer.step()``, and ``link.close()``, or
        use it as ``with attach(...) as link``.

    Raises:
        ConfigError: The URL, the merge rule or the module cannot be used, or the server's rounds are blocking and a
            merge rule is given.
        ConnectFailed: No server answered in time.
        ShapeMismatch: The server holds another model; the message names the first tensor that differs.
    """
    rule = None
    if merge is not None:
        rule_name, shares = parse_merge(merge)
        rule = Rule(rule_name, shares.get("alpha", alpha), shares.get("beta", beta))
    tensors = _tensors(module, optimizer, buffers=buffers)
    client = connect(
        url,
        name=name,
        connect_timeout_s=connect_timeout_s,
        give_up_s=give_up_s,
        tls=tls,
        n_data=n_data,
    )
    return Link(module, tensors, client, rule=rule, optimizer=optimizer)


def _tensors(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, *, buffers: bool
) -> dict[str, torch.Tensor]:
    trained = {name: param for name, param in module.named_parameters() if param.requires_grad}
    if not trained:
        raise ConfigError("module has no parameter that requires a gradient, nothing to train")
    known = {id(param) for group in optimizer.param_groups for param in group["params"]}
    strangers = [name for name, param in trained.items() if id(param) not in known]
    if len(strangers) == len(trained):
        raise ConfigError(f"optimizer has none of the module's parameters (no {strangers[0]!r})")
    tensors: dict[str, torch.Tensor] = dict(trained)
    if buffers:
        kept = module.state_dict().keys()
        tensors |= {
            name: buffer
            for name, buffer in module.named_buffers()
            if buffer.is_floating_point() and name in kept
        }
    for name, tensor in tensors.items():
        if _dtype(tensor) not in TENSOR_DTYPES:
            names = ", ".join(TENSOR_DTYPES)
            raise ConfigError(f"tensor {name!r} is {_dtype(tensor)}, known are {names}")
        if tensor.layout is not torch.strided or tensor.is_meta:
            raise ConfigError(f"tensor {name!r} is sparse or has no memory, dense ones are needed")
    return tensors


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
