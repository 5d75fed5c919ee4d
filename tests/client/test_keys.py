"""Idempotency keys are UUIDs of version 7."""

import time
import uuid

from odometer_client.keys import new_key, uuid7


def test_version_and_variant_are_those_of_rfc_9562() -> None:
    key = uuid7()
    assert key.version == 7
    assert key.variant == uuid.RFC_4122


def test_the_first_48_bits_are_the_time() -> None:
    before = time.time_ns() // 1_000_000
    stamped = uuid7().int >> 80
    assert before <= stamped <= time.time_ns() // 1_000_000


def test_keys_do_not_repeat() -> None:
    assert len({new_key() for _ in range(10_000)}) == 10_000
