"""toolkit.py NVCC CXX ARCHITECTURE...: can this nvcc compile the kernels, with this host compiler?

The architectures are Meson's gpu_arch: XX for sm_XX, XX-ptx, or auto. Prints those to compile for, a line each; or one
sentence about what is in the way, and exits with 1 (2 where no other toolkit would help).
"""

import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import nvcc as cuda  # noqa: E402

LEAST = (12, 0)  # C++20, and sm_90a
LEAST_FOR = {100: (12, 8), 101: (12, 8), 103: (12, 9), 110: (13, 0), 120: (12, 8), 121: (12, 9)}
OLDEST_GPU = 80
# What the kernels take for granted: concepts, and types of the toolkit.
PROBE = """#include <cuda_bf16.h>
template <class T>
concept Number = requires(T x) { x + x; };
template <Number T>
__global__ void probe(T* x) { x[threadIdx.x] = x[threadIdx.x] + T(1); }
template __global__ void probe<float>(float*);
"""


class InTheWay(Exception):
    pass


def wanted(version):
    return f"CUDA {version[0]}.{version[1]} or newer is wanted"


def run(command):
    """Did it succeed, and what it says."""
    try:
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except OSError as e:
        return False, str(e)
    return p.returncode == 0, p.stdout


def version_of(nvcc):
    fine, said = run([nvcc, "--version"])
    found = re.search(r"release (\d+)\.(\d+)|\bV(\d+)\.(\d+)", said)
    if not fine or not found:
        raise InTheWay(f"{nvcc} does not tell its version, {wanted(LEAST)}")
    return tuple(int(part) for part in found.groups() if part is not None)


def chosen(nvcc, asked):
    """The architectures that were asked for, those of auto written out."""
    known = {int(n) for n in re.findall(r"compute_(\d+)", run([nvcc, "--list-gpu-arch"])[1])}
    for word in asked:
        if word == "auto":
            yield from ["80", "90a", "90-ptx"]
            yield from [str(n) for n in (100, 120) if n in known]
            continue
        number = int(re.match(r"\d+", word)[0])
        if known and number not in known:
            # Of a GPU newer than this table it is not known which toolkit came with it.
            newer = wanted(LEAST_FOR[number]) if number in LEAST_FOR else "a newer CUDA toolkit is wanted"
            raise InTheWay(f"nvcc {'.'.join(map(str, version_of(nvcc)))} does not know sm_{number}, {newer}")
        yield word


def try_it(nvcc, compiler, architecture):
    number = architecture.split("-")[0]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "probe.cu"
        source.write_text(PROBE)
        # As tools/cuda/meson.build compiles with clang.
        fine, said = run([nvcc, *cuda.FLAGS, "-Xcompiler=-w", f"-ccbin={compiler}",
                          f"-gencode=arch=compute_{number},code=compute_{number}", "-c", str(source), "-o",
                          str(source.with_suffix(".o"))])
    if not fine:
        lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it says nothing"]
        first = next((line for line in lines if "error" in line or "fatal" in line), lines[0])
        raise InTheWay(f"nvcc {'.'.join(map(str, version_of(nvcc)))} does not compile a kernel with {compiler}: {first}")


def main():
    nvcc, compiler, *asked = sys.argv[1:]
    for word in asked:
        if word != "auto" and not re.fullmatch(r"\d+[af]?(-ptx)?", word):
            print(f"gpu_arch holds '{word}', expected auto, XX for sm_XX, or XX-ptx")
            return 2
        if word != "auto" and int(re.match(r"\d+", word)[0]) < OLDEST_GPU:
            print(f"gpu_arch holds '{word}', but the kernels need a GPU of sm_{OLDEST_GPU} or newer")
            return 2
    try:
        version = version_of(nvcc)
        if version < LEAST:
            raise InTheWay(f"nvcc {version[0]}.{version[1]} is too old, {wanted(LEAST)}")
        architectures = list(chosen(nvcc, asked))
        try_it(nvcc, compiler, architectures[0])
    except InTheWay as e:
        print(e)
        return 1
    print("\n".join(architectures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
