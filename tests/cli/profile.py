"""`rondo train --profile`: what host and device did in a few updates, and nothing else changes."""

from cli_support import *

STEPS = ["training.max_steps=9", "training.epochs=9"]


def weights(directory):
    return read_safetensors(directory / "model.safetensors")[0]


def spans_of(path):
    """Of each rank and track, (name, phase, begin, end, about) in the order of their beginnings; microseconds."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks = {key: [] for key in names.items()}
    for e in events:
        if e["ph"] == "X":
            place = (e["pid"], e["tid"])
            tracks[place, names[place]].append((e["name"], e["cat"], e["ts"], e["ts"] + e["dur"], e["args"]))
    return {(place[0], name): sorted(spans, key=lambda s: s[2]) for (place, name), spans in tracks.items()}


def check_rank(tracks, rank):
    updates = [s for s in tracks[rank, "host"] if s[0] == "update"]
    check(len(updates) == 3, "updates:", updates)
    inside = {s[0] for s in tracks[rank, "host"]}
    check({"wait for data", "forward and backward", "wait for results"} <= inside, inside)
    nodes = [s for s in tracks[rank, "device"] if s[1] != "other"]
    seen = {(s[0], s[1]) for s in nodes}
    for phase in ("forward", "backward", "weight_gradient"):
        check(("lstm0.0", phase) in seen, phase, seen)
    check(any(s[0] == "update weights" for s in tracks[rank, "device"]), tracks[rank, "device"])
    check(all(s[4]["gflop"] > 0 and s[4]["rows"] > 0 for s in nodes if s[0] == "lstm0.0" and s[1] == "forward"), nodes)
    check(all(s[2] >= 0 and s[3] >= s[2] for s in nodes), "ends before it begins")
    # One after the other, and the last before the results are there.
    check(all(a[3] <= b[2] + 1 for a, b in zip(nodes, nodes[1:])), "two nodes at once:", nodes)
    last = max(s[3] for s in tracks[rank, "host"])
    check(nodes[0][2] >= updates[0][2] - 1000 and nodes[-1][3] <= last + 1000, updates, nodes[0], nodes[-1])


def compare(root, *words, ranks=1):
    """Trains with a profile and without: the same weights. The profile."""
    train(root, root / "plain", *STEPS, *words)
    out, _ = train(root, root / "seen", *STEPS, *words, "--profile", root / "trace.json",
                   says=["profile: updates 6 to 8 took ", " ms each (", "trace.json shows them in ui.perfetto.dev"])
    check(out.count("profile:") == 1, "not rank 0 alone says it:", out)
    check(weights(root / "plain") == weights(root / "seen"), "a profile changes the weights")
    tracks = spans_of(root / "trace.json")
    check({rank for rank, _ in tracks} == set(range(ranks)), tracks.keys())
    for rank in range(ranks):
        check_rank(tracks, rank)
    return tracks


def test_on_the_cpu():
    with folder() as root:
        feature_corpus(root, "ctc")
        compare(root)


def test_on_a_device_that_records():
    with folder() as root:
        feature_corpus(root, "ctc")
        compare(root, "--device", "sim", "model.hidden=8")


def test_ranks_and_their_messages():
    with folder() as root:
        feature_corpus(root, "ctc")
        tracks = compare(root, "--ranks", 2, ranks=2)
        for rank in (0, 1):
            check(any(s[0] == "gradients" for s in tracks[rank, "messages"]), tracks[rank, "messages"])


def test_a_run_that_is_too_short():
    with folder() as root:
        feature_corpus(root, "ctc")
        out, _ = train(root, root / "short", "training.max_steps=5", "--profile", root / "trace.json",
                       says="warning: --profile has nothing to show: the first 5 updates are left out")
        check(not (root / "trace.json").exists(), "a file of nothing")
        train(root, root / "longer", "training.max_steps=7", "--profile", root / "trace.json",
              says="profile: updates 6 to 7 took ")


def test_what_it_cannot_show():
    with folder() as root:
        feature_corpus(root, "ctc")
        def refused(*words, errs):
            fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run", *words, errs=errs)
            check(not list(root.glob("run/checkpoint-*")), "it has trained")
        refused("--lockstep-ref", "--profile", root / "t.json", errs="--profile and --lockstep-ref do not go together")
        refused("--profile", root / "no" / "t.json", errs="no is not a directory")
        refused("--profile", root / "train.jsonl", errs=["--profile", "train.jsonl"])
        refused("--profile", root / "train000.npy", errs=["--profile", "train000.npy"])


main(globals())
