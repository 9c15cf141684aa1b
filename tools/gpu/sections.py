"""The sections of gpu_check. Each returns a dictionary with at least 'status': passed, failed, skipped.

Everything a section starts ends when the section's time does; what is cut short is said to be. A
kernel that crashes, hangs or loses the GPU costs its own case alone.
"""

import collections
import dataclasses
import glob
import os
import pathlib
import shutil
import statistics
import tempfile
import time
import traceback

import figures
import places
import training_task
import watch
from watch import json_lines

# The two commands: their sections in order of priority, with seconds. Nine minutes each. The first says
# which kernels are right and which family of LSTM kernels trains fastest, the second how fast kernels are.
COMMANDS = {
    "prove": {"vocabulary": 15, "trial": 35, "lstm_twice": 85, "full_size": 75, "families": 100, "steps": 40, "ctc_twice": 45,
              "others_twice": 60, "digits": 85},
    "measure": {"training_step": 130, "bench": 190, "torch_ctc": 25, "peers": 25, "sanitizer": 110, "profile": 40,
                "nccl": 20}}
# Seconds without a word after which a kernel is taken to hang (polls give up before), and the same where
# a library may compile kernels first.
SILENCE, PEERS_SILENCE = 20, 60
SIMULATED = 10  # times as long where threads are simulated, beside whatever else a machine does

# What is checked twice, by op. First the LSTM's, of which most poll: complete by themselves, whatever becomes of
# the rest.
LSTM_OPS = ["lstm_forward", "lstm_backward"]
STACK_OPS = ["lstm_stack_forward", "lstm_stack_backward"]
CTC_OPS = ["ctc", "ctc_chunk_alpha", "ctc_chunk_grad", "linear_ctc", "linear_ctc_grad"]
DTYPES = ["bf16", "f32"]
# The variants of LSTM_OPS by which a training step is timed, each by name, in order of priority: tasks of training_task.py
# and types, and those that take them there (kernels/lstm/lstm_conditions.h).
FAMILIES = {("bilstm", "bf16"): ["cluster_split", "grid", "portable"],
            ("bilstm", "f32"): ["grid", "portable"],
            ("brain_to_text", "bf16"): ["grid_cluster", "grid", "portable"],
            ("algoperf", "f32"): ["cluster_split", "grid", "portable"]}
OTHER_TASKS = ["brain_to_text", "algoperf"]  # of training_task.py, timed after bilstm

# What is checked at sizes that are timed, for which the reference takes minutes: the kernels that stay
# for a whole sequence, against launches per step.
FULL_SIZE = ["bench_h1024_b64_", "bench_h512_b64_", "bench_h1024_b4_", "bench_h512_b16_", "bench_h512_i512_l4_b16_t200_",
             "bench_h128_b64_", "bench_h256_i256_l4_b64_t200_"]
TRUSTED = "portable,layers"  # of LSTM_OPS, of STACK_OPS
# What is timed, in order of priority: beside other libraries, and then by itself, ops that are not named here at the end.
BESIDE_PEERS = ["ctc/bench/f32/T1000", "lstm_step/peers_h512_b32_t200_d2_bf16",
                "lstm_forward/peers_h512_b32_t200_d2_bf16", "lstm_forward/peers_h1024_b16_t100_d1_bf16",
                "lstm_forward/peers_h512_b16_t200_d1_bf16", "ctc/bench", "lstm_step/peers_h1024",
                "lstm_step/peers", "lstm_forward/peers"]
ALONE = ["lstm_forward/bench_h1024_b16", "lstm_backward/bench_h1024_b16", "lstm_forward/bench_h512_b16",
         "lstm_backward/bench_h512_b16", "lstm_stack_forward/bench", "lstm_stack_backward/bench", "lstm_forward/bench", "lstm_backward/bench", "lstm_weight_grad",
         "gemm", "ctc_chunk", "linear_ctc", "beam_search", "conv", "log_softmax", "layer_norm", "group_norm", "pointwise"]
PEERS_SHARE = 0.65  # of the time
# A small case of an op, those first whose threads share memory in the least simple ways. An op that is not named here
# has one too (sanitized).
SANITIZED = ["lstm_forward/h7", "lstm_backward/h7", "lstm_forward/persistent_h600_b3_d2_bf16",
             "lstm_backward/persistent_h600_b3_d2_bf16", "lstm_stack_forward/h16_i1_l3_b7_t17_bf16",
             "lstm_stack_backward/h16_i1_l3_b7_t17_bf16", "ctc/edges/f32", "gemm/bf16/nn/33",
             "pointwise/tanh/bf16/33x65", "linear_ctc/bf16/several tiles on GPUs",
             "linear_ctc_grad/bf16/several tiles on GPUs", "beam_search/automaton 2/100",
             "group_norm/f32/batch 2/2x32 in 32", "group_norm_grad/f32/batch 2/2x32 in 32",
             "conv/groups 3 height 3/3/2-1+2 time 2/2/2-0+2/bf16/batch 1/", "conv/tiles/f32/11x2->24",
             "conv_grad_input/groups 3 height 3/3/2-1+2 time 2/2/2-0+2/bf16/batch 1/", "conv_grad_input/tiles/f32/11x2->24",
             "conv_grad_weight/groups 3 height 3/3/2-1+2 time 2/2/2-0+2/bf16/batch 1/",
             "conv_grad_weight/tiles/f32/11x2->24", "conv/row time 3/2/1-1+1 halo 0+1/f32/batch 1/",
             "conv_grad_input/row time 3/2/1-1+1 halo 0+1/f32/batch 1/",
             "conv_grad_weight/row time 3/2/1-1+1 halo 0+1/f32/batch 1/", "ctc_chunk_alpha/sizes/f32/T65V17",
             "ctc_chunk_grad/sizes/f32/T65V17", "lstm_weight_grad/h7", "lstm_step/h16_i7_b3_d1_f32", "layer_norm/f32/33x33",
             "layer_norm_grad/f32/33x31/1", "log_softmax/f32/33x7", "log_softmax_grad/f32/33x7", "cross_entropy/f32/33x7",
             "mse/mean/f32/33x7", "reduce_rows/f32/33x31", "sum_squares/f32/f32/33", "count_nonfinite/f32/accumulate/32",
             "pointwise_grad/gelu/bf16/33x7", "pool/mean/f32/batch 2/31", "pool_grad/mean/f32/batch 2/31",
             "pool2d/greatest 2x5/f32/batch 3/", "pool2d_grad/greatest 2x5/f32/batch 3/", "dropout/f32/16/p=0.3",
             "reverse_frames/bf16/batch 3/24", "stack_frames/stack 2 stride 3/f32/batch 1/33",
             "stack_frames_grad/stack 2 stride 3/f32/batch 1/33", "edge_frames/tail 3 head 4/bf16/batch 0/32",
             "edge_frames_grad/tail 3 head 4/bf16/batch 0/32", "pack/NTC/permuted/f32/batch 0/65",
             "unpack/NTC/permuted/f32/batch 0/65", "cast/f64 to bf16/31", "accumulate/f32 to f32/1x7", "scale/f32 to f32/1x7",
             "fill/f32/1x65", "sgd/momentum 0.9 nesterov/33", "adam/adamw/31", "ema/33", "optimizer_prepare/sum_squares 1",
             "loss_totals/f32/31/rows/restart/count", "combine_totals/f64/33"]
SANITIZERS = ["memcheck", "racecheck", "synccheck"]
PROFILED = ["lstm_forward/bench_h512_b16", "lstm_backward/bench_h512_b16", "ctc/bench/f32/T1000"]
COMPARED_PEERS = ["cudnn", "cudnn_standard_packed", "cudnn_standard_padded", "cudnn_static_packed"]
HIGHEST_WER = 0.03
# A rehearsal: the same programs with the same options where there is no GPU, on little.
REHEARSED = {"lstm_twice": ["--part", "1/90"], "ctc_twice": ["--part", "1/90"], "others_twice": ["--part", "1/60"],
             "full_size": ["bench_h128_b1_t100_d1_bf16"],
             "steps": ["steps_h256_b8_t200_d1_bf16", "--variant", "cluster_split"],
             "bench": ["ctc/bench/f32/T100N32V32", "bench/f64/8/count"],
             "digits": ["training.max_steps=2"],
             "trial": ["model.hidden=8", "model.layers=1", "data.batch_frames=1600"],
             "families": ["model.hidden=8", "model.layers=1", "training.max_steps=8"],
             "training_step": ["model.hidden=8", "model.layers=1", "training.max_steps=8"]}
STEPS = 25  # of a training run that is timed
DECLINED = "took none of the calls"  # what rondo says of a --kernels that suits no layer of the model
END = 2000  # characters kept of what a program said


def family_steps():
    """{name: (task, type, family)} of what section families times; names are "bilstm bf16 cluster_split"."""
    return {f"{task} {dtype} {family}": (task, dtype, family)
            for (task, dtype), families in FAMILIES.items() for family in families}


def named_kernels(family):
    return ["--kernels", ",".join(f"{op}={family}" for op in LSTM_OPS)]


def key_of(row):
    return row["op"], row["case"], row["variant"]


def outcomes(cases, moved):
    """{"op/variant": {"passed": n, "failed": n, "moved": n}} of checkop's rows, without what was skipped."""
    counts = {}
    for row in cases:
        if row["status"] in ("passed", "failed"):
            of = counts.setdefault(f"{row['op']}/{row['variant']}", {"passed": 0, "failed": 0, "moved": 0})
            of[row["status"]] += 1
    for row in moved:
        if of := counts.get(f"{row['op']}/{row['variant']}"):
            of["moved"] += 1
    return counts


def find_tool(name, *patterns):
    """A program of the toolkit's, or None."""
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    return found or next((f for p in patterns for f in sorted(glob.glob(p), reverse=True)), None)


@dataclasses.dataclass
class Check:
    checkop: pathlib.Path
    rondo: pathlib.Path = None
    simt_test: pathlib.Path = None
    nccl_check: pathlib.Path = None
    filters: list = dataclasses.field(default_factory=list)
    environment: dict = None
    rehearses: bool = False
    end: float = 0  # of the present section, by time.monotonic()

    @property
    def kernels(self):
        """Where kernels run."""
        return "sim" if self.rehearses else "cuda"

    @property
    def trainer(self):
        """Where models are trained: simulated kernels take minutes."""
        return "cpu" if self.rehearses else "cuda"

    def rehearsed(self, section):
        return REHEARSED[section] if self.rehearses else []

    def run(self, *command, plain=False, trial=None):
        """(exit status or None when out of time, standard output, standard error). `trial`: RONDO_TRIAL."""
        environment = None if plain else self.environment
        if trial:
            environment = {**(environment or os.environ), "RONDO_TRIAL": trial}
        ended = watch.run(command, environment, max(self.end, time.monotonic() + 1))
        return ended.status, ended.out, ended.err

    def cases(self, *options, end=None, silence=SILENCE):
        """A watch.Pass of checkop on the device."""
        return watch.checkop(self.checkop, [*options, "--backend", self.kernels], self.environment,
                             min(end or self.end, self.end), silence * (SIMULATED if self.rehearses else 1))

    def section(self, name, end):
        """Runs one until a moment; its result, with the seconds it took. Whatever goes wrong is told there."""
        start = time.monotonic()
        self.end = max(end, start + 1)
        try:
            outcome = getattr(self, name)()
        except Exception:  # the sections after it still count
            outcome = {"status": "failed", "detail": traceback.format_exc()[-END:]}
        outcome["seconds"] = round(time.monotonic() - start, 1)
        return outcome

    def vocabulary(self):
        if self.simt_test is None:
            return {"status": "skipped", "detail": "simt_test is not built"}
        status, out, err = self.run(self.simt_test)
        return {"status": "passed" if status == 0 else "failed", "exit": status,
                "detail": (out + err).strip()[-END:]}

    def trial(self):
        """What rondo itself finds of the kernels that a model needs, before its first step."""
        if self.rondo is None:
            return {"status": "skipped", "detail": "rondo is not built"}
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory)
            task = training_task.TASKS["bilstm"]
            config = training_task.write_config(folder, training_task.write_corpus(folder / "bilstm", task), task, "bf16")
            status, out, err = self.run(self.rondo, "train", config, "training.max_steps=1", "--device", self.kernels,
                                        f"training.checkpoint_dir={folder / 'run'}", *self.rehearsed("trial"), trial="on")
        tried = [line for line in out.splitlines() if line.startswith("tried ")]
        warnings = [line for line in (out + err).splitlines() if line.startswith("warning: ")]
        good = status == 0 and tried and not warnings
        return {"status": "passed" if good else "failed", "exit": status, "complete": status is not None, "tried": tried,
                "warnings": warnings, "detail": "" if good else (out + err)[-END:]}

    def lstm_twice(self):
        return self.twice("lstm_twice")

    def ctc_twice(self):
        return self.twice("ctc_twice")

    def others_twice(self):
        return self.twice("others_twice")

    def ops_of(self, name):
        """Those that a section runs twice."""
        if name != "others_twice":
            return {"lstm_twice": LSTM_OPS + STACK_OPS, "ctc_twice": CTC_OPS}[name]
        named = self.run(self.checkop, "--list", "--backend", self.kernels)[1].splitlines()
        ops = dict.fromkeys(line.partition("/")[0] for line in named)
        return [op for op in ops if op not in LSTM_OPS + STACK_OPS + CTC_OPS]

    def twice(self, name):
        """All cases of some ops, in two processes, with the same bits."""
        options = [*self.filters, "--op", ",".join(self.ops_of(name)), "--no-peers", *self.rehearsed(name)]
        if not self.run(self.checkop, "--list", "--backend", self.kernels, *options)[1]:
            return {"status": "skipped", "detail": "no case fits", "complete": False}
        half = self.end - (self.end - time.monotonic()) / 2
        first, second = self.cases(*options, end=half), self.cases(*options)
        again = {key_of(c): c for c in second.rows}
        both = [c for c in first.rows if key_of(c) in again]
        moved = [c for c in both if c != again[key_of(c)]]
        ran = [c for c in both if c["status"] in ("passed", "failed")]
        rows = both + [again[key_of(c)] for c in both]
        failed = [c for c in first.rows + second.rows if c["status"] == "failed"]
        complete = first.complete and second.complete and len(both) == len(first.rows) == len(again)
        good = complete and ran and not failed and not moved
        return {"status": "passed" if good else "failed", "complete": complete, "ran": len(ran),
                "variants": outcomes(rows, moved), "skipped": len(both) - len(ran),
                "failed": failed[:200], "not_reproduced": moved[:200],
                "losses": first.losses + second.losses, "exits": [first.exit, second.exit],
                "detail": (first.stderr or second.stderr)[-END:]}

    def full_size(self):
        """The kernels of whole sequences at the sizes that are timed, twice each, with the same bits."""
        done = self.cases(*(self.filters or self.rehearsed("full_size") or FULL_SIZE), "--op", ",".join(LSTM_OPS + STACK_OPS),
                          "--against", TRUSTED, "--no-peers")
        failed = [c for c in done.rows if c["status"] == "failed"]
        passed = [c for c in done.rows if c["status"] == "passed"]
        good = done.complete and passed and not failed
        return {"status": "passed" if good else "failed", "complete": done.complete,
                "ran": len(passed + failed), "variants": outcomes(done.rows, []),
                "failed": failed[:200], "losses": done.losses, "detail": done.stderr[-END:]}

    def digits(self):
        """The recipe for spoken digits from start to finish; the share of wrong words."""
        if self.rondo is None:
            return {"status": "skipped", "detail": "rondo is not built"}
        with tempfile.TemporaryDirectory() as directory:
            corpus, model = pathlib.Path(directory) / "digits", pathlib.Path(directory) / "model"
            recordings = places.digit_recordings()
            if recordings is None:
                return {"status": "skipped", "detail": "no recordings; see RONDO_SHARED"}
            status, out, err = self.run(self.rondo, "prepare", "fsdd", recordings, corpus)
            if status != 0:
                return {"status": "failed", "exit": status, "complete": status is not None,
                        "detail": (out + err)[-END:]}
            start = time.monotonic()
            status, out, err = self.run(
                self.rondo, "train", places.HERE / "recipes" / "fsdd.toml", f"data={corpus}",
                f"training.checkpoint_dir={model}", "--device", self.trainer, *self.rehearsed("digits"))
            seconds = round(time.monotonic() - start, 1)
            if status != 0:
                return {"status": "failed", "exit": status, "training_seconds": seconds,
                        "complete": status is not None, "detail": (out + err)[-END:]}
            status, out, err = self.run(self.rondo, "eval", model, corpus / "test.jsonl", "--json",
                                        "--device", self.trainer)
            result = json_lines(out)[-1] if status == 0 and json_lines(out) else {}
            wer = result.get("all", {}).get("wer")
            good = wer is not None and (wer <= HIGHEST_WER or self.rehearses)
            return {"status": "passed" if good else "failed", "exit": status,
                    "complete": status is not None, "training_seconds": seconds, "result": result, "highest_wer": HIGHEST_WER,
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
        now = time.monotonic()
        timed = ["--bench", "--seconds", "0.02"]
        chosen = self.filters or self.rehearsed("bench")
        passes = [self.cases(*(chosen or BESIDE_PEERS), *timed, silence=PEERS_SILENCE,
                             end=now + (self.end - now) * PEERS_SHARE)]
        if not chosen:
            passes.append(self.cases(*self.alone(), *timed, "--no-peers"))
        rows = [r for done in passes for r in done.rows]
        # A peer that fails is its library's affair.
        failed = [r for r in rows if r.get("status") == "failed" and not figures.is_peer(r["variant"])]
        return {"status": "passed" if rows and not failed else "failed",
                "complete": all(done.complete for done in passes),
                "until": [done.last for done in passes if not done.complete], "rows": rows,
                "losses": [l for done in passes for l in done.losses],
                "beside_peers": figures.peer_ratios(rows), "detail": (passes[0].stderr or passes[-1].stderr)[-END:]}

    def training_step(self):
        """One step of 5 bidirectional LSTM layers and CTC, ours and PyTorch's, and of networks of others' shapes."""
        if self.rondo is None:
            return {"status": "skipped", "detail": "rondo is not built"}
        ours = self.step_times("training_step", {dtype: ("bilstm", dtype, []) for dtype in DTYPES})
        torch = self.torch_program("torch_step.py", "--seconds", "4")
        for task in OTHER_TASKS:
            ours |= self.step_times("training_step", {f"{task} {dtype}": (task, dtype, []) for dtype in DTYPES})
            more = self.torch_program("torch_step.py", "--seconds", "2", "--task", task, "--settings",
                                      "eager_bf16,eager_f32")
            torch["rows"] = torch.get("rows", []) + more.get("rows", [])
        good = all("median_ms" in ours[dtype] for dtype in DTYPES)
        return {"status": "passed" if good else "failed", "complete": all("median_ms" in t for t in ours.values()),
                "ours": ours, "torch": torch}

    def families(self):
        """The same step by each family of LSTM kernels, named."""
        if self.rondo is None:
            return {"status": "skipped", "detail": "rondo is not built"}
        steps = family_steps()
        if self.rehearses:  # where models are trained on the CPU there is one family
            last = {(task, dtype): name for name, (task, dtype, _) in steps.items()}
            steps = {name: steps[name] for name in last.values()}
        ours = self.step_times("families", {
            name: (task, dtype, [] if self.rehearses else named_kernels(family))
            for name, (task, dtype, family) in steps.items()}, trial="off")
        timed = {name: times["median_ms"] for name, times in ours.items() if "median_ms" in times}
        fastest = {group: min(names, key=timed.get) for group in map(" ".join, FAMILIES)
                   if (names := [n for n in timed if n.rpartition(" ")[0] == group])}
        # A family that fails is told by lstm_twice and full_size; here the others' times still count.
        good = len(fastest) == len(FAMILIES)
        return {"status": "passed" if good else "failed", "ours": ours, "fastest": fastest,
                "detail": "; ".join(f"{n}: {t['detail'].strip()[-200:]}" for n, t in ours.items() if "detail" in t)}

    def step_times(self, section, steps, trial=None):
        """{name: {median_ms, min_ms, steps, loss} or {exit, detail}} of rondo's training steps; steps: {name: (task, dtype,
        options)}. Those that take none of a family's kernels have no time."""
        ours = {}
        with tempfile.TemporaryDirectory() as directory:
            folder, manifests = pathlib.Path(directory), {}
            for i, (name, (task_name, dtype, options)) in enumerate(steps.items()):
                if time.monotonic() > self.end:
                    ours[name] = {"exit": None, "detail": "no time left"}
                    continue
                task, run = training_task.TASKS[task_name], folder / f"run{i}"
                if task_name not in manifests:
                    manifests[task_name] = training_task.write_corpus(folder / task_name, task)
                config = training_task.write_config(folder, manifests[task_name], task, dtype)
                code, out, err = self.run(
                    self.rondo, "train", config, f"training.max_steps={STEPS}", "--device", self.trainer,
                    f"training.checkpoint_dir={run}", *options, *self.rehearsed(section), trial=trial)
                log = run / "log.jsonl"
                times, loss = figures.step_times(log.read_text(), task) if log.exists() else ([], None)
                if code != 0 or not times or DECLINED in err:
                    ours[name] = {"exit": code, "detail": (out + err)[-END:]}
                else:
                    ours[name] = {"median_ms": statistics.median(times), "min_ms": min(times), "steps": len(times),
                                  "loss": loss}
        return ours

    def steps(self):
        """What one step of a time loop takes, by variant, at sizes that people use."""
        done = self.cases(*(self.filters or self.rehearsed("steps") or ["steps_h"]), "--op", ",".join(LSTM_OPS),
                          "--bench", "--seconds", "0.02", "--no-peers")
        per_step = figures.per_step_times(done.rows)
        return {"status": "passed" if per_step else "failed", "complete": done.complete, "until": done.last,
                "us_per_step": per_step, "rows": done.rows, "losses": done.losses, "detail": done.stderr[-END:]}

    def torch_ctc(self):
        """PyTorch's CTC, its own and cuDNN's, on the shapes of our benchmarks."""
        named = self.run(self.checkop, "--list", "--bench", "--op", "ctc", "ctc/bench/f32", "--backend", self.kernels)[1]
        shapes = dict.fromkeys(line.partition(" ")[0].rpartition("/")[2] for line in named.splitlines())
        found = self.torch_program("torch_ctc.py", *shapes)
        status = "skipped" if not found.get("rows") else "passed"
        return {"status": status, "complete": found.get("exit") == 0} | found

    def torch_program(self, script, *options):
        """What a script that needs PyTorch said."""
        if self.rehearses:
            return {"detail": "needs a GPU"}
        python = places.torch_python()
        if python is None:
            return {"detail": "no Python here has PyTorch; RONDO_PEER_PYTHON may name one"}
        # Its libraries find each other; ours in LD_LIBRARY_PATH would come first.
        code, out, err = self.run(python, pathlib.Path(__file__).resolve().parent / script, *options, plain=True)
        return {"exit": code, "rows": json_lines(out), "detail": "" if code == 0 else err[-END:]}

    def unnamed(self, patterns):
        """The ops of which no pattern of checkop's names a case."""
        names = self.run(self.checkop, "--list", "--backend", self.kernels, "--no-peers")[1].splitlines()
        return [op for op in dict.fromkeys(name.partition("/")[0] for name in names)
                if not any(p.startswith(op + "/") if "/" in p else p in op for p in patterns)]

    def alone(self):
        return ALONE + [op + "/" for op in self.unnamed(BESIDE_PEERS + ALONE)]

    def sanitized(self):
        """SANITIZED, and of every other op the case that is larger than three quarters of its cases."""
        others = self.unnamed(SANITIZED)
        if not others:
            return SANITIZED
        sizes = collections.defaultdict(dict)
        for row in json_lines(self.run(self.checkop, "--list", "--json", "--backend", self.kernels, "--no-peers",
                                       "--op", ",".join(others))[1]):
            sizes[row["op"]][row["case"]] = row["host_bytes"]
        return SANITIZED + [f"{op}/{sorted(cases, key=cases.get)[len(cases) * 3 // 4]}" for op, cases in sizes.items()]

    def sanitizer(self):
        if self.rehearses:
            return {"status": "skipped", "detail": "needs a GPU"}
        tool = find_tool("compute-sanitizer")
        if tool is None:
            return {"status": "skipped", "detail": "compute-sanitizer is not installed"}
        results = {}
        for kind in SANITIZERS:
            if time.monotonic() > self.end:
                results[kind] = {"exit": None, "detail": "no time left"}
                continue
            status, out, err = self.run(tool, "--tool", kind, "--error-exitcode", "9", self.checkop,
                                        *(self.filters or self.sanitized()), "--backend", "cuda", "--no-peers")
            results[kind] = {"exit": status, "detail": "" if status == 0 else (out + err)[-4 * END:]}
        # What there was no time for is no failure of a kernel; what was run must be clean.
        ran = [r["exit"] for r in results.values() if r["exit"] is not None]
        good = ran and all(status == 0 for status in ran)
        return {"status": "passed" if good else "failed", "complete": len(ran) == len(results),
                "runs": results}

    def profile(self):
        if self.rehearses:
            return {"status": "skipped", "detail": "needs a GPU"}
        tool = find_tool("ncu", "/opt/nvidia/nsight-compute/*/ncu")
        if tool is None:
            return {"status": "skipped", "detail": "ncu is not installed"}
        kernels, said = [], ""
        for pattern in self.filters or PROFILED:
            # The clocks stay as they are: the GPU may be others' too.
            status, out, err = self.run(
                tool, "--csv", "--page", "raw", "--clock-control", "none", "--metrics",
                ",".join(figures.METRICS), "--launch-count", "60", self.checkop, pattern, "--backend", "cuda",
                "--bench", "--seconds", "0.001", "--no-peers")
            if "ERR_NVGPUCTRPERM" in out + err or "LibraryNotLoaded" in out + err:
                return {"status": "skipped", "detail": f"no counters here: {(out + err)[-END:]}"}
            kernels += [{"case": pattern} | row for row in figures.profile_rows(out)]
            if status != 0:
                said = (out + err)[-END:]
        return {"status": "passed" if kernels else "failed", "kernels": kernels, "detail": said}

    def peers(self):
        """Whether other libraries' kernels, beside which ours are timed, compute the same."""
        if self.rehearses:
            return {"status": "skipped", "detail": "needs a GPU"}
        rows, losses = [], []
        for variant in COMPARED_PEERS:
            done = self.cases(*self.filters, "--variant", variant, silence=PEERS_SILENCE)
            rows += done.rows
            losses += done.losses
        counts = collections.Counter(r["status"] for r in rows)
        return {"status": "passed" if counts.get("passed") else "skipped", "counts": counts,
                "differ": [r for r in rows if r["status"] == "differs"][:50], "losses": losses}


def driver_version():
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    ended = watch.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], None,
                      time.monotonic() + 30)
    return ended.out.splitlines()[0].strip() if ended.status == 0 and ended.out.strip() else "unknown"


def find_device(checkop, environment, kind):
    """The first device of the kind as checkop describes it, or (None, reason)."""
    ended = watch.run([checkop, "--devices", "--json"], environment, time.monotonic() + 90)
    for device in json_lines(ended.out):
        if device.get("kind") == kind:
            return (device, "") if device["available"] else (None, device["detail"])
    how = ended.why or f"status {ended.status}"
    return None, f"{checkop} --devices failed ({how}): {ended.err.strip()[-300:]}"
