"""Memory cgroups for tests and benches: those of `penstock experiment`."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python"))
from penstock.figures.cgroup import Unavailable, memory_limit

__all__ = ["Unavailable", "memory_limit"]
