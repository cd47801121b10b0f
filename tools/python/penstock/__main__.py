"""`python -m penstock`, and the script `penstock` of the wheel: the command, with this interpreter for its parts in Python."""
import os
import sys

from .command import find_command


def main():
    try:
        command = find_command()
    except FileNotFoundError as error:
        sys.exit(f"penstock: {error}")
    os.environ.setdefault("PENSTOCK_PYTHON", sys.executable)
    os.execv(command, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
