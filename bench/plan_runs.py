#!/usr/bin/env python3
"""Training runs beside what `rondo plan --as-configured` predicts for them: step time, and memory of pipelines.

    build/tools/rondo plan --measure machine.json
    bench/plan_runs.py build/tools/rondo machine.json DIGITS [CLASS ...]

DIGITS is a corpus of `rondo prepare fsdd`. Classes: one, data, pipeline, sequence; all of them when none is named. Ranks are
threads of one process with one thread each; nothing else should run on the machine. The machine file comes from other
models and batches than these runs: no constant is fitted to a run.

A run's step time is the median of what its log tells of every five updates after the first ten, without validation.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

RECIPE = str(pathlib.Path(__file__).resolve().parent.parent / "tools/recipes/fsdd.toml")
# Settings, and how many updates the run makes.
MODELS = [
    ("data.batch_frames=6000", 70),
    ("data.batch_frames=12000", 50),
    ("data.batch_frames=24000", 40),
    ("data.batch_frames=24000 model.hidden=256", 20),
    ("data.batch_frames=12000 model.hidden=64 model.layers=3", 50),
    ("data.batch_frames=24000 training.dtype=bf16", 40),
    ("data.batch_frames=12000 model.hidden=256 model.layers=4 model.bidirectional=false", 30),
    ("data.batch_frames=24000 model.layers=4", 30),
]
PIPELINE = "parallel.pipeline=2 "
SPLITS = {
    "one": [(1, "")],
    "data": [(2, "")],
    "pipeline": [(2, PIPELINE + "parallel.micro_batches=4"),
                 (2, PIPELINE + "parallel.schedule=gpipe parallel.micro_batches=8")],
    "sequence": [(2, "parallel.sequence=2")],
}


def words(model, split, data):
    return [RECIPE, f"data={data}", "data.dev=", "data.test=", *model.split(), *split.split()]


def predict(rondo, machine, devices, config):
    out = subprocess.run([rondo, "plan", *config, "--device", machine, "--devices", str(devices), "--as-configured"],
                         check=True, capture_output=True, text=True).stdout
    row = re.search(r"^  1 +\d+ x +\d+ x +\d+  \d+ ?[a-z0-9_]* +([\d.]+) +\d+ +([\d.]+)", out, re.M)
    return float(row[1]), float(row[2])


def train(rondo, devices, config, steps):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([rondo, "train", *config, "--ranks", str(devices), "training.threads=1",
                               f"training.max_steps={steps}", "training.log_every_steps=5", "training.epochs=1000",
                               f"training.checkpoint_dir={folder}/run"], check=True, capture_output=True, text=True)
        said = done.stdout + done.stderr
        logs = [path.read_text() for path in pathlib.Path(folder, "run").glob("log*.jsonl")]
    first = next(log for log in logs if '"rank":0' in log)
    entries = [json.loads(line) for line in first.splitlines()]
    at = [(e["step"], e["seconds"]) for e in entries if e["event"] == "step" and e["step"] >= 10]
    holds = [int(kib) for kib in re.findall(r"holds (\d+) KiB", said + "".join(logs))]
    step = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(at, at[1:]))
    return 1e3 * step, max(holds, default=0) * 1024 / 1e9


def main(rondo, machine, data, *classes):
    for name in classes or SPLITS:
        errors, memory = [], []
        for model, steps in MODELS:
            for devices, split in SPLITS[name]:
                config = words(model, split, data)
                predicted, planned = predict(rondo, machine, devices, config)
                measured, held = train(rondo, devices, config, steps)
                errors.append(predicted / measured - 1)
                if held:
                    memory.append(planned / held - 1)
                print(f"{name:9} {predicted:7.1f} ms predicted {measured:7.1f} ms measured {100 * errors[-1]:+6.1f} %"
                      + (f"  {planned:.2f} / {held:.2f} GB" if held else "") + f"  {model} {split}", flush=True)
        sizes = [abs(e) for e in errors]
        print(f"{name}: {len(sizes)} runs, median error {100 * statistics.median(sizes):.1f} %, "
              f"largest {100 * max(sizes):.1f} %"
              + (f"; memory {100 * statistics.median(abs(e) for e in memory):.1f} %" if memory else ""), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
