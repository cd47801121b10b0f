"""Each shipped pipeline still computes what it did, on the CPU and on a virtual GPU."""
from figures import compare
from harness import *


@test
def shipped_pipelines_compute_what_they_did():
    compare(shipped_pipelines())


if __name__ == "__main__":
    main()
