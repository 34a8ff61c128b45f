"""The guard of the studio: the headers of every answer, and how much of a request is read."""

import asyncio

from regard.serve import guard


def test_security_policy_of_every_answer():
    policy = dict(rule.split(" ", 1) for rule in guard.HEADERS["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'self'", "style-src": "'self' 'unsafe-inline'", "img-src": "'self' data: blob:",
        "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "object-src": "'none'",
    }  # fmt: skip
    others = {name: value for name, value in guard.HEADERS.items() if name != "content-security-policy"}
    assert others == {
        "cross-origin-resource-policy": "same-origin", "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }  # fmt: skip


def read(sizes):
    """The body of a request in parts of these sizes, and how many of them were read."""
    count = 0

    async def receive():
        nonlocal count
        count += 1
        return {"body": b"x" * sizes[count - 1], "more_body": count < len(sizes)}

    return asyncio.run(guard.read(receive)), count


def test_read_keeps_a_body_of_exactly_the_limit():
    assert read([guard.LARGEST - 1, 1]) == (b"x" * guard.LARGEST, 2)
    assert read([guard.LARGEST, 1]) == (None, 2)


def test_read_stops_draining_a_body_without_end():
    part = guard.DRAINED // 8
    assert read([part] * 100) == (None, 9)
