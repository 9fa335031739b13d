"""The examples of docs/clients.md run in order, unchanged except for the broker's address."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.cluster import Cluster
from tests.integration.programs import finished

HOME = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (HOME / "docs/clients.md").read_text(), re.DOTALL)


def test_every_example_prints_what_the_guide_says(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    printed = []
    for example in EXAMPLES:
        done = finished([sys.executable, "-c", example.replace("localhost:9092", broker.address)])
        assert done.returncode == 0, f"{example}\n{done.stderr}"
        printed.append(done.stdout.splitlines())
    single, called_back, in_bulk, *reading, batches, topic, in_loop = printed[:-4]
    feedback, exposed, traced, own = printed[-4:]
    records, with_schema, readable = reading

    assert single == ["0"]
    assert called_back == [f"flights-0 at {offset}" for offset in (1, 2, 3)]
    assert in_bulk == ["100000 arrived, 0 failed"]
    assert in_loop == ["5000 written", "5001 read"]
    assert len(records) == 500 and records[0] == "0 0 b'UA' b'EWR to IAH'"
    assert readable == ["500 records can be read"]
    assert with_schema == ["{'item': 'tea', 'count': 2}"]
    assert batches[0].startswith("0 1 ")
    assert topic == ["arrivals 6"]
    assert feedback[0] == "1 acknowledged, 0 waiting" and re.fullmatch(
        r"[\d.]+ ms to the answer", feedback[1]
    )
    assert re.fullmatch(r"\d+ lines about records", exposed[0])
    assert traced == ["True"]
    assert own == [
        "['arrivals', 'arrivals-seen', 'flights', 'orders', 'traced-orders']",
        f"{broker.broker_id} 5",
    ]
