"""MPS of a run's own: its keeper ends it, whoever is killed."""
import signal

from harness import *
from mps import fake

KEEPER = os.path.join(BUILD, "bin", "penstock-mps")
END_S = 2 * (5 if SAN else 1)


class Keeper:
    def __init__(self, p, before=""):
        fake(p.dir, before)
        self.pipes, self.logs = p.path("mps"), p.path("logs")
        os.makedirs(self.logs, exist_ok=True)
        self.process = subprocess.Popen([KEEPER, p.path("nvidia-cuda-mps-control"), self.pipes, self.logs], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = self.process.stdout.readline()

    def log(self):
        with open(os.path.join(self.logs, "control.log")) as f:
            return f.read()

    def end(self):
        """(exit code, errors), after standard input has ended."""
        t0 = time.time()
        _, err = self.process.communicate(timeout=20)
        assert time.time() - t0 < END_S, f"{time.time() - t0:.1f} s"
        no_leftovers(0.5)
        assert not os.path.exists(self.pipes), os.listdir(self.pipes)
        return self.process.returncode, err


@test
def it_is_asked_to_quit():
    with Place() as p:
        k = Keeper(p)
        assert k.said == "ready\n" and os.stat(k.pipes).st_mode & 0o777 == 0o700
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            k.process.send_signal(number)  # the supervisor's matter
        assert k.end() == (0, "") and k.log().endswith("quit\n"), k.log()


@test
def what_does_not_listen_is_killed():
    with Place() as p:
        k = Keeper(p, before="trap '' INT TERM; : >\"$pipes/control\"; setsid sleep 1000 & sleep 1000; exit")
        assert k.said == "ready\n"
        assert k.end()[0] == 0


@test
def who_started_it_is_killed():
    with Place() as p:
        fake(p.dir)
        os.makedirs(p.path("logs"))
        code = ("import subprocess, sys, time; k = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(1000)")
        starter = subprocess.Popen([sys.executable, "-c", code, KEEPER, p.path("nvidia-cuda-mps-control"), p.path("mps"),
                                    p.path("logs")], stdout=subprocess.PIPE, text=True)
        assert starter.stdout.readline() == "ready\n"
        starter.kill()
        starter.wait()
        no_leftovers(END_S)
        assert not os.path.exists(p.path("mps"))


@test
def a_daemon_that_does_not_start_is_told():
    with Place() as p:
        k = Keeper(p, before="exit 3")
        code, err = k.end()
        assert k.said == "" and code == 1 and "ended at once, with status 3" in err, (k.said, code, err)


if __name__ == "__main__":
    main()
