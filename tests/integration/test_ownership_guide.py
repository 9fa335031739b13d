"""The examples of docs/ownership.md run in order, unchanged except for the broker's address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster import Cluster

GUIDE = Path(__file__).parents[2] / "docs/ownership.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_every_example_prints_what_the_guide_says(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (broker,) = cluster.start()
    printed = []
    for example in EXAMPLES:
        exec(example.replace("localhost:9092", broker.address), {})
        printed.append(capsys.readouterr().out.splitlines())
    producer, consumer, lease, fence, condition, guard, append_id = printed

    assert producer == ["epoch 1 from offset 0"]
    assert consumer == ["0 b'I lead'"]
    assert lease == ["leading, generation 1"]
    assert fence == ["the lease has ended"]
    assert (condition, guard) == ([], []), "no append was refused for a mismatched offset"
    assert append_id == [
        "the first process: is now at offset 1",
        "the second process: was already at offset 1",
    ]
