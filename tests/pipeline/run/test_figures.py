"""The reference pipeline still computes what it did, on the CPU and on a virtual GPU (figures.py). `make accept` compares
all shipped pipelines."""
from figures import compare
from harness import *


@test
def the_reference_pipeline_computes_what_it_did():
    if SAN:
        raise Skip("the plain build compares; a sanitizer finds nothing more here")
    compare(["hyperion"])


if __name__ == "__main__":
    main()
