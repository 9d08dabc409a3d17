"""The fixture `start`: run a script in a new process, forked from a server that has already imported torch."""

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
import truedrift.training
import safetensors.torch

def run(script, arguments):
    signal.alarm(60)  # end a process that hangs
    for target, ending in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(script + ending, os.O_WRONLY | os.O_APPEND), target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as error:
        return error.code
    except BaseException:
        traceback.print_exc()
        return 1

for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        status = run(request["script"], request["arguments"])
        sys.stdout.flush()
        os._exit(status)
    print(child, flush=True)
"""


@dataclass
class ScriptProcess:
    """A process that runs a script. Its output goes to files, which can be read while it runs."""

    server: subprocess.Popen
    script: Path
    pid: int
    status: int | None = None

    def wait(self):
        """Wait for the end; return the exit status, −9 after SIGKILL."""
        if self.status is None:
            self.status = send_request(self.server, {"wait": self.pid})
        return self.status

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait_for(self, line):
        """Wait until the script has printed that line."""
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


def send_request(server, request):
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@pytest.fixture(scope="session")
def server():
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def start(server, tmp_path):
    """start(code, *arguments) → ScriptProcess. Processes that still run at the end of the test are killed."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    processes = []

    def start_script(code, *arguments):
        script = scripts / f"{len(processes)}.py"
        script.write_text(textwrap.dedent(code))
        for ending in (".out", ".err"):
            script.with_name(script.name + ending).touch()
        pid = send_request(server, {"script": str(script), "arguments": list(map(str, arguments))})
        processes.append(ScriptProcess(server, script, pid))
        return processes[-1]

    yield start_script
    for process in processes:
        if process.status is None:
            process.kill()
