"""Runs the CUDA compiler as its arguments after the first say, and keeps what `-Xptxas -v` says of each
kernel (registers, stack, spills) in the file that the first names: tools/cuda/budget reads it there. The
build calls this; all else that the compiler says is passed on, as is its exit status.
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import nvcc as cuda  # noqa: E402


def main():
    kept, *command = sys.argv[1:]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       errors="replace", check=False)
    pathlib.Path(kept).write_text(p.stdout)
    sys.stderr.write(p.stdout if p.returncode else cuda.without_ptxas_info(p.stdout))
    return p.returncode


if __name__ == "__main__":
    sys.exit(main())
