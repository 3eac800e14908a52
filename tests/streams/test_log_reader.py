"""The reader of topics on a real broker."""

from kafka import KafkaProducer

from fluvial.schemas.topics import EPISODES
from fluvial.streams.log_reader import LogReader


def test_the_same_span_can_be_read_again_and_again_while_the_log_grows(kafka: str, topic_prefix: str) -> None:
    topic = EPISODES.named(topic_prefix)
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all")
    with LogReader(kafka, timeout=5) as reader:
        for _ in range(25):
            for number in range(60):
                producer.send(topic, b"x" * 2_000, partition=number % 3 // 2)
            producer.flush(30)
            whole = reader.spans(reader.partitions(topic))
            part = {partition: (end // 2, end - end // 4) for partition, (_, end) in whole.items()}
            for spans in (whole, part, part, whole):
                wanted = sum(end - start for start, end in spans.values())
                assert sum(1 for _ in reader.read(spans)) == wanted
    producer.close()
