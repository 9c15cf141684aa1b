"""Kernels that are tried where a device is met for the first time; on the simulator, which RONDO_TRIAL=on makes one."""

from cli_support import *

SETTINGS = ["training.epochs=1", "training.max_steps=2", "model.hidden=8", "training.log_every_steps=1"]


@contextlib.contextmanager
def place(**more):
    """Data, and an environment whose cache is in the same folder."""
    with folder() as root:
        feature_corpus(root, "ctc", train=2, dev=1)
        yield root, {**os.environ, "RONDO_DEVICE": "sim", "RONDO_TRIAL": "on", "XDG_CACHE_HOME": str(root / "cache"), **more}


def train(root, env, run_folder, *more, **expected):
    return run("train", *READY, *SETTINGS, "data=.", f"training.checkpoint_dir={run_folder}", *more, cwd=root, env=env,
               **expected)


def test_the_first_run_tries_kernels_and_the_second_knows():
    with place() as (root, env):
        out, _ = train(root, env, "first", says=["trying kernels for 4 kinds of calls that are new to sim", "tried lstm_forward f32 h8"])
        tried = re.findall(r"(?m)^tried (\S+) .*: (\S+), [0-9.]+ us a time step \((.*)\)$", out)
        check(len(tried) == 4 and {op for op, *_ in tried} == {"lstm_forward", "lstm_backward"}, out)
        for _, variant, others in tried:
            check({"portable", "grid", "cluster_split"} <= {variant, *re.findall(r"(\w+) [0-9.]+", others)}, out)
            check(not re.search("wrong|ended", others), out)
        cache = list((root / "cache" / "rondo").iterdir())
        check(len(cache) == 1 and cache[0].name.startswith("kernels-"), cache)
        train(root, env, "second", not_says=["trying", "tried"])
        check(weights(root / "first") == weights(root / "second"), "the same kernels, other bits")
        # A file that is broken is tried anew.
        whole = json.loads(cache[0].read_text())["rows"]
        cache[0].write_text(cache[0].read_text()[:100])
        train(root, env, "third", says="trying kernels")
        check(len(json.loads(cache[0].read_text())["rows"]) == len(whole), cache[0].read_text())


def weights(run_folder):
    """Those of the best model, without what its file says of the run."""
    content = (run_folder / "model.safetensors").read_bytes()
    return content[8 + struct.unpack("<Q", content[:8])[0]:]


def test_a_run_that_goes_on_keeps_its_kernels_or_says_so():
    with place() as (root, env):
        train(root, env, "run")
        state = json.loads(newest(root / "run", "state.json").read_text())
        check(state["kernels"] and all(key.startswith("sim lstm_") for key in state["kernels"]), state)
        cache, = (root / "cache" / "rondo").iterdir()
        table = json.loads(cache.read_text())
        # On another day portable is a thousand times as slow: what runs stays what it was.
        slower = [{**row, "us": row["us"] * (1000 if row["variant"] == "portable" else 1)} for row in table["rows"]]
        cache.write_text(json.dumps({**table, "rows": slower}))
        more = ["--resume", "training.max_steps=3", "training.epochs=2"]
        train(root, env, "run", *more, not_says="last bits")
        check(json.loads(newest(root / "run", "state.json").read_text())["kernels"] == state["kernels"], "others ran")
        # And where it is wrong there are others.
        wrong = [{**row, "outcome": "wrong"} if row["variant"] == state["kernels"][key_of(row)] else row for row in table["rows"]]
        cache.write_text(json.dumps({**table, "rows": wrong}))
        more = ["--resume", "training.max_steps=4", "training.epochs=2"]
        train(root, env, "run", *more, says=["which is not right here", "results differ in their last bits from here on"])


def key_of(row):
    return f"sim {row['op']}/{row['calls']}"


def newest(run_folder, name):
    return sorted(run_folder.glob("checkpoint-*"))[-1] / name


def test_nothing_is_tried_where_nobody_wants_it():
    with place() as (root, env):
        train(root, {**env, "RONDO_TRIAL": "off"}, "off", not_says=["trying", "tried"])
        train(root, {**env, "RONDO_TRIAL": ""}, "auto", not_says=["trying", "tried"])
        train(root, {**env, "RONDO_DEVICE": "cpu"}, "cpu", not_says=["trying", "tried"])
        check(not (root / "cache").exists(), "a cache was written")
        train(root, {**env, "RONDO_TRIAL": "perhaps"}, "wrong", code=1,
              errs="RONDO_TRIAL is 'perhaps'; expected on, off or auto")


def test_a_cache_that_cannot_be_written_is_told_and_training_goes_on():
    with place(XDG_CACHE_HOME="/proc/nowhere") as (root, env):
        train(root, env, "run", says="what was tried is not kept: ")
        check((root / "run" / "model.safetensors").exists(), "no model")


def test_info_shows_what_was_tried_and_tries_again():
    with place() as (root, env):
        run("info", "--device", env=env, says="trials: none so far")
        train(root, env, "run")
        out, err = run("info", "--device", env=env, says="lstm_backward f32 h8")
        check("trying" not in err, err)
        check(re.search(r"(?m)^  lstm_forward f32 h8 d\d n\d+: \S+, [0-9.]+ us a time step \(", out), out)
        out, err = run("info", "--device", "--try-again", env=env)
        check("trying lstm_forward f32 h8" in err, err)
        # What a model needs, before it is trained here.
        out, err = run("info", "--device", "--model", "run", "--batch", 2, cwd=root,
                       env={**env, "XDG_CACHE_HOME": str(root / "another")})
        check("trying lstm_forward f32 h8" in err and " n2 " in err and " n4 " not in err, err)
        run("info", "--try-again", code=2, errs=["--try-again repeats a trial of --device"])
        run("info", "--device", env={**env, "RONDO_DEVICE": "cpu"}, says="kernels are tried on GPUs")


def test_ranks_run_what_rank_0_tried():
    with place() as (root, env):
        out, err = run("train", *READY, *SETTINGS, "data=.", "training.checkpoint_dir=run", "--ranks", 2, cwd=root, env=env,
                       says="tried lstm_forward")
        check((out + err).count("trying kernels") == 1, out, err)


main(globals())
