"""A driver that runs the drill's query to its end: a process to be killed.

python -m tests.pipeline.sink.driver BOOTSTRAP TOPIC DIRECTORY DELIVERY FAULT
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipeline.sink.drill_query import Place, finish, session, start


def main() -> None:
    bootstrap, topic, directory, delivery, fault = sys.argv[1:]
    place = Place(bootstrap, topic, Path(directory), delivery)
    finish(start(session(), place, fault))


if __name__ == "__main__":
    main()
