"""Which tests ought to notice an error in which source: the one table of that.

A command is a program of the build and its arguments. The cheap ones come first: the first that fails ends it. They are
the tests of the source itself: what only a training of minutes notices is a hole all the same.
"""

import fnmatch
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Folder of kernels: (words that checkop's cases of its ops contain, other programs). Of any other: its ops, and kernels_test.
KERNELS = {
    "beam_search": ("beam_search", ["decode_test"]),
    "ctc": ("ctc", ["ctc_test"]),
    "gemm": ("gemm", ["gemm_test", "kernels_test"]),
    "linear_ctc": ("linear_ctc", ["engine_test [fused]"]),
    "lstm": ("lstm", ["lstm_test", "kernels_test"]),
    "totals": ("combine_totals loss_totals", ["engine_test [device_ranks]"]),
}
OP = re.compile(r'^ +static constexpr const char\* op = "(\w+)";', re.MULTILINE)  # in a struct of arguments
GPU_ALONE = ["beam_search"]  # no kernel for CPUs
# What only GPU kernels and the simulator use; of the other files of kernels the rest is the CPU's.
ON_GPU = ["*.cu", "*_gpu.cc", "*_gpu_*.h", "*.cuh"]

# (pattern of sources, commands); the first that fits. Kernels are above.
RULES = [
    ("kernels/base/*", ["kernels_test", "simt_test", "engine_test"]),
    ("kernels/simt/instrument/*", ["instrument_test"]),
    ("kernels/simt/*", ["simt_test", "checkop --backend sim --orders 1 --part 1/5"]),
    ("kernels/*.cc", ["kernels_test", "checkop --part 1/5 --orders 1 --no-peers"]),
    ("comm/*", ["comm_test", "processes_test"]),
    ("engine/config/*", ["support_tests", "fuzz_test"]),
    ("tools/corpus/*", ["corpus_test"]),
    ("tools/serve/*", ["serve_test", "fuzz_test"]),
    ("engine/data/*", ["data_test", "fuzz_test"]),
    ("engine/decode/*", ["decode_test"]),
    ("engine/io/*", ["support_tests", "fuzz_test"]),
    ("engine/page/*", ["corpus_test [page]", "fuzz_test"]),
    ("engine/plan/*", ["plan_test"]),
    ("engine/report/*", ["support_tests"]),
    ("engine/text/*", ["data_test"]),
    ("engine/train/*", ["train_test"]),
    ("engine/*", ["engine_test gradient*", "engine_test ~gradient*"]),
]
# Not mutated: what calls other people's libraries, what needs a GPU.
LEFT_OUT = ["*cublaslt*", "*cuda_*", "*nccl*", "*/gloo/*", "*/mpi/*"]


def commands_for(path):
    """The commands, as lists of words, that ought to notice an error in this source; none if no test is named."""
    if any(fnmatch.fnmatchcase(path, pattern) for pattern in LEFT_OUT):
        return []
    parts = path.split("/")
    if parts[0] == "kernels" and len(parts) > 2 and (found := kernels_of(parts[1])):
        return [shlex.split(c) for c in of_kernel(path, *found)]
    for pattern, commands in RULES:
        if fnmatch.fnmatchcase(path, pattern):
            return [shlex.split(c) for c in commands]
    return []


def kernels_of(folder):
    """(words, programs) as in KERNELS; None where the folder has no ops."""
    ops = {op for header in (ROOT / "kernels" / folder).rglob("*.h") for op in OP.findall(header.read_text())}
    return KERNELS.get(folder) or (ops and (" ".join(sorted(ops)), ["kernels_test"])) or None


def of_kernel(path, cases, others):
    cpu, sim = f"checkop {cases} --backend cpu --no-peers", f"checkop {cases} --backend sim --no-peers --orders 1"
    if cases in GPU_ALONE or any(fnmatch.fnmatchcase(path, pattern) for pattern in ON_GPU):
        return [f"{sim} --part 1/5", sim, *others]
    if path.endswith(("_simd.cc", "_ref.cc")) or "_cpu" in path:
        return [f"{cpu} --part 1/5", *others, cpu]
    return [f"{cpu} --part 1/5", f"{sim} --part 1/5", *others, cpu, sim]
