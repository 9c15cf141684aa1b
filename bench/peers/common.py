"""What the scripts in bench/peers share: running checkop, timing, printing ratios, writing JSON.

A peer script times the shapes of `checkop --bench` through another library, in the same process
run and on the same threads, and prints ours beside it:

    from common import group_best, run_checkop, median_seconds, print_ratios, write_json
    ours = run_checkop("ctc", threads=2)
    rows = []
    for (op, case), best in group_best(ours).items():
        rows.append({"case": case, "ours_us": best["median_us"], "peers": {"torch": median_seconds(f) * 1e6}})
    print_ratios("ctc", rows)
    write_json("ctc", rows)

Only the Python standard library is needed here; a script whose peer is missing says so and exits
with 77.
"""

import datetime
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77


def checkop_path():
    """The checkop to run: $RONDO_CHECKOP, else the one in build/."""
    path = pathlib.Path(os.environ.get("RONDO_CHECKOP", ROOT / "build/tools/checkop"))
    if not path.is_file():
        sys.exit(f"{path} does not exist: build first (meson setup build && ninja -C build), "
                 "or name it in RONDO_CHECKOP")
    return path


def run_checkop(pattern, threads=None, seconds=0.3, variant=None, backend=None, env=None):
    """Rows of `checkop PATTERN --bench --json`, as dictionaries (median_us, gflops, ...)."""
    command = [str(checkop_path()), pattern, "--bench", "--json", "--seconds", str(seconds),
               "--threads", str(threads or usable_cpus())]
    if variant:
        command += ["--variant", variant]
    if backend:
        command += ["--backend", backend]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, **(env or {})}).stdout
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    failed = [r for r in rows if r.get("status") == "failed"]
    if failed:
        sys.exit(f"checkop failed: {failed[0]}")
    return [r for r in rows if "median_us" in r]


def run_checkop_best(pattern, threads=None, seconds=0.3):
    """As run_checkop() on the CPU, but of each case only the variant that this machine would use:
    the first in the table's order. Far quicker than timing all instruction sets."""
    rows, complete = {}, False
    for variant in ("avx512bf16", "avx512", "avx2", "generic", "openblas"):
        if complete and variant != "openblas":  # the one for f64 products
            continue
        got = run_checkop(pattern, threads, seconds, variant=variant, backend="cpu")
        for row in got:
            rows.setdefault((row["op"], row["case"]), row)
        complete = complete or bool(got) and variant != "avx512bf16"  # which has bf16 alone
    return list(rows.values())


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


def usable_cpus():
    return len(os.sched_getaffinity(0))


def import_or_skip(name):
    """The module, or exit 77 with the reason: a peer is never required."""
    try:
        return __import__(name)
    except ImportError as error:
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


def commit():
    """Short hash of the checked-out commit; -dirty when files differ from it."""
    try:
        run = lambda *a: subprocess.run(["git", "-C", str(ROOT), *a], check=True, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        dirty = run("status", "--porcelain", "--untracked-files=no").strip()
        return run("rev-parse", "--short=10", "HEAD").strip() + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine():
    return {"cpu": cpu_model(), "cpus": usable_cpus(), "system": platform.system(),
            "release": platform.release()}


def write_json(name, rows, directory=None, **extra):
    """Writes bench/results/<date>-<name>-<cpu>-<commit>.json, returns its path."""
    directory = pathlib.Path(directory or ROOT / "bench/results")
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    path = directory / f"{now:%Y-%m-%d}-{name}-{slug(cpu_model())}-{commit()}.json"
    document = {"name": name, "time": now.isoformat(timespec="seconds"), "commit": commit(),
                "machine": machine(), "command": " ".join(sys.argv), **extra, "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
