#!/usr/bin/env python3
"""Training runs beside what `rondo plan --as-configured` predicts for them: step time, and memory of pipelines.

    bench/plan_runs.py build/tools/rondo DIGITS [--machine FILE] [--minutes 8] [--json FILE] [CLASS ...]

DIGITS is a corpus of `rondo prepare fsdd`. Without --machine, or where the file is not there, this machine is measured first
(rondo plan --measure). Classes: one, data, pipeline, sequence, divided, hybrid; all of them when none is named. Ranks are
threads of one process with one thread each. The machine file comes from other models and batches than these runs: no
constant is fitted to a run.

Nothing else should run on the machine. What did is measured: for each run the share of the cores' time that other processes
took. The table at the end has all runs, and those beside which others took less than 5 %.

Model after model is run in all classes, until none is left or the minutes are over; what was not run is said. A run makes
10 updates that do not count and then some 2 s of others. Its step time is the median of what its log tells of every five
updates.
"""

import argparse
import json
import math
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
import time

RECIPE = str(pathlib.Path(__file__).resolve().parent.parent / "tools/recipes/fsdd.toml")
MODELS = [
    "data.batch_frames=24000",
    "data.batch_frames=12000 model.hidden=256 model.layers=4 model.bidirectional=false",
    "data.batch_frames=6000",
    "data.batch_frames=24000 training.dtype=bf16",
    "data.batch_frames=24000 model.layers=4",
    "data.batch_frames=12000 model.hidden=64 model.layers=3",
    "data.batch_frames=24000 model.hidden=256",
    "data.batch_frames=12000",
]
PIPELINE = "parallel.pipeline=2 "
# Ranks and settings.
SPLITS = {
    "one": [(1, "")],
    "data": [(2, "")],
    "pipeline": [(2, PIPELINE + "parallel.micro_batches=4"),
                 (2, PIPELINE + "parallel.micro_batches=8")],
    "sequence": [(2, "parallel.sequence=2"), (2, "parallel.sequence=2 parallel.micro_batches=4")],
    "divided": [(2, "parallel.divide_optimizer=true")],
    "hybrid": [(4, PIPELINE + "parallel.sequence=2 parallel.micro_batches=4")],
}
MOST_MODELS = {"hybrid": 4}  # four ranks: more than the cores of a small machine
QUIET = 0.05
RUN_SECONDS = 60


class Gone(Exception):
    """A run took too long, or failed."""


def words(model, split, data):
    return [RECIPE, f"data={data}", "data.dev=", "data.test=", *model.split(), *split.split()]


def call(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise Gone(f"took more than {RUN_SECONDS} s")
    if done.returncode:
        raise Gone(done.stderr.strip() or f"exit status {done.returncode}")
    return done.stdout + done.stderr


def predict(rondo, machine, devices, config):
    """Milliseconds of a step, GB of a rank."""
    out = call(rondo, "plan", *config, "--device", machine, "--devices", str(devices), "--as-configured")
    row = re.search(r"^  1 +\d+ x +\d+ x +\d+  \d+ ?[a-z0-9_]* +([\d.]+) +\d+ +([\d.]+)", out, re.M)
    return float(row[1]), float(row[2])


def busy_seconds():
    """The busy time of all cores, in all processes."""
    ticks = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def train(rondo, devices, config, steps):
    """Milliseconds of a step, GB that a rank of a pipeline says it holds (0: it does not say), and the others' share."""
    began, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    with tempfile.TemporaryDirectory() as folder:
        said = call(rondo, "train", *config, "--ranks", str(devices), "training.threads=1",
                    f"training.max_steps={steps}", "training.log_every_steps=5", "training.epochs=1000",
                    f"training.checkpoint_dir={folder}/run")
        logs = [path.read_text() for path in pathlib.Path(folder, "run").glob("log*.jsonl")]
    cores = (time.monotonic() - began) * os.cpu_count()
    others = max(0.0, busy_seconds() - busy - own_seconds() + own) / cores
    first = next(log for log in logs if '"rank":0' in log)
    entries = [json.loads(line) for line in first.splitlines()]
    at = [(e["step"], e["seconds"]) for e in entries if e["event"] == "step" and e["step"] >= 10]
    holds = [int(kib) for kib in re.findall(r"holds (\d+) KiB", said + "".join(logs))]
    step = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(at, at[1:]))
    return 1e3 * step, max(holds, default=0) * 1024 / 1e9, others


def measured(rondo, path):
    if not pathlib.Path(path).exists():
        began = time.monotonic()
        print(subprocess.run([rondo, "plan", "--measure", path], check=True, capture_output=True, text=True).stdout
              + f"measured in {time.monotonic() - began:.0f} s", flush=True)
    return path


def run_all(o, deadline):
    machine, left_out = measured(o.rondo, o.machine), []
    jobs = [(model, name, *split) for i, model in enumerate(MODELS) for name in o.classes or SPLITS
            for split in SPLITS[name] if i < MOST_MODELS.get(name, len(MODELS))]
    rows, slowest = [], 0.0
    for model, name, devices, split in jobs:
        what = f"{name}: {model} {split}".strip()
        if time.monotonic() + slowest > deadline:
            left_out.append(what)
            continue
        began = time.monotonic()
        try:
            config = words(model, split, o.data)
            predicted, planned = predict(o.rondo, machine, devices, config)
            steps = 10 + 5 * min(12, max(3, math.ceil(2000 / predicted / 5)))
            took, held, others = train(o.rondo, devices, config, steps)
        except Gone as why:
            print(f"{what}: {why}", flush=True)
            left_out.append(what)
            continue
        slowest = max(slowest, time.monotonic() - began)
        if name != "pipeline":  # the log does not count the memory in which gradients are summed
            held = 0
        rows.append({"class": name, "model": model, "split": split, "predicted_ms": predicted, "measured_ms": took,
                     "error": predicted / took - 1, "others": others, "planned_gb": planned, "held_gb": held})
        print(f"{name:9} {predicted:7.1f} ms predicted {took:7.1f} ms measured {100 * rows[-1]['error']:+6.1f} %"
              f"  others {100 * others:3.0f} %" + (f"  {planned:.3f} / {held:.3f} GB" if held else "")
              + f"  {model} {split}", flush=True)
    return rows, left_out


def figures(rows):
    sizes = [100 * abs(r["error"]) for r in rows]
    return f"{len(sizes)} | {statistics.median(sizes):.1f} % | {max(sizes):.1f} %" if sizes else "0 | |"


def print_table(rows, left_out):
    print("\n| class | runs | median error | largest | quiet runs | median error | largest | others, median |\n"
          "|---|---|---|---|---|---|---|---|")
    for name in SPLITS:
        own = [r for r in rows if r["class"] == name]
        if not own:
            continue
        others = 100 * statistics.median(r["others"] for r in own)
        print(f"| {name} | {figures(own)} | {figures([r for r in own if r['others'] < QUIET])} | {others:.0f} % |")
    memory = [abs(r["planned_gb"] / r["held_gb"] - 1) for r in rows if r["held_gb"]]
    if memory:
        print(f"\nmemory: {len(memory)} runs, median error {100 * statistics.median(memory):.1f} %, "
              f"largest {100 * max(memory):.1f} %")
    if left_out:
        print(f"\nnot run, or failed: {len(left_out)}")
        for what in left_out:
            print(f"  {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rondo")
    parser.add_argument("data")
    parser.add_argument("classes", nargs="*", choices=[*SPLITS, []], metavar="CLASS")
    parser.add_argument("--machine", default="machine.json")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--json")
    o = parser.parse_intermixed_args()
    rows, left_out = run_all(o, time.monotonic() + 60 * o.minutes)
    print_table(rows, left_out)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
