#!/usr/bin/env python3
"""run.py BUILD | WHEEL: makes the Python package of a build, or takes one, installs it into a new virtual environment, and
tests it there.

The environment lies in a temporary folder and has nothing but numpy and the package. Exit status: 0 all is well, 1 it
is not, 77 there is no virtual environment or no numpy to be had.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def make_environment(folder):
    """The Python of a new environment."""
    python = folder / "bin" / "python"
    for command, why in (([sys.executable, "-m", "venv", folder], "no virtual environment can be made (Debian: python3-venv)"),
                         ([python, "-m", "pip", "install", "--quiet", "--no-input", "numpy"], "pip cannot install numpy")):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            skip(f"{why}: {(done.stdout.strip().splitlines() or ['it said nothing'])[-1]}")
    return python


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    given = pathlib.Path(sys.argv[1]).resolve()
    # What a developer has set is not to be tested.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RONDO_LIBRARY", "RONDO_PROGRAM"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        python = make_environment(work / "venv")
        wheel = given
        if given.suffix != ".whl":
            subprocess.run([ROOT / "tools/python/build", "--from", given, work], check=True)
            wheel, = work.glob("rondo-*.whl")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
        environment |= {"RONDO_SOURCE_ROOT": str(ROOT), "RONDO_TEST_FOLDER": str(work)}
        command = [python, "-m", "unittest", "discover", "-v", "-s", HERE, "-p", "*_test.py"]
        return subprocess.run(command, cwd=work, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
