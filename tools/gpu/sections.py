"""The sections of gpu_check. Each returns a dictionary with at least 'status': passed, failed, skipped.

Everything a section starts is given the time the section has; what is cut short is said to be.
"""

import csv
import dataclasses
import io
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import places
import proofs
import training_task

# Sections in order of priority, with seconds. Nine minutes together.
BUDGETS = {"vocabulary": 30, "checkop_twice": 120, "digits": 110, "nccl": 20, "bench": 110,
           "training_step": 70, "sanitizer": 70, "profile": 40}
# Small cases that between them launch every kind of kernel.
SANITIZED = ["pointwise/tanh/bf16/33x65", "gemm/bf16/nn/33", "lstm_forward/h7", "lstm_backward/h7",
             "ctc/edges/f32"]
PROFILED = ["lstm_forward/bench_h512_b16", "lstm_backward/bench_h512_b16", "ctc/bench/f32/T1000"]
METRICS = ["gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed", "launch__registers_per_thread",
           "sm__warps_active.avg.pct_of_peak_sustained_active"]
HIGHEST_WER = 0.03
END = 2000  # characters kept of what a program said


def json_lines(text):
    """One object per line; a last line cut short by a time-out is dropped."""
    objects = []
    for line in text.splitlines():
        try:
            objects.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [o for o in objects if isinstance(o, dict)]


def is_peer(variant):
    return re.match(r"cudnn|cublas", variant)


def peer_ratios(rows):
    """[{op, case, ours, ours_us, peer, peer_us, ratio}]: ours, the fastest, beside each peer's fastest.

    A peer's variants are named after its library: cudnn_..., cublaslt_...
    """
    best = {}
    for row in rows:
        if "median_us" not in row:
            continue
        library = is_peer(row["variant"])
        key = (row["op"], row["case"], library.group() if library else "")
        if key not in best or row["median_us"] < best[key]["median_us"]:
            best[key] = row
    return [{"op": op, "case": case, "ours": ours["variant"], "ours_us": ours["median_us"],
             "peer": row["variant"], "peer_us": row["median_us"],
             "ratio": round(row["median_us"] / ours["median_us"], 3)}
            for (op, case, library), row in best.items()
            if library and (ours := best.get((op, case, "")))]


def profile_rows(text):
    """[{kernel, launches, metric: mean}] from ncu's --csv --page raw."""
    start = text.find('"ID"')
    if start < 0:
        return []
    rows = list(csv.DictReader(io.StringIO(text[start:])))[1:]  # the first holds units
    kernels = {}
    for row in rows:
        kernels.setdefault(row["Kernel Name"], []).append(row)
    def mean(group, metric):
        values = [float(r[metric].replace(",", "")) for r in group if r.get(metric)]
        return round(statistics.fmean(values), 3) if values else None
    return [{"kernel": name, "launches": len(group)} | {m: mean(group, m) for m in METRICS}
            for name, group in kernels.items()]


def step_times(log):
    """Milliseconds per step from a training log, without the first steps."""
    steps = [e for e in json_lines(log) if e.get("event") == "step"]
    frames = training_task.SEQUENCES * training_task.FRAMES
    return [1e3 * frames / e["frames_per_second"] for e in steps[5:] if e.get("frames_per_second")]


@dataclasses.dataclass
class Check:
    checkop: pathlib.Path
    rondo: pathlib.Path = None
    simt_test: pathlib.Path = None
    nccl_check: pathlib.Path = None
    filters: list = dataclasses.field(default_factory=list)
    environment: dict = None
    end: float = 0  # of the present section, by time.monotonic()

    def run(self, *command):
        """(exit status or None when out of time, standard output, standard error)."""
        left = max(1, self.end - time.monotonic())
        try:
            p = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                               errors="replace", timeout=left, check=False, env=self.environment)
            return p.returncode, p.stdout, p.stderr
        except subprocess.TimeoutExpired as e:
            text = [s.decode(errors="replace") if isinstance(s, bytes) else s or ""
                    for s in (e.stdout, e.stderr)]
            return None, *text

    def section(self, name, seconds):
        """Runs one; its result, with the seconds it took."""
        start = time.monotonic()
        self.end = start + seconds
        outcome = getattr(self, name)()
        outcome["seconds"] = round(time.monotonic() - start, 1)
        return outcome

    def vocabulary(self):
        if self.simt_test is None:
            return {"status": "skipped", "detail": "simt_test is not built"}
        status, out, err = self.run(self.simt_test)
        return {"status": "passed" if status == 0 else "failed", "exit": status,
                "detail": (out + err).strip()[-END:]}

    def checkop_twice(self):
        runs = []
        for _ in range(2):
            status, out, err = self.run(self.checkop, *self.filters, "--backend", "cuda", "--json")
            runs.append({"exit": status, "cases": json_lines(out), "stderr": err.strip()[-END:]})
        first, second = runs
        ran = [c for c in first["cases"] if c["status"] in ("passed", "failed")]
        failed = [c for c in first["cases"] + second["cases"] if c["status"] == "failed"]
        # What a peer computes is told, and is its own affair.
        differing = [c for c in first["cases"] if c["status"] == "differs"]
        moved = [a for a, b in zip(first["cases"], second["cases"])
                 if a != b and not is_peer(a["variant"])]
        good = (first["exit"] == second["exit"] == 0 and ran and not failed and not moved
                and len(first["cases"]) == len(second["cases"]))
        return {"status": "passed" if good else "failed", "ran": len(ran),
                "variants": proofs.outcomes(first["cases"] + second["cases"], moved),
                "skipped": len(first["cases"]) - len(ran), "failed": failed,
                "peers_differ": differing, "not_reproduced": moved, "exits": [first["exit"], second["exit"]],
                "stderr": first["stderr"] or second["stderr"]}

    def digits(self):
        """The recipe for spoken digits from start to finish; the share of wrong words."""
        if self.rondo is None:
            return {"status": "skipped", "detail": "rondo is not built"}
        with tempfile.TemporaryDirectory() as directory:
            corpus, model = places.HERE / "digits", pathlib.Path(directory) / "model"
            if not corpus.is_dir():
                recordings = places.digit_recordings()
                if recordings is None:
                    return {"status": "skipped", "detail": "no recordings; see RONDO_SHARED"}
                corpus = pathlib.Path(directory) / "digits"
                status, out, err = self.run(self.rondo, "prepare", "fsdd", recordings, corpus)
                if status != 0:
                    return {"status": "failed", "detail": (out + err)[-END:]}
            start = time.monotonic()
            status, out, err = self.run(
                self.rondo, "train", places.HERE / "recipes" / "fsdd.toml", f"data={corpus}",
                f"training.checkpoint_dir={model}", "--device", "cuda")
            seconds = round(time.monotonic() - start, 1)
            if status != 0:
                return {"status": "failed", "exit": status, "training_seconds": seconds,
                        "complete": status is not None, "detail": (out + err)[-END:]}
            status, out, err = self.run(self.rondo, "eval", model, corpus / "test.jsonl", "--json",
                                        "--device", "cuda")
            result = json_lines(out)[-1] if status == 0 and json_lines(out) else {}
            good = (wer := result.get("all", {}).get("wer")) is not None and wer <= HIGHEST_WER
            return {"status": "passed" if good else "failed", "exit": status,
                    "training_seconds": seconds, "result": result, "highest_wer": HIGHEST_WER,
                    "detail": "" if good else (out + err)[-END:]}

    def nccl(self):
        """The real NCCL, on every number of this machine's GPUs."""
        if self.nccl_check is None:
            return {"status": "skipped", "detail": "nccl_check is not built"}
        status, out, err = self.run(self.nccl_check)
        rows = json_lines(out)
        if status == 77:
            return {"status": "skipped", "detail": err.strip()[-END:]}
        good = status == 0 and rows and all(r.get("status") == "passed" for r in rows)
        return {"status": "passed" if good else "failed", "exit": status,
                "complete": status is not None, "rows": rows,
                "ranks": max((r["ranks"] for r in rows if "ranks" in r), default=0),
                "detail": err.strip()[-END:]}

    def bench(self):
        status, out, err = self.run(self.checkop, *self.filters, "--backend", "cuda", "--bench",
                                    "--json", "--seconds", "0.03")
        rows = json_lines(out)
        failed = [r for r in rows if r.get("status") == "failed"]
        done = status == 0 and rows and not failed
        return {"status": "passed" if done else "failed", "exit": status,
                "complete": status is not None, "rows": rows, "beside_peers": peer_ratios(rows),
                "stderr": err.strip()[-END:]}

    def training_step(self):
        """One step of 5 bidirectional LSTM layers and CTC, ours and PyTorch's."""
        if self.rondo is None:
            return {"status": "skipped", "detail": "rondo is not built"}
        ours, status = {}, "passed"
        with tempfile.TemporaryDirectory() as directory:
            for dtype in ("bf16", "f32"):
                folder = pathlib.Path(directory) / dtype
                config = training_task.write_corpus(folder, dtype)
                code, out, err = self.run(
                    self.rondo, "train", config, "training.max_steps=40", "--device", "cuda",
                    f"training.checkpoint_dir={folder / 'run'}")
                log = folder / "run" / "log.jsonl"
                times = step_times(log.read_text()) if log.exists() else []
                if code != 0 or not times:
                    status = "failed"
                    ours[dtype] = {"exit": code, "detail": (out + err)[-END:]}
                else:
                    ours[dtype] = {"median_ms": statistics.median(times), "min_ms": min(times),
                                   "steps": len(times)}
        return {"status": status, "ours": ours, "torch": self.torch_steps()}

    def torch_steps(self):
        python = places.torch_python()
        if python is None:
            return {"detail": "no Python here has PyTorch; RONDO_PEER_PYTHON may name one"}
        script = pathlib.Path(__file__).resolve().parent / "torch_step.py"
        code, out, err = self.run(python, script, "--seconds", "4")
        return {"exit": code, "rows": json_lines(out), "detail": "" if code == 0 else err[-END:]}

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or shutil.which(
            "compute-sanitizer", path="/usr/local/cuda/bin")
        if tool is None:
            return {"status": "skipped", "detail": "compute-sanitizer is not installed"}
        results = {}
        for pattern in self.filters or SANITIZED:
            for kind in ("memcheck", "racecheck"):
                if time.monotonic() > self.end:
                    results[f"{kind} {pattern}"] = {"exit": None, "detail": "no time left"}
                    continue
                status, out, err = self.run(tool, "--tool", kind, "--error-exitcode", "9",
                                            self.checkop, pattern, "--backend", "cuda")
                results[f"{kind} {pattern}"] = {
                    "exit": status, "detail": "" if status == 0 else (out + err)[-END:]}
        # What there was no time for is no failure of a kernel; what was run must be clean.
        ran = [r["exit"] for r in results.values() if r["exit"] is not None]
        good = ran and all(status == 0 for status in ran)
        return {"status": "passed" if good else "failed", "complete": len(ran) == len(results),
                "runs": results}

    def profile(self):
        tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
        if tool is None:
            return {"status": "skipped", "detail": "ncu is not installed"}
        kernels, said = [], ""
        for pattern in self.filters or PROFILED:
            status, out, err = self.run(tool, "--csv", "--page", "raw", "--metrics",
                                        ",".join(METRICS), "--launch-count", "60", self.checkop,
                                        pattern, "--backend", "cuda", "--bench", "--seconds", "0.001")
            if "ERR_NVGPUCTRPERM" in out + err:
                return {"status": "skipped", "detail": "this user may not read the GPU's counters"}
            kernels += [{"case": pattern} | row for row in profile_rows(out)]
            if status != 0:
                said = (out + err)[-END:]
        return {"status": "passed" if kernels else "failed", "kernels": kernels, "detail": said}


def driver_version():
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    p = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                       capture_output=True, text=True, timeout=60, check=False)
    return p.stdout.splitlines()[0].strip() if p.returncode == 0 and p.stdout.strip() else "unknown"


def find_gpu(checkop, environment):
    """The first GPU as checkop describes it, or (None, reason)."""
    p = subprocess.run([str(checkop), "--devices", "--json"], capture_output=True, text=True,
                       timeout=120, check=False, env=environment)
    for device in json_lines(p.stdout):
        if device.get("kind") == "cuda":
            return (device, "") if device["available"] else (None, device["detail"])
    return None, f"{checkop} --devices failed (status {p.returncode}): {p.stderr.strip()[-300:]}"
