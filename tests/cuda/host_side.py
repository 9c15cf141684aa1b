"""What the host does with a GPU, on programs that are linked with a stand-in for CUDA's runtime
(runtime_stand_in.cc): no misuse, device memory left alone, and steps recorded once and replayed.

    host_side.py RONDO_STAND_IN CHECKOP_STAND_IN
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
CHECKOP = sys.argv.pop()
from cli_support import *  # noqa: E402

os.environ["RONDO_DEVICE"] = "cuda"
os.environ["RONDO_CUBLASLT"] = os.environ["RONDO_NCCL"] = "/nowhere"  # they would look for a real GPU
os.environ["RONDO_TRIAL"] = "off"  # which would find that no kernel here computes anything
STAND_IN = "CUDA stand-in"


def recordings(path):
    """(kernels of each recording, number of replays)."""
    lines = path.read_text().splitlines()
    return [int(l.split()[1]) for l in lines if l.startswith("recorded")], sum(l.startswith("replayed") for l in lines)


def trained(data, out, *settings, base=TONE, device="cuda:0"):
    """What train recorded."""
    log = out.with_suffix(".recordings")
    train(data, out, *settings, "--device", device, base=base, not_says=[f"{STAND_IN}: "],
          env={**os.environ, "RONDO_STAND_IN_LOG": str(log), "RONDO_STAND_IN_GPUS": "2"})
    return recordings(log)


def test_the_stand_in_is_what_runs():
    run("info", says=[STAND_IN, "sm_90"])


def test_training_records_a_step_once_and_replays_it():
    with folder() as root:
        tone_corpus(root)
        for device in ("cuda:0", "cuda:1"):
            for dtype in ("f32", "bf16"):
                kernels, replays = trained(root, root / f"{dtype}{device[-1]}", "training.epochs=3",
                                           f"training.dtype={dtype}", device=device)
                # One for each bound graph (training's grow, evaluation has its own) and kind of step.
                check(2 <= len(kernels) <= 12, kernels)
                check(max(kernels) > 50, kernels)
                check(replays >= 3 * len(kernels), replays, kernels)
        model = root / "f320"
        run("eval", model, root / "dev.jsonl", not_says=[f"{STAND_IN}: "])
        run("transcribe", model, root / "dev001.wav", not_says=[f"{STAND_IN}: "])
        train(root, model, "training.epochs=5", "--resume", base=TONE, not_says=[f"{STAND_IN}: "])


def test_accumulation_averages_dropout_chunks_and_streams():
    with folder() as root:
        tone_corpus(root, train=24)
        trained(root, root / "a", "training.epochs=3", "training.accumulation=2", "training.ema=0.9",
                "model.dropout=0.2", "model.layer_norm=true")
        kernels, replays = trained(root, root / "b", "training.epochs=2", "model.bidirectional=false",
                                   "training.tbptt=30", "features.cmvn=global")
        # A pass each way of chunks of several sizes, beside the update and evaluation.
        check(len(kernels) >= 8 and replays > 2 * len(kernels), kernels, replays)
        run("transcribe", root / "b", root / "dev001.wav", "--stream", not_says=[f"{STAND_IN}: "])


def test_a_gpu_whose_kernels_are_wrong_is_refused():
    with folder() as root:
        tone_corpus(root)
        env = {**os.environ, "RONDO_TRIAL": "", "XDG_CACHE_HOME": str(root / "cache")}
        settings = [*TONE, f"data={root}", "training.epochs=1", "--device", "cuda"]
        refused = f"no variant of a kernel that the model needs is right on {STAND_IN}"
        for out, tried in (("first", True), ("second", False)):  # by a trial, and by the cache
            said, _ = run("train", *settings, f"training.checkpoint_dir={root / out}", env=env, code=1,
                          errs=[refused, "--device cpu trains without it"])
            check(("trying kernels" in said) == tried, said)
        # Which --device auto takes for a reason to train on the CPU.
        settings[-1] = "auto"
        out, err = run("train", *settings, f"training.checkpoint_dir={root / 'auto'}", env={**env, "RONDO_DEVICE": ""},
                       says=["on cpu with"])
        check(err.startswith("warning: ") and refused in err, err)
        check((root / "auto" / "model.safetensors").exists(), "no model")
        out, _ = run("info", "--device", env=env, says=[STAND_IN, "clusters of 8: 16, of 16: 8", "kernels "])
        check(re.search(r"(?m)^  lstm_forward f32 \S+.*: no variant is right \(portable wrong: \w+\[", out), out)


def test_every_variant_of_every_kernel_is_launched_as_cuda_allows():
    """Wrong results all over; but a launch that is refused, or a host that reads device memory, shows."""
    rows = []
    for chosen in (["lstm_forward/persistent", "lstm_backward/persistent", "--part", "1/3"], ["_none_"],
                   ["--part", "1/25"]):
        p = subprocess.run([CHECKOP, *chosen, "--backend", "cuda", "--no-peers", "--json"],
                           capture_output=True, text=True, check=False, timeout=TIMEOUT)
        check(p.returncode in (0, 1) and not p.stderr, p.returncode, p.stderr[-1000:])
        rows += [json.loads(line) for line in p.stdout.splitlines()]
    ran = [r for r in rows if r["status"] != "skipped"]
    check(len(ran) > 200, len(ran))
    check({"cluster_split", "grid", "grid_cluster", "portable"} <=
          {r["variant"] for r in ran if r["op"] == "lstm_forward"}, "a variant of the LSTM takes nothing")
    errors = [r for r in ran if r["status"] == "failed" and " differ, first at " not in r["detail"]]
    check(not errors, errors[:3])


if __name__ == "__main__":
    main(globals())
