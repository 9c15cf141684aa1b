"""python -m rondo: the command `rondo`, which lies in the package; RONDO_PROGRAM names another."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    """Becomes the program, with its arguments, signals and exit status."""
    own = pathlib.Path(__file__).parent / "bin" / "rondo"
    program = os.environ.get("RONDO_PROGRAM") or str(own)
    try:
        os.execv(program, ["rondo", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"rondo: {program}: {e.strerror}")


if __name__ == "__main__":
    main()
