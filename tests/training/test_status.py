"""Status and duration of a run, from its history; complete, stopped and killed runs."""

import json
import os
from datetime import UTC, datetime

import pytest

from truedrift.training import RunStatus, run_status
from truedrift.training import status as status_module

STARTED, STOPPED, RESUMED = {"event": "started"}, {"event": "interrupted", "step": 4}, {"event": "resumed"}
COMPLETE = {"event": "complete", "step": 6}


@pytest.mark.parametrize(
    ("history", "status"),
    [
        ([], RunStatus.UNFINISHED),
        ([STARTED], RunStatus.UNFINISHED),
        ([STARTED, STOPPED], RunStatus.STOPPED),
        ([STARTED, STOPPED, RESUMED], RunStatus.UNFINISHED),
        ([STARTED, STOPPED, RESUMED, COMPLETE], RunStatus.COMPLETE),
        ([STARTED, COMPLETE | {"step": 5}], RunStatus.STOPPED),
        ([STARTED, COMPLETE | {"step": None}], RunStatus.STOPPED),
        ([STARTED, COMPLETE, {"event": "changed"}], RunStatus.COMPLETE),
    ],
)
def test_last_event_decides_the_status(history, status):
    assert run_status(history, steps=6) is status


def line(event, at, **more):
    return json.dumps({"event": event, "time": f"2026-01-01T{at}+00:00"} | more) + "\n"


def test_wall_seconds_count_to_the_end_or_the_last_write(tmp_path):
    history = [
        line("started", "10:00:00"),
        line("interrupted", "10:00:07"),
        line("resumed", "11:00:00"),  # and killed
        line("resumed", "12:00:00", last_written="2026-01-01T11:01:40+00:00"),
        line("changed", "12:00:01"),
        line("complete", "12:00:30"),
        line("resumed", "13:00:00"),  # killed before it wrote anything
        line("resumed", "14:00:00", last_written="2026-01-01T12:00:30+00:00"),  # killed; no time of the last write
        line("resumed", "14:00:09"),
    ]
    (tmp_path / "history.jsonl").write_text("".join(history))
    assert status_module.wall_seconds(tmp_path) == 7 + 100 + 30 + 0 + 9
    (tmp_path / "metrics.jsonl").write_text("")
    written = datetime(2026, 1, 1, 14, 1, 0, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "metrics.jsonl", (written, written))
    assert status_module.wall_seconds(tmp_path) == 7 + 100 + 30 + 0 + 9 + 51  # the last one is training, or was killed


@pytest.mark.parametrize(
    "torn", ['{"event": "comp\n', "[1]\n", '{"event": "complete", "time": 7}\n', "\0\0\n", '{"eve']
)
def test_torn_lines_of_the_history_are_skipped(torn, tmp_path):
    (tmp_path / "history.jsonl").write_text(line("started", "10:00:00") + line("complete", "10:00:05") + torn)
    assert status_module.wall_seconds(tmp_path) == 5
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write("\n" + line("resumed", "11:00:00") + line("complete", "11:00:02"))
    assert status_module.wall_seconds(tmp_path) == 7
