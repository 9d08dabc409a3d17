"""Processes of their own that start at once: forked from one that has imported torch already."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = """
import json, os, runpy, signal, sys, traceback

import torch

torch.set_num_threads(1)
import truedrift.training.checkpoint, truedrift.training.signals, truedrift.training.run_directory
import truedrift.training.journal, truedrift.training.checkpoint
import safetensors.torch

def run(script, arguments):
    signal.alarm(60)  # whatever hangs ends
    for target, ending in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(script + ending, os.O_WRONLY | os.O_APPEND), target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as end:
        return end.code
    except BaseException:
        traceback.print_exc()
        return 1

for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        status = run(order["script"], order["arguments"])
        sys.stdout.flush()
        os._exit(status)
    print(child, flush=True)
"""


@dataclass
class Started:
    """A process that runs a script; its output is in files, and can be read while it runs."""

    server: subprocess.Popen
    script: Path
    pid: int
    status: int | None = None

    def wait(self):
        """Its exit status, −9 if signal 9 ended it."""
        if self.status is None:
            self.status = ask(self.server, {"wait": self.pid})
        return self.status

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait_for(self, line):
        """Until it has printed that line."""
        deadline = time.monotonic() + 30
        while line not in self.lines:
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.002)

    @property
    def lines(self):
        return self.script.with_name(self.script.name + ".out").read_text().splitlines()

    @property
    def errors(self):
        return self.script.with_name(self.script.name + ".err").read_text()


def ask(server, order):
    server.stdin.write(json.dumps(order) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@pytest.fixture(scope="session")
def server():
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def start(server, tmp_path):
    """start(code, *arguments) → Started; whatever still runs at the end of the test is killed."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    started = []

    def start_one(code, *arguments):
        script = scripts / f"{len(started)}.py"
        script.write_text(textwrap.dedent(code))
        for ending in (".out", ".err"):
            script.with_name(script.name + ending).touch()
        pid = ask(server, {"script": str(script), "arguments": list(map(str, arguments))})
        started.append(Started(server, script, pid))
        return started[-1]

    yield start_one
    for one in started:
        if one.status is None:
            one.kill()
