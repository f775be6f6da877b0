"""Questions to Kafka brokers, by partition number, and their errors as ours. Remembers nothing of what was read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

from aiops.errors import (
    AiopsError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    Rejected,
    RemoteProtocolError,
)
from aiops.stream.address import KafkaAddress

Offsets: TypeAlias = "dict[int, int]"
"""Partition -> offset of a record."""

ANSWER_S = 5.0
# Records a look into the fetched ones may bring.
PAGE = 256


class KafkaLink:
    """A consumer of one topic without a say in who reads what.

    Args:
        address: Where and what.

    Attributes:
        name: The topic, for people.

    Raises:
        ConfigError: The library is not installed.
    """

    def __init__(self, address: KafkaAddress) -> None:
        try:
            import aiokafka
        except ImportError:
            raise ConfigError(
                "kafka:// streams need the package aiokafka: pip install 'aiops-ps[kafka]'"
            ) from None
        self.name = str(address)
        self._address = address
        self._errors = aiokafka.errors
        self._raised = (aiokafka.errors.KafkaError, aiokafka.errors.ConsumerStoppedError, OSError)
        self._partition = aiokafka.TopicPartition
        self._consumer: Any = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=list(address.servers),
            group_id=address.group,
            enable_auto_commit=False,
            # Of offsets that the broker has deleted: the oldest that are left, never a jump to the end.
            auto_offset_reset="earliest",
            request_timeout_ms=round(ANSWER_S * 1000),
        )

    async def open(self) -> None:
        """Connect, and take the partitions.

        Raises:
            ConnectFailed: No broker answers.
            ConfigError: There is no such topic or partition.
        """
        try:
            async with self._asking():
                await self._consumer.start()
                topics = await self._consumer.topics()
        except ConnectionLost as error:
            raise ConnectFailed(f"cannot reach {error}") from error
        if self._address.topic not in topics:
            raise ConfigError(f"there is no topic {self.name}")
        held = self._consumer.partitions_for_topic(self._address.topic) or set()
        missing = sorted(set(self._address.partitions) - held)
        if missing:
            raise ConfigError(f"{self.name} has {len(held)} partitions, there is no {missing[0]}")
        self._consumer.assign([self._of(each) for each in self._address.partitions or held])

    async def begin(self) -> Offsets:
        """Return where each partition is to be read from: what is committed, or what the address says."""
        committed = {}
        async with self._asking():
            for each in self._consumer.assignment():
                committed[each.partition] = await self._consumer.committed(each)
            first = self._address.start == "first"
            find = self._consumer.beginning_offsets if first else self._consumer.end_offsets
            fresh = await find([self._of(each) for each, at in committed.items() if at is None])
        begun = {each.partition: offset for each, offset in fresh.items()}
        return {each: begun[each] if at is None else at for each, at in committed.items()}

    def seek(self, offsets: Offsets) -> None:
        """Go on with these offsets."""
        for each, offset in offsets.items():
            self._consumer.seek(self._of(each), offset)

    async def read(self, wait_s: float) -> list[Any]:
        """Wait for records, in their partitions' order; none come if none arrive in time."""
        try:
            found = await self._consumer.getmany(
                timeout_ms=max(1, round(wait_s * 1000)), max_records=PAGE
            )
        except self._raised as error:
            raise self._translated(error) from error
        return [each for records in found.values() for each in records]

    async def ends(self) -> Offsets:
        """Return the offset that the next record of each partition will have."""
        async with self._asking():
            found = await self._consumer.end_offsets(list(self._consumer.assignment()))
        return {each.partition: offset for each, offset in found.items()}

    async def commit(self, offsets: Offsets) -> None:
        """Commit the next offsets of partitions for the group."""
        async with self._asking():
            await self._consumer.commit({self._of(each): at for each, at in offsets.items()})

    async def close(self) -> None:
        """Let go of the brokers, whether they answer or not."""
        with contextlib.suppress(AiopsError):
            async with self._asking():
                await self._consumer.stop()

    def _of(self, partition: int) -> Any:  # noqa: ANN401 - the library has no types
        return self._partition(self._address.topic, partition)

    # The library tries for as long as it takes; here nothing waits longer than an answer may take.
    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(ANSWER_S):
                yield
        except self._raised as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> AiopsError:
        known = self._errors
        text = f"{self.name}: {str(error) or type(error).__name__}"
        if isinstance(error, TimeoutError):
            return ConnectionLost(f"{self.name}: no answer in {ANSWER_S:g} s")
        denied = known.TopicAuthorizationFailedError | known.GroupAuthorizationFailedError
        if isinstance(error, denied):
            return Rejected(f"{self.name} lets us not in: {error}")
        if isinstance(error, OSError | known.ConsumerStoppedError) or getattr(
            error, "retriable", False
        ):
            return ConnectionLost(text)
        return RemoteProtocolError(text)
