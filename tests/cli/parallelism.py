"""Models and sequences spread over real processes: pipelines, their replicas and shards, killed and
misled."""

import resource

from ranks_support import *

STAGES = ["model.layers=4", "parallel.deterministic=same_world", "training.clip=0.5",
          "parallel.micro_batches=4", "training.max_steps=45", "training.checkpoint_every_steps=10",
          "training.log_every_steps=1"]


# Each stage writes its own files, so that their bytes are the same only where the cut is.
TWO_STAGES = ["--stages", 2, "parallel.placement=3,2"]


# The simulator is slow: a few steps.
SIMULATED = ["--device", "sim", "training.max_steps=6", "training.checkpoint_every_steps=3",
             "training.validate_every_steps=0", "data.dev="]


def pipelines(n, *more, options=()):
    return launch(n, *STAGES, *more, options=options)


@contextlib.contextmanager
def expecting(n, *more):
    """A corpus, and the weights of an undisturbed run with ranks as threads."""
    with corpus() as root:
        run(*words(*STAGES, *more), "--ranks", n, cwd=root)
        expected = weights_of(root / "run")
        shutil.rmtree(root / "run")
        yield root, expected


def same(expected, root):
    for name, data in weights_of(root / "run").items():
        check(expected[name] == data, f"{name}: other bytes than of an undisturbed run")


def test_shards_in_processes_are_threads():
    for n, more in ((4, ["--shards", 4]), (4, ["--shards", 2])):
        with expecting(n, *more) as (root, expected):
            out, err = run(*pipelines(n, *more), cwd=root)
            check(err == "", err)
            check(out.count("best model: ") == 1, "not rank 0 alone prints:", out)
            same(expected, root)


def test_shards_on_devices_in_processes_are_threads():
    for n, more in ((2, [*SIMULATED, "--shards", 2]), (4, [*SIMULATED, *TWO_STAGES, "--shards", 2])):
        with expecting(n, *more) as (root, expected):
            out, err = run(*pipelines(n, *more), cwd=root)
            check(err == "", err)
            check(out.count("best model: ") == 1, "not rank 0 alone prints:", out)
            same(expected, root)


def test_processes_are_threads():
    for n, more in ((2, TWO_STAGES), (4, [*TWO_STAGES, "--replicas", 2]),
                    (4, [*TWO_STAGES, "--shards", 2, "parallel.divide_optimizer=true"])):
        with expecting(n, *more) as (root, expected):
            out, err = run(*pipelines(n, *more), "--timeline", "update.svg", cwd=root,
                           says=["stages (parallel.placement=", "1f1b, 4 micro-batches"])
            check(err == "", err)
            check(out.count("best model: ") == 1, "not rank 0 alone prints:", out)
            same(expected, root)
            check(f"rank {n - 1}" in (root / "update.svg").read_text(), "a rank is not drawn")
            run("eval", root / "run", root / "dev.jsonl", says="WER ")
            newest = sorted((root / "run").glob("checkpoint-*"))[-1]
            check((newest / "model-stage-1-of-2.safetensors").exists(), "not written by its stage")
            run("eval", newest, root / "dev.jsonl", says="WER ")
            run("info", "--model", newest, says="alphabet")


def test_a_stage_or_shard_is_killed():
    for more in (["--stages", 3], ["--shards", 3], ["--shards", 3, "--device", "sim"]):
        with corpus() as root:
            process = start(*pipelines(3, *more, "training.max_steps=100000",
                                       "training.epochs=100000", options=["--grace", 5]), cwd=root)
            wait_for_step(root, 10, process)
            os.kill(ranks_of(process)[1], signal.SIGKILL)
            _, err = ends(process, 10, 128 + signal.SIGKILL)
            lost_rank(err, 1)


def test_killed_shards_start_again():
    check_killed_start_again(["--shards", 4], (0, 2))  # one that writes and has the losses; another


def test_killed_stages_start_again():
    # A first stage, which writes; a last one, which has the losses.
    check_killed_start_again([*TWO_STAGES, "--replicas", 2], (0, 3))


def check_killed_start_again(more, victims):
    with expecting(4, *more) as (root, expected):
        for victim in victims:
            # After the checkpoint of step 10, and before it is over.
            process = signalled_midway(pipelines(4, *more, options=["--max-restarts", 2]), root, 12, 45,
                                       victim, signal.SIGKILL)
            out, err = ends(process, 60, 0)
            one_line(err, f"rank {victim} was killed by SIGKILL",
                     "starting again from the last checkpoint (restart 1 of 2)")
            check("continuing after step" in out, out)
            same(expected, root)
            shutil.rmtree(root / "run")


def test_a_stage_is_killed_while_it_saves():
    more = [*TWO_STAGES, "model.hidden=160", "training.max_steps=12", "training.checkpoint_every_steps=1",
            "training.keep_last=3"]
    with corpus() as root:
        # To be killed before it ends by itself.
        process = start(*pipelines(2, *more, "training.max_steps=100000", "training.epochs=100000"),
                        cwd=root)
        wait_until(lambda: list(root.glob("run/checkpoint-*")), process)
        victim = ranks_of(process)[1]
        sizes = sizes_of_a_stage(root)
        wait_until(lambda: stopped_halfway(root, victim, sizes), process, pause=0)
        whole = sorted((root / "run").glob("checkpoint-*"))
        os.kill(victim, signal.SIGKILL)
        _, err = ends(process, 20, 128 + signal.SIGKILL)
        lost_rank(err, 1)
        check(sorted((root / "run").glob("checkpoint-*")) == whole, "half a checkpoint was committed")
        run("info", "--model", whole[-1], says="alphabet")
        state = json.loads((whole[-1] / "state.json").read_text())
        out, _ = run(*pipelines(2, *more, f"training.max_steps={state['step'] + 2}"), "--resume",
                     cwd=root, says=f"continuing after step {state['step']},")
        check("warning: skipping" not in out, out)
        check(not list(root.glob("run/.writing-*")), "what the killed one left is still there")


def sizes_of_a_stage(root):
    """{file name: bytes} of what stage 1 writes at every step, while a run commits and removes."""
    while True:
        newest = max((root / "run").glob("checkpoint-*"))
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile: there are newer ones
            sizes = {f.name: f.stat().st_size for f in newest.glob("*-stage-1-of-2.safetensors")}
            if sizes:
                return sizes


def stopped_halfway(root, victim, sizes):
    """Whether the victim stands still (it does, if so) with a file of its stage begun and not ended."""
    def begun():
        # A folder that is being written has another name, or is gone, the moment after it was seen.
        with contextlib.suppress(FileNotFoundError):
            for file in root.glob("run/.writing-*/*-stage-1-of-2.safetensors"):
                with contextlib.suppress(FileNotFoundError):
                    if file.stat().st_size < sizes[file.name]:
                        return True
        return False
    if not begun():
        return False
    check(halt(victim), "it has ended")
    if begun():
        return True
    go_on(victim)
    return False


def test_a_stage_has_no_room_for_its_files():
    with corpus() as root:
        run(*words(*STAGES, *TWO_STAGES, "training.max_steps=11"), cwd=root)
        before = {f: f.read_bytes() for f in root.glob("run/checkpoint-*/*")}
        # No file of rank 1 may grow beyond 20 kB: its log can, a stage cannot.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        ranks = {r: ([*STAGES, *TWO_STAGES, "--resume"], {}) for r in (0, 1)}
        a, b = as_ranks(root, ranks, free_port(), preexec={1: limit})
        for process in (a, b):  # each may be on a machine of its own
            one_line(ends(process, 30, 1)[1], "rank 1: ", "-stage-1-of-2.safetensors", "File too large")
        after = {f: f.read_bytes() for f in root.glob("run/checkpoint-*/*")}
        check(after == before, "the checkpoints are not what they were")
        check(not list(root.glob("run/.writing-*")), "half a checkpoint was left")
        run(*words(*STAGES, *TWO_STAGES), "--resume", cwd=root, says="continuing after step 11,")
        newest = sorted(root.glob("run/checkpoint-*"))[-1]
        check(json.loads((newest / "state.json").read_text())["step"] == 45, "it did not go on")


def test_data_that_turn_out_bad():
    with corpus() as root:
        (root / "late.npy").write_bytes(npy([[1.0] * 5 + [float("nan")]] * 60))
        with open(root / "train.jsonl", "a") as manifest:
            manifest.write(json.dumps({"features_filepath": "late.npy", "text": "abcabc"}) + "\n")
        process = start(*pipelines(2, "--stages", 2), cwd=root)
        _, err = ends(process, 20, 1)
        # Both stages read it, so it is of no rank.
        one_line(err, "rondo: ./train.jsonl:201: ./late.npy: frame 0 column 5 is not a finite number")
        state = sorted((root / "run").glob("checkpoint-*"))[-1] / "state.json"
        check(json.loads(state.read_text())["step"] >= 5, "the updates before are lost")


def test_other_splits_go_on():
    with corpus() as root:
        # As many threads as the split needs.
        run(*words(*STAGES, "--stages", 2, "training.max_steps=11"), cwd=root,
            says="1 pipeline of 2 ranks")
        run(*words(*STAGES, "training.max_steps=17"), "--resume", cwd=root,
            says=["continuing after step 11", "parallel.pipeline: 2 -> 1"])
        run(*pipelines(4, "--stages", 2, "--replicas", 2, "training.max_steps=23"), "--resume", cwd=root,
            says="continuing after step 17")


def test_devices_of_one_process():
    with corpus() as root:
        run(*words(*STAGES, *TWO_STAGES, "training.max_steps=3", "--device", "sim"), cwd=root,
            says=["1 pipeline of 2 ranks", "sim (CUDA kernels on the host)"])
        run(*words(*STAGES, "training.max_steps=5", "--device", "cpu"), "--resume", cwd=root,
            says="continuing after step 3,")


def test_what_changes_nothing_is_told():
    with corpus() as root:
        run(*words("training.max_steps=1", "parallel.micro_batches=4"), "--replicas", 2, cwd=root,
            says="warning: parallel.micro_batches=4 changes nothing without stages or shards")


def test_what_cannot_be():
    with corpus() as root:
        def refused(*more, ranks=2, says):
            fails(*words(*STAGES, *more), "--ranks", ranks, cwd=root, errs=says)
            check(not list(root.glob("run/checkpoint-*")), "it has trained")
        refused("--stages", 2, ranks=3, says="3 ranks cannot be shared out to pipelines of 2 ranks")
        refused("--stages", 2, "--replicas", 2, says="--replicas 2 x --stages 2 is 4 ranks, not the 2")
        refused("--stages", 6, "parallel.micro_batches=6", ranks=6,
                says="a pipeline of 6 stages for a model of 5 layers (lstm0.0 lstm")
        refused("--stages", 2, "parallel.placement=4,2", says="places 6 layers, the model has 5")
        refused("--stages", 2, "parallel.placement=4;1", says="expected the number of layers")
        refused("--stages", 2, "parallel.stage_memory_mb=1", "model.hidden=200",
                says="no cut of the model's 5 layers into 2 stages fits 1 MiB per stage")
        refused("--stages", 2, "parallel.chunks=2", says="parallel.chunks = 2 is no more: every rank of a pipeline has one stage")
        refused("--stages", 2, "parallel.schedule=gpipe", says='parallel.schedule = "gpipe" is no more: a pipeline works in the order')
        refused("--shards", 40, ranks=40, says=["parallel.sequence=40: the longest utterance of ", "each shard needs one"])
        refused("--shards", 2, ranks=3, says="parallel.sequence is 2, which does not divide the 3 ranks")
        run("train", "--stages", 0, code=2, errs="--stages")
        refused("--stages", 2, "--timeline", root / "no" / "t.svg", says="no is not a directory")
        # Not one of some thousand threads is started.
        fails(*words(*STAGES), "--shards", 4096, "--replicas", 4096, cwd=root,
              errs="more than 256 ranks as threads of one process")


main(globals())
