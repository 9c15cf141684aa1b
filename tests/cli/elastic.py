"""rondo launch --elastic: who is lost, stopped, told to stop or cannot go on, and what the others say and do."""

from ranks_support import *

LONG = "training.epochs=30"  # no run is over before the fault has come


def elastic(n, *more, restarts=0, options=()):
    return launch(n, *more, options=["--elastic", "--max-restarts", restarts, "--grace", 2, *options])


def kill(process, *whom):
    ranks = ranks_of(process)
    for rank in whom:
        os.kill(ranks[rank], signal.SIGKILL)


def regroups(root):
    """[(ranks, step)] as rank 0 logged them."""
    return [(e["ranks"], e["step"]) for e in log_of(root / "run", "regroup")]


def check_from_memory(root):
    check(len(log_of(root / "run", "start")) == 1 and not log_of(root / "run", "resume"), "began again from disk")


def test_refusals():
    def refused(*words, errs, code=1):
        with corpus(train=20) as root:
            run(*words, code=code, errs=[errs], cwd=root)
            check(not list(root.glob("run/checkpoint-*")), "it was trained")
    here = ["--nodes", 2, "--master", "127.0.0.1:29400"]
    refused(*elastic(2, options=here), errs="--elastic is for the ranks of one machine", code=2)
    refused(*elastic(1), errs="--elastic takes at least two ranks", code=2)
    refused("launch", "-n", 2, "--elastic", "--", "bench", "links", errs="--elastic goes with -- train", code=2)
    refused(*elastic(2, "parallel.deterministic=same_world"), errs="takes parallel.deterministic=world_invariant")
    refused(*elastic(2, "parallel.transport=gloo"), errs='takes parallel.transport = "auto" or "tcp"')
    refused(*elastic(2, "--device", "sim"), errs="--elastic is for ranks on CPUs")
    refused(*elastic(2, "parallel.sync=async"), errs="do not go together")
    refused(*elastic(2, "parallel.divide_optimizer=true"), errs="do not go together")
    refused(*elastic(2, "--shards", 2), errs="do not go together")
    refused(*elastic(2, "--stages", 2), errs="do not go together")
    refused(*elastic(5), errs="parallel.batch_parts is 4, fewer than the 5 ranks")


def test_the_others_go_on():
    """Without another in its place, down to a single rank."""
    with corpus() as root:
        expected = single(root, LONG)
        process = start(*elastic(3, LONG), cwd=root)
        wait_for_step(root, 30, process)
        kill(process, 0)
        wait_until(lambda: regroups(root), process)
        kill(process, 2)
        out, err = ends(process, 60, 0)
        first, second = err.splitlines()
        check(first == "rondo: rank 0 was killed by SIGKILL; 2 ranks go on", first)
        check(second.endswith("was killed by SIGKILL; 1 rank goes on"), second)
        check([ranks for ranks, _ in regroups(root)] == [2, 1], regroups(root))
        check(f"going on after step {regroups(root)[0][1]} with 2 ranks instead of 3" in out, out)
        check("trained " in out and "best model: " in out, out)
        check_from_memory(root)
        check_same(expected, root / "run")


def test_another_takes_its_place():
    with corpus() as root:
        expected = single(root, LONG)
        process = start(*elastic(2, LONG, restarts=3), cwd=root)
        # The last one is the place that was lost first: what came in its place is lost, too.
        for i, victim in enumerate((1, 0, 1)):
            wait_for_step(root, last_step(root / "run") + 30, process)
            kill(process, victim)
            # Where the one that is left was held up, it meets the new one as soon as it misses the other.
            wait_until(lambda: [ranks for ranks, _ in regroups(root)].count(2) == i + 1, process)
        out, err = ends(process, 60, 0)
        check(len(err.splitlines()) == 3, err)
        for i, line in enumerate(err.splitlines()):
            check(f" was killed by SIGKILL; 1 rank goes on, and another is started (restart {i + 1} of 3)" in line, line)
        ranks = [ranks for ranks, _ in regroups(root)]
        check(ranks.count(2) == 3 and ranks[-1] == 2 and (1, 1) not in zip(ranks, ranks[1:]), ranks)
        check_from_memory(root)
        check_same(expected, root / "run")


def test_all_are_lost():
    with corpus() as root:
        expected = single(root, LONG)
        for restarts in (3, 0):
            process = start(*elastic(3, LONG, restarts=restarts), cwd=root)
            wait_for_step(root, 60, process)
            for pid in ranks_of(process).values():
                os.kill(pid, signal.SIGSTOP)
            kill(process, 0, 1, 2)
            if restarts == 0:
                _, err = ends(process, 20, 128 + signal.SIGKILL)
                check("was killed by SIGKILL" in err.splitlines()[-1], err)
                return
            out, err = ends(process, 60, 0)
            check("no rank is left that holds the run: starting again from the last checkpoint, with 3 ranks" in err, err)
            check("continuing after step" in out, out)
            check_same(expected, root / "run")
            shutil.rmtree(root / "run")


def test_a_rank_is_stopped():
    """The others wait for it as long as is set, and it for nobody any more."""
    with corpus() as root:
        settings = [LONG, "parallel.timeout_seconds=2"]
        expected = single(root, *settings)
        for victim in (1, 0):
            process = start(*elastic(3, *settings, restarts=3), cwd=root)
            wait_for_step(root, 30, process)
            os.kill(ranks_of(process)[victim], signal.SIGSTOP)
            _, err = ends(process, 60, 0)
            check(f"rank {victim} is stopped (SIGSTOP)" in err, err)
            check_from_memory(root)
            check_same(expected, root / "run")
            shutil.rmtree(root / "run")


def test_told_to_stop():
    """With one rank lost already; another number of ranks goes on from what was saved."""
    with corpus() as root:
        expected = single(root, LONG)
        process = start(*elastic(3, LONG), cwd=root)
        wait_for_step(root, 30, process)
        kill(process, 1)
        wait_until(lambda: regroups(root), process)
        process.send_signal(signal.SIGTERM)
        out, _ = ends(process, 20, 128 + signal.SIGTERM)
        check("stopped by a signal after step" in out, out)
        out, err = ends(start(*elastic(2, LONG, "--resume"), cwd=root), 60, 0)
        check("continuing after step" in out and err == "", out, err)
        check_same(expected, root / "run")


def test_a_rank_cannot_go_on():
    with corpus() as root:
        add_bad_utterance(root)
        _, err = ends(start(*elastic(3, restarts=5), cwd=root), 20, 1)
        one_line(err, "rank ", BAD_UTTERANCE)


def test_the_one_that_joins_cannot():
    """It has no data any more; those that have them open do without it."""
    with corpus() as root:
        expected = single(root, LONG)
        process = start(*elastic(3, LONG, restarts=5), cwd=root)
        wait_for_step(root, 30, process)
        (root / "train.jsonl").unlink()
        kill(process, 1)
        _, err = ends(process, 60, 0)
        check("a process that was to be a rank cannot: " in err and "train.jsonl" in err, err)
        check("; 2 ranks go on without it" in err and len(err.splitlines()) == 2, err)
        check_from_memory(root)
        check_same(expected, root / "run")


def test_the_launcher_is_killed():
    """Its ranks save, and end."""
    with corpus() as root:
        process = start(*elastic(2, LONG), cwd=root)
        wait_for_step(root, 30, process)
        pids = list(ranks_of(process).values())
        process.kill()
        process.wait()
        patience = Patience(20)
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            check(not patience.is_over(), "ranks are left")
            time.sleep(0.01)
        process.communicate()
        check(sorted((root / "run").glob("checkpoint-*")), "nothing was saved")


main(globals())
