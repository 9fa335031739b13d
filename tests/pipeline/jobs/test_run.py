"""One run of a job on an output folder: which error its caller gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.pipeline.jobs.ledger import DATA, SupersededError
from holdfast_log.pipeline.jobs.run import HeldOutput, JobError, JobRun


def later_run(place: Path) -> None:
    """Another process has the lease now, begins a run of its own, and is killed."""
    with HeldOutput("load", place, 2).run() as run:
        run.begin()


def write(run: JobRun, place: Path) -> Path:
    """A file in the folder of the run."""
    path = place / run.ledger.folder() / "part"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows")
    return path


@pytest.mark.parametrize("error", [OSError("Spark has lost its folder"), JobError("the files hold 0 rows")])
def test_a_run_whose_files_a_later_run_has_removed_names_that_run(tmp_path: Path, error: Exception) -> None:
    with (
        pytest.raises(SupersededError, match="with the lease token 2: this run is refused") as raised,
        HeldOutput("load", tmp_path, 1).run() as run,
    ):
        run.begin()
        part = write(run, tmp_path)
        later_run(tmp_path)
        assert not part.exists()
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("begins", [False, True])
def test_without_a_later_run_the_error_itself_is_raised(tmp_path: Path, begins: bool) -> None:
    later_run(tmp_path)
    with pytest.raises(JobError, match="wrong"), HeldOutput("load", tmp_path, 3).run() as run:
        if begins:
            run.begin()
        raise JobError("wrong")


def test_an_error_after_the_result_does_not_deny_the_result(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no broker"), HeldOutput("load", tmp_path, 1).run() as run:
        run.begin()
        part = write(run, tmp_path)
        run.finish("load", {"t": {"0": 1}}, [f"{run.ledger.folder()}/part"], {})
        run.report.status = "done"
        later_run(tmp_path)
        raise JobError("no broker")
    assert part.parent.parent == tmp_path / DATA
    assert part.exists()
