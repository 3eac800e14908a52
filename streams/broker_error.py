"""What keeps the local broker from running, told to a person."""


class BrokerError(RuntimeError):
    """The local Apache Kafka cannot run; the message says why and what to do."""
