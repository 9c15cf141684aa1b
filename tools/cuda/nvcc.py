"""What budget and matrix share: where nvcc is, how the build calls it, and what it says.

The flags are those of tools/cuda/meson.build.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIP = 77
FLAGS = ["-std=c++20", "-O3", "-Xcompiler=-fPIC,-Wall", "--Werror=all-warnings", f"-I{ROOT}"]


def find():
    """The path of nvcc, or None."""
    home = os.environ.get("CUDA_HOME")
    for place in [f"{home}/bin/nvcc"] if home else [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]:
        if place and os.access(place, os.X_OK):
            return place
    return None


def version(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", text).group(1)


def architectures(nvcc):
    """Real architectures that this nvcc compiles for, as numbers: {"80", "90", ...}."""
    text = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"sm_(\d+)", text))


def sources():
    """The CUDA sources of the kernels, relative to the root."""
    return sorted(p.relative_to(ROOT) for p in (ROOT / "kernels").rglob("*.cu"))


def compile_all(nvcc, jobs, files, extra):
    """Compiles each file with the flags extra(file); yields (file, exit status, all that was said)."""
    def one(source):
        p = subprocess.run([nvcc, *FLAGS, *extra(source), str(ROOT / source)], capture_output=True,
                           text=True, check=False)
        return source, p.returncode, p.stdout + p.stderr
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, files)


def demangle(names):
    """Readable names of kernel entries, without their parameters."""
    filt = shutil.which("cu++filt") or shutil.which("c++filt")
    if filt is None or not names:
        return {n: n for n in names}
    out = subprocess.run([filt, *names], capture_output=True, text=True, check=True).stdout
    return {mangled: short_name(full) for mangled, full in zip(names, out.splitlines())}


def short_name(full):
    """"void rondo::cuda::<unnamed>::k<float>(A, B)" -> "k<float>"."""
    depth, end = 0, len(full)
    for i, c in enumerate(full):  # the parameters: the first "(" outside template arguments
        if c == "(" and depth == 0 and not full.startswith("(anonymous namespace)", i):
            end = i
            break
        depth += (c == "<" and not full.startswith("<unnamed>", i)) - (c == ">" and depth > 0)
    name = full[:end].replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    name = name.replace("rondo::cuda::", "").replace("rondo::", "")
    return name[5:] if name.startswith("void ") else name


@dataclasses.dataclass
class Entry:
    registers: int = 0
    stack: int = 0
    spilled: int = 0  # bytes, stores and loads
    shared: int = 0   # static; kernels ask for theirs at launch
    constant: int = 0


PTXAS_INFO = re.compile(r"ptxas info|\s+\d+ bytes stack frame, ")


def without_ptxas_info(text):
    """What a compiler says beside the lines that `-Xptxas -v` asks for."""
    return "".join(line for line in text.splitlines(keepends=True) if not PTXAS_INFO.match(line))


def parse_ptxas(text):
    """{architecture, as "90a": {mangled name: Entry}} from what `-Xptxas -v` prints."""
    by_architecture, entries, name = {}, {}, None
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '([^']+)' for 'sm_(\w+)'", line):
            name = m.group(1)
            entries = by_architecture.setdefault(m.group(2), {})
            entries[name] = Entry()
        elif m := re.search(r"Function properties for (\S+)", line):
            name = m.group(1) if m.group(1) in entries else None
        elif name and (m := re.search(
                r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            entries[name].stack = int(m.group(1))
            entries[name].spilled = int(m.group(2)) + int(m.group(3))
        elif name and (m := re.search(r"Used (\d+) registers", line)):
            entries[name].registers = int(m.group(1))
            if s := re.search(r"(\d+) bytes smem", line):
                entries[name].shared = int(s.group(1))
            if s := re.search(r"(\d+) bytes cmem\[0\]", line):
                entries[name].constant = int(s.group(1))
    return by_architecture


# Loads that need not see what other blocks write while the kernel runs.
NON_COHERENT = "non-coherent loads"
# What a compiler makes of a copy whose alignment it does not believe.
BYTE_LOADS = "byte loads"
INSTRUCTIONS = {
    "wgmma": r"\bwgmma\.mma_async",
    "mma": r"\bmma\.sync",
    "ldmatrix": r"\bldmatrix\.",
    "cp.async": r"\bcp\.async\.c[ag]\.",
    "cp.async.bulk": r"\bcp\.async\.bulk\.(?!commit|wait)",
    "mbarrier": r"\bmbarrier\.",
    "cluster barrier": r"\bbarrier\.cluster\.",
    "bar.sync": r"\bbar(rier)?\.sync\b",
    "atomics": r"\b(atom|red)\.",
    NON_COHERENT: r"\bld\.global(\.[\w:]+)*\.nc\b",
    BYTE_LOADS: r"\bld(?!\.param)(\.[\w:]+)*\.[usb]8\b",
}


def count_instructions(ptx):
    """{mangled name: {instruction: how often it stands in the entry}} of a PTX file."""
    counts, name, depth = {}, None, 0
    for line in ptx.splitlines():
        if m := re.search(r"\.entry\s+(\S+?)\(?\s*$|\.entry\s+([^\s(]+)\(", line):
            name, depth = m.group(1) or m.group(2), 0
            counts[name] = dict.fromkeys(INSTRUCTIONS, 0)
        if name is None or line.lstrip().startswith("//"):
            continue
        for instruction, pattern in INSTRUCTIONS.items():
            counts[name][instruction] += len(re.findall(pattern, line))
        depth += line.count("{") - line.count("}")
        if line.startswith("}") and depth <= 0:
            name = None
    return counts
