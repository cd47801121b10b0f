"""CUDA's Multi-Process Service for one bench or test: it is started before the processes that use it, and ended after them."""
import os
import shutil
import subprocess
import tempfile

from measure import BUILD, Unsound

CONTROL = "nvidia-cuda-mps-control"
KEEPER = os.path.join(BUILD, "bin", "penstock-mps")  # ends the daemon when we end, however we end
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
NONE = {PIPES: "/nonexistent"}  # processes with this find no MPS, not even one that the machine runs for all
STOP_S = 10


class Missing(Exception):
    """This machine has no MPS."""


class Service:
    """`with Service(scratch) as s`: processes with s.env are its clients. scratch: an existing folder for its logs."""

    def __init__(self, scratch):
        self.program = shutil.which(CONTROL)
        if not self.program:
            raise Missing(f"{CONTROL} is not in PATH")
        self.logs = os.path.join(os.path.abspath(scratch), "mps-logs")

    def __enter__(self):
        os.makedirs(self.logs, exist_ok=True)
        self.folder = tempfile.mkdtemp(prefix="penstock-")  # a short path: the daemon makes sockets in it
        self.env = {PIPES: os.path.join(self.folder, "mps")}
        self.keeper = subprocess.Popen([KEEPER, os.path.abspath(self.program), self.env[PIPES], self.logs], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.keeper.stdout.readline() != "ready\n":  # it waits a bounded time for the daemon
            error = self.keeper.communicate(timeout=STOP_S)[1].strip()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise Unsound(f"{self.program} did not start: {error}; see {self.logs}")
        return self

    def served(self):
        """Has a process used it? Its server starts with the first client, and stays."""
        answer = subprocess.run([self.program], input="get_server_list\n", env=dict(os.environ, CUDA_MPS_LOG_DIRECTORY=self.logs, **self.env), text=True,
                                capture_output=True, timeout=STOP_S)
        return answer.stdout.strip() != ""

    def __exit__(self, *_):
        try:
            self.keeper.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.keeper.kill()
            self.keeper.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)
