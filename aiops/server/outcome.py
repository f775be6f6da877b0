"""What a worker is told of its push, the first time and every time that it asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.errors import Refused
from aiops.server.answer import send_model
from aiops.server.members import Taken
from aiops.wire.frame import Kind
from aiops.wire.message import Ack

if TYPE_CHECKING:
    from aiops.server.admission import AdmittedPush
    from aiops.server.service import Service


def confirm(service: Service, push: AdmittedPush, taken: Taken) -> None:
    """Tell a worker that its push is taken, with the newest model if it wants that."""
    if push.message.want:
        fragment = push.message.fragment
        send_model(service, push.peer, push.request, taken, holds=push.holds, fragment=fragment)
    else:
        lead = service.leads(push.member.worker)
        push.peer.post(Kind.ACK, Ack(taken.version, taken.staleness, lead), push.request)


def repeat(service: Service, push: AdmittedPush) -> None:
    """Say of a push that was answered before what was said then."""
    match push.member.outcomes.get(push.message.sequence):
        case Taken() as taken:
            confirm(service, push, taken)
        case Refused() as error:
            push.peer.refuse(push.request, error)
        case _:
            late = f"push {push.message.sequence} was answered long ago"
            push.peer.refuse(push.request, Refused(late))
