"""What the scripts in bench/peers share: running checkop, timing, printing ratios, writing JSON.

A peer script times the shapes of `checkop --bench` through another library, in the same process
run and on the same threads, and prints ours beside it:

    from common import (annotate, group_best, measure_peaks, median_seconds, print_ratios,
                        run_checkop, write_json)
    ours, peaks = run_checkop("ctc", threads=2), measure_peaks(2, 0.5)
    rows = []
    for (op, case), best in group_best(ours).items():
        row = {"op": op, "case": case, "ours_us": best["median_us"], "flops": best["flops"],
               "bytes": best["bytes"], "peers": {"torch": median_seconds(f) * 1e6}}
        rows.append(annotate(row, peaks, row["ours_us"]))
    print_ratios("ctc", rows)
    write_json("ctc", rows, peaks=peaks)

Only the Python standard library is needed here; a script whose peer is missing says so and exits
with 77.
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import threading
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77

# What makes a library choose other kernels or threads than it would by itself, and so halves a peer's
# speed unnoticed. A script imports this module before its peer: both start without them.
STEERING = ("OPENBLAS_", "MKL_", "DNNL_", "ONEDNN_", "OMP_", "KMP_", "GOTO_")
CLEARED = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(STEERING)}


def checkop_path():
    """The checkop to run: $RONDO_CHECKOP, else the one in build/."""
    path = pathlib.Path(os.environ.get("RONDO_CHECKOP", ROOT / "build/tools/checkop"))
    if not path.is_file():
        sys.exit(f"{path} does not exist: build first (meson setup build && ninja -C build), "
                 "or name it in RONDO_CHECKOP")
    return path


def run_checkop(pattern, threads=None, seconds=0.3, backend=None, chosen=False):
    """Rows of `checkop PATTERN --bench --json`, as dictionaries (median_us, gflops, ...)."""
    command = [str(checkop_path()), pattern, "--bench", "--json", "--seconds", str(seconds),
               "--threads", str(threads or usable_cpus())]
    if chosen:
        command.append("--chosen")
    if backend:
        command += ["--backend", backend]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    failed = [r for r in rows if r.get("status") == "failed"]
    if failed:
        sys.exit(f"checkop failed: {failed[0]}")
    if done.returncode != 0:
        sys.exit(f"checkop ended with {done.returncode}: {done.stderr.strip()}")
    return [r for r in rows if "median_us" in r]


def run_checkop_best(pattern, threads=None, seconds=0.3):
    """As run_checkop() on the CPU, but of each case only the variant that runs by itself on this machine. Far quicker
    than timing all of them, and what a user gets."""
    return run_checkop(pattern, threads, seconds, backend="cpu", chosen=True)


def group_best(rows):
    """{(op, case): the fastest row}. Named after what a user would get at best."""
    best = {}
    for row in rows:
        key = (row["op"], row["case"])
        if key not in best or row["median_us"] < best[key]["median_us"]:
            best[key] = row
    return best


def median_seconds(function, seconds=0.3, least=3, most=2000):
    """Median wall time of function(), after a warm-up, over about `seconds`."""
    function()
    start = time.perf_counter()
    function()
    once = max(time.perf_counter() - start, 1e-7)
    times = []
    for _ in range(min(max(int(seconds / once), least), most)):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2]


def fastest(function, clock, seconds):
    """The fastest run within about `seconds`, after a warm-up; at least three."""
    function()
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end or runs < 3:
        start = clock()
        function()
        best = min(best, clock() - start)
        runs += 1
    return best


class Timing:
    """How a script times kernels and a peer in turns: the options of its command line."""

    def __init__(self, description, pattern=None):
        parser = argparse.ArgumentParser(description=description,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--seconds", type=float, default=0.3, help="per measurement")
        parser.add_argument("--threads", type=int, default=usable_cpus())
        parser.add_argument("--clock", choices=["wall", "thread"], default="wall",
                            help="thread: processor time of one thread, for busy machines")
        parser.add_argument("--rounds", type=int, default=2)
        if pattern:
            parser.add_argument("--pattern", default=pattern, help="cases of checkop, of all that are compared")
        args = parser.parse_args()
        self.pattern = args.pattern if pattern else None
        self.seconds, self.rounds, self.clock = args.seconds, args.rounds, args.clock
        self.threads = 1 if args.clock == "thread" else args.threads

    def in_turns(self, peer, ours, theirs):
        """Rows with the fastest of ours (`ours()`: of checkop) and of the peer's: theirs(op, case) is
        the ways in which it computes a case."""
        clock = time.thread_time if self.clock == "thread" else time.perf_counter
        column = "min_thread_us" if self.clock == "thread" else "min_us"
        rows = {}
        for _ in range(self.rounds):
            for row in ours():
                best = rows.setdefault((row["op"], row["case"]),
                                       {"op": row["op"], "case": row["case"], "ours_us": math.inf,
                                        "flops": row["flops"], "bytes": row["bytes"],
                                        "peers": {peer: math.inf}})
                if row[column] < best["ours_us"]:
                    best["ours_us"], best["variant"] = row[column], row["variant"]
            for (op, case), best in rows.items():
                for function in theirs(op, case):
                    us = fastest(function, clock, self.seconds) * 1e6
                    best["peers"][peer] = min(best["peers"][peer], us)
        return list(rows.values())


def usable_cpus():
    return len(os.sched_getaffinity(0))


def import_or_skip(name):
    """The module, or exit 77 with the reason: a peer is never required. None for who asks for help."""
    warnings.filterwarnings("ignore", message="TF32 acceleration")  # PyTorch's, of GPUs, for every case
    try:
        return __import__(name)
    except ImportError as error:
        if {"-h", "--help"} & set(sys.argv):
            return None
        print(f"skipped: {error}")
        sys.exit(SKIP)


def geometric_mean(values):
    values = list(values)
    if not values or not all(v > 0 and math.isfinite(v) for v in values):
        return math.nan
    return math.exp(sum(math.log(v) for v in values) / len(values))


def print_ratios(title, rows):
    """rows: {"case", "ours_us", "peers": {name: microseconds or None}}. A ratio above 1 means that
    ours is faster. The best setting of each peer belongs in its column."""
    names = list(dict.fromkeys(name for row in rows for name in row["peers"]))
    width = max([len(row["case"]) for row in rows] + [len(title)])
    print(f"{title:<{width}} {'ours us':>12} " + " ".join(f"{n + ' us':>16} {'ratio':>7}" for n in names))
    for row in rows:
        cells = []
        for name in names:
            us = row["peers"].get(name)
            cells.append(f"{'-':>16} {'-':>7}" if us is None else
                         f"{us:>16.1f} {us / row['ours_us']:>7.2f}")
        print(f"{row['case']:<{width}} {row['ours_us']:>12.1f} " + " ".join(cells))
    means = [geometric_mean(row["peers"][n] / row["ours_us"] for row in rows
                            if row["peers"].get(n) is not None) for n in names]
    print(f"{'geometric mean':<{width}} {'':>12} " + " ".join(f"{'':>16} {m:>7.2f}" for m in means))


SQUARE = "1536x1536x1536"


def copy_gbytes_per_s(threads, clock="wall", megabytes=128, repeats=9):
    """Bytes read and written per second by memcpy, each thread on its own buffers, best of many.
    (ctypes releases the interpreter's lock during the call.)"""
    size = megabytes << 20
    buffers = [(ctypes.create_string_buffer(size), ctypes.create_string_buffer(size))
               for _ in range(threads)]
    for to, source in buffers:  # touch every page
        ctypes.memset(to, 1, size)
        ctypes.memset(source, 2, size)
    best = float("inf")
    if clock == "thread":
        to, source = buffers[0]
        for _ in range(repeats):
            start = time.thread_time()
            ctypes.memmove(to, source, size)
            best = min(best, time.thread_time() - start)
        return 2 * size / best * 1e-9
    for _ in range(repeats):
        workers = [threading.Thread(target=ctypes.memmove, args=(to, source, size))
                   for to, source in buffers]
        start = time.perf_counter()
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        best = min(best, time.perf_counter() - start)
    return 2 * size * threads / best * 1e-9


def measure_peaks(threads, seconds, clock="wall"):
    """The best rate of a large square product per input type and variant, and of memcpy."""
    best = "min_thread_us" if clock == "thread" else "min_us"
    products = {}
    for row in run_checkop(SQUARE, threads=threads, seconds=seconds):
        if row["op"] != "gemm" or row["backend"] != "cpu":
            continue
        rate = row["flops"] / row[best] * 1e-3
        products.setdefault(input_type(row["case"]), {})[row["variant"]] = round(rate, 1)
    peaks = {"gemm_gflops": {t: max(v.values()) for t, v in products.items()},
             "gemm_gflops_by_variant": products,
             "copy_gbytes_per_s": round(copy_gbytes_per_s(threads, clock), 1)}
    return peaks


def input_type(case):
    found = re.search(r"(?<![a-z0-9])(bf16|f32|f64)(?![a-z0-9])", case)
    return found.group(1) if found else "f32"


def shape_of(op, case):
    """The sizes that a row's label names."""
    if op == "gemm":
        m, n, k = map(int, re.search(r"(\d+)x(\d+)x(\d+)", case).groups())
        ta, tb = re.search(r"/([nt])([nt])/", case).groups()
        return {"m": m, "n": n, "k": k, "transpose_a": ta == "t", "transpose_b": tb == "t"}
    pairs = re.findall(r"(?<![a-z0-9])([TNVL])(\d+)|(?<=[NVL0-9])([NVL])(\d+)", case)
    if op.startswith("ctc") and pairs:
        return {a or c: int(b or d) for a, b, c, d in pairs}
    if op.startswith("lstm"):
        names = {"h": "hidden", "b": "batch", "t": "frames", "d": "directions"}
        return {names[k]: int(v) for k, v in re.findall(r"_([hbtd])(\d+)", case)}
    sizes = re.search(r"(\d+)x(\d+)", case)
    return {"rows": int(sizes.group(1)), "cols": int(sizes.group(2))} if sizes else {}


def annotate(row, peaks, microseconds):
    """Adds to a row with op, case, flops and bytes what it is compared by: dtype and shape (where it
    has none), rates at this time, and their shares of the peaks (None where nothing was counted)."""
    row.setdefault("dtype", input_type(row["case"]))
    row.setdefault("shape", shape_of(row["op"], row["case"]))
    row["gflops"] = round(row["flops"] / microseconds * 1e-3, 2)
    row["gbytes_per_s"] = round(row["bytes"] / microseconds * 1e-3, 3)
    peak = peaks["gemm_gflops"].get(row["dtype"])
    row["share_of_gemm_peak"] = round(row["gflops"] / peak, 4) if peak and row["flops"] else None
    row["share_of_copy_peak"] = (round(row["gbytes_per_s"] / peaks["copy_gbytes_per_s"], 4)
                                 if row["bytes"] else None)
    return row


def bench_program(name):
    """A program of bench/ in the build folder that holds checkop."""
    path = checkop_path().parents[1] / "bench" / name
    if not path.is_file():
        sys.exit(f"{path} does not exist: build it first (ninja -C build bench/{name})")
    return path


def run_bench_program(name, *arguments):
    """The rows that it prints, as dictionaries."""
    command = [str(bench_program(name)), *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [row for row in rows if "op" in row]


def compare_with_torch(torch, description, op, problem, calls, print_table=None):
    """Times an op's cases and torch's ways to compute them in turns, prints the ratios and writes the
    JSON. problem(case): its shapes, {} for cases that have no peer; calls(op, case): torch's ways."""
    timing = Timing(description, pattern=op)
    torch.set_num_threads(timing.threads)
    torch.set_grad_enabled(False)
    peaks = measure_peaks(timing.threads, timing.seconds, timing.clock)

    def ours():
        rows = run_checkop_best(timing.pattern, timing.threads, timing.seconds)
        return [row for row in rows if problem(row["case"])]

    rows = [annotate(row, peaks, row["ours_us"]) for row in timing.in_turns("torch", ours, calls)]
    if print_table:
        print_table(rows)
    else:
        print_ratios(op, rows)
    print(write_json(f"{op.replace('_', '-')}-peers", rows, threads=timing.threads, clock=timing.clock, peaks=peaks,
                     peer_versions={"torch": torch.__version__}))


def cpu_model():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unknown"


def find_commit():
    """Short hash of the checked-out commit; -dirty when files that are measured with differ from it."""
    try:
        run = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], check=True, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        dirty = run("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results", ":!docs").strip()
        return run("rev-parse", "--short=10", "HEAD").strip() + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


COMMIT = find_commit()  # now, when the measuring begins: the tree may be edited beside it


def machine():
    return {"cpu": cpu_model(), "cpus": usable_cpus(), "system": platform.system(),
            "release": platform.release(), "environment_cleared": sorted(CLEARED)}


def write_json(name, rows, directory=None, **extra):
    """Writes bench/results/<date>-<name>-<cpu>-<commit>.json, returns its path."""
    directory = pathlib.Path(directory or ROOT / "bench/results")
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    path = directory / f"{now:%Y-%m-%d}-{name}-{slug(cpu_model())}-{COMMIT}.json"
    document = {"name": name, "time": now.isoformat(timespec="seconds"), "commit": COMMIT,
                "machine": machine(), "command": " ".join(sys.argv), **extra, "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
