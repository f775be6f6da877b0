"""What the conformance suite needs of a stream, the same for every kind: begin, publish, open, kill, end."""

from __future__ import annotations

import math

from aiops.stream.meter import SMOOTHING_S
from aiops.stream.opening import open_source
from aiops.stream.redis_publish import RedisPublisher
from aiops.stream.replay import Replayer
from aiops.stream.tape import Around, StampedSample


class Published:
    """Values by index, as samples that grow."""

    def __init__(self):
        self.values = []

    def __len__(self):
        return max(1, len(self.values))

    def __getitem__(self, index):
        return b"key", self.values[index]


class Pushed:
    """Arrivals that come when a test says so: the new "pace" is how many more."""

    def __init__(self):
        self.count = 0

    def start(self, now, first):
        pass

    def arrived(self, now):
        return self.count

    def due(self, index):
        return math.inf

    def event_time(self, index):
        return float(index)

    def set_pace(self, now, pace):
        self.count += int(pace)

    def taken(self, index):
        pass


class ReplayedStream:
    kind = "replay"

    def __init__(self):
        self.samples = Published()
        self.arrivals = Pushed()
        self.open_ones = []
        self.acked = ""

    async def begin(self):
        pass

    async def end(self):
        for source in self.open_ones:
            await source.aclose()

    async def publish(self, values):
        self.samples.values += values
        source = self.open_ones[-1] if self.open_ones else None
        if source is None:
            self.arrivals.set_pace(0.0, len(values))
        else:
            source.set_pace(len(values))

    async def open(self, cursor=""):
        if self.open_ones:
            # What a server would remember, the process does.
            self.acked = self.open_ones[-1].cursor
        source = Replayer(
            Around(self.samples, None),
            self.arrivals,
            count=None,
            cursor=cursor or self.acked,
            smoothing_s=SMOOTHING_S,
        )
        self.open_ones.append(source)
        return source

    async def kill(self, source):
        pass


class ServedStream:
    """A stream of a server, with readers that can be ended as a crash would."""

    def __init__(self, url):
        self.url = url
        self.open_ones = []

    async def end(self):
        for source in self.open_ones:
            await source.aclose()
        await self.stop_writing()

    async def open(self, cursor="", **options):
        source = await open_source(self.url, cursor=cursor, **options)
        self.open_ones.append(source)
        return source

    async def kill(self, source):
        # A process that dies closes its sockets and says nothing.
        self.open_ones.remove(source)
        source._closed = True
        await source._link.close()


class RedisStream(ServedStream):
    kind = "redis"

    def __init__(self, port, name, options=""):
        super().__init__(
            f"redis://127.0.0.1:{port}/{name}?group=train&create=true&claim_s=3600{options}"
        )
        self.publisher = None

    async def begin(self):
        self.publisher = RedisPublisher(self.url)

    async def stop_writing(self):
        await self.publisher.aclose()

    async def publish(self, values):
        return await self.publisher.publish(
            StampedSample(float(n), b"key", value) for n, value in enumerate(values)
        )


class KafkaStream(ServedStream):
    kind = "kafka"

    def __init__(self, port, name):
        super().__init__(f"kafka://127.0.0.1:{port}/{name}?group={name}")
        self.address = f"127.0.0.1:{port}"
        self.topic = name
        self.producer = None

    async def begin(self, n_partitions=1):
        from aiokafka import AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        await admin.create_topics([NewTopic(self.topic, n_partitions, 1)])
        await admin.close()
        self.producer = AIOKafkaProducer(bootstrap_servers=self.address)
        await self.producer.start()

    async def stop_writing(self):
        await self.producer.stop()

    async def publish(self, values):
        # Tansu takes the first record of the last batch for the end of a partition, so a batch is one record where the
        # end is looked at, and only a flood is sent in large ones.
        send = self.producer.send_and_wait if len(values) <= 200 else self.producer.send
        for n, value in enumerate(values):
            await send(self.topic, value, key=b"key", timestamp_ms=n * 1000)
        await self.producer.flush()
