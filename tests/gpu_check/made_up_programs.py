"""Programs that stand for ours in the tests of tools/gpu_check; words in capitals are replaced."""

# Three cases. STATUS is the second's; TROUBLE is what the second does to its process instead.
CHECKOP = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
runs = here / "runs"
if "--devices" in sys.argv:
    print(json.dumps({"kind": "cpu", "available": True, "detail": "cpu"}))
    print(json.dumps({"kind": "cuda", "available": GPU, "detail": "Made-up H1 (cuda:0)" if GPU else "no driver"}))
elif "--list" in sys.argv and "--json" in sys.argv:
    for op, case, variant in (("a", "b/1", "fast"), ("a", "b/2", "fast"), ("c", "d", "slow")):
        print(json.dumps({"op": op, "case": case, "variant": variant, "timed": True, "host_bytes": 100}))
elif "--list" in sys.argv:
    print("a/b/1 cuda:fast\\na/b/2 cuda:fast\\nc/d cuda:slow")
elif "--bench" in sys.argv:
    for variant, us in (("fast", 1.5), ("slow", 4.0), ("cudnn_standard", 6.0), ("cudnn_persist", 3.0)):
        print(json.dumps({"op": "a", "case": "b", "variant": variant, "median_us": 2 * us, "stream_us": us}))
else:
    after = sys.argv[sys.argv.index("--after") + 1] if "--after" in sys.argv else None
    if after is None:
        runs.write_text(str(int(runs.read_text()) + 1) if runs.exists() else "1")
    moving = runs.read_text() if MOVES else "same"
    names = ["a/b/1 cuda:fast", "a/b/2 cuda:fast", "c/d cuda:slow"]
    for name in names[names.index(after) + 1 if after else 0:]:
        print("checkop: running", name, file=sys.stderr, flush=True)
        second = name == names[1]
        if second and TROUBLE == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if second and TROUBLE == "hangs":
            time.sleep(1000)
        label, variant = name.split(" cuda:")
        status = STATUS if second or STATUS == "skipped" else "passed"
        print(json.dumps({"op": label[:1], "case": label[2:], "variant": variant,
                          "status": "failed" if second and TROUBLE == "loses" else status, "detail": "",
                          "digest": moving}), flush=True)
        if second and TROUBLE == "loses":
            print("checkop: the GPU was lost", file=sys.stderr)
            sys.exit(3)
    sys.exit(STATUS == "failed")
"""

# 400 small cases of 10 ms of a processor each, and 16 large ones, 20 ms for a MB; keeps the names of what it ran.
MANY_CASES = """#!/usr/bin/env python3
import json, pathlib, resource, sys
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime
cases = {f"a/small{i:03}": (1000, 0.01) for i in range(400)}
cases |= {f"c/large{i:02}": ((4 + i) << 20, 0.02 * (4 + i)) for i in range(16)}
ran = []
filters = [a for a in sys.argv[1:] if "/" in a]
for name, (size, seconds) in cases.items():
    if filters and not any(f in name for f in filters):
        continue
    op, case = name.split("/")
    for variant in ("fast", "slow"):
        if "--list" not in sys.argv:
            end = used() + seconds / 2
            while used() < end:
                sum(range(2000))
            ran.append(name)
        print(json.dumps({"op": op, "case": case, "variant": variant, "timed": True, "host_bytes": size,
                          "status": "passed"}))
with open(pathlib.Path(__file__).parent / "ran", "a") as file:
    print(*ran, file=file)
"""

# Trains for as long as it is told, and recognises as well as it is told.
RONDO = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
if sys.argv[1] == "train":
    time.sleep(SLEEP)
    trial = os.environ.get("RONDO_TRIAL")
    if trial != ("off" if "--kernels" in sys.argv else "on" if "training.max_steps=1" in sys.argv else None):
        sys.exit(f"RONDO_TRIAL is {trial}")
    if trial == "on":
        print("tried lstm_forward bf16 h512 d2 n32: grid, 2.0 us a time step (portable 4.0)")
        print(TRIED)
    family = sys.argv[sys.argv.index("--kernels") + 1] if "--kernels" in sys.argv else ""
    fps = FPS * (2 if "cluster" in family else 1)
    if "grid_cluster" in family:
        print("warning: --kernels lstm_forward=grid_cluster took none of the calls; it is for ...", file=sys.stderr)
    elif "grid" in family:
        sys.exit("the GPU was lost")
    run = next(a.split("=")[1] for a in sys.argv if a.startswith("training.checkpoint_dir="))
    pathlib.Path(run).mkdir(parents=True)
    with open(run + "/log.jsonl", "w") as log:
        log.write(json.dumps({"event": "start"}) + "\\n")
        for step in range(10):
            log.write(json.dumps({"event": "step", "loss": 1.0,
                                  "frames_per_second": 100.0 if step < 5 else fps}) + "\\n")
elif sys.argv[1] == "eval":
    print(json.dumps({"all": {"wer": WER}, "utterances": 300}))
"""

# Checks its first sum well, its second as well as it is told.
NCCL_CHECK = """#!/usr/bin/env python3
import json, sys
if STATUS == "skipped":
    print("no NCCL", file=sys.stderr)
    sys.exit(77)
print(json.dumps({"ranks": 1, "sum": "ring f32", "status": "passed"}))
print(json.dumps({"ranks": 2, "sum": "ring f32", "status": STATUS}))
sys.exit(STATUS != "passed")
"""


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)
