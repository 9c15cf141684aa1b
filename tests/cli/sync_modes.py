"""Ranks that do not share every update: a stopped one delays nobody, signals, going on."""

import signal

from cli_support import *
from ranks_support import ends as ends_within, ranks_of, signalled

SETTINGS = ["training.log_every_steps=1", "model.dropout=0.2", "training.threads=1",
            "parallel.sync_every=4", "parallel.timeout_seconds=30", "data.sorta_grad=false",
            "lr.type=constant", "training.checkpoint_dir=run"]


def launch(n, *more):
    return ["launch", "-n", n, "--", "train", *READY, *SETTINGS, "data=.", *more]


@contextlib.contextmanager
def corpus():
    with folder() as root:
        feature_corpus(root, "ctc", train=120)
        yield root


def log_name(rank):
    return "log.jsonl" if rank == 0 else f"log.rank-{rank}.jsonl"


def step_of(root, rank):
    """The newest step that this rank has logged."""
    return last_step(root / "run", log_name(rank))


def ends(process, code):
    return ends_within(process, TIMEOUT, code)


def progress_while_stopped(root, sync, ranks, victim, enough, seconds):
    """Stops a rank for so many seconds at least, and until the others have made `enough` steps; {rank: steps of
    the others meanwhile}."""
    process = start(*launch(ranks, f"parallel.sync={sync}", "training.epochs=100000",
                            "training.validate_every_steps=1000000"), cwd=root)
    others = [r for r in range(ranks) if r != victim]
    wait_until(lambda: all(step_of(root, r) >= 20 for r in range(ranks)), process)
    pid = ranks_of(process)[victim]
    check(halt(pid), "it has ended")
    try:
        before = {r: step_of(root, r) for r in range(ranks)}
        made = lambda: {r: step_of(root, r) - before[r] for r in others}
        time.sleep(seconds)
        wait_until(lambda: all(n >= enough for n in made().values()), process)
        meanwhile, stayed = made(), step_of(root, victim) == before[victim]
    finally:
        go_on(pid)
    check(stayed, "it was not stopped")
    wait_until(lambda: step_of(root, victim) >= before[victim] + 30, process)
    process.send_signal(signal.SIGTERM)
    ends(process, 128 + signal.SIGTERM)
    return meanwhile


def test_a_stopped_rank_delays_nobody():
    for victim in (1, 0):
        with corpus() as root:
            made = progress_while_stopped(root, "async", 3, victim, enough=100, seconds=0.5)
            caught_up = log_so_far(root / "run", "step", log_name(victim))[-1]
            check(caught_up["averaged"] + caught_up["taken_over"] > 0, caught_up)
            check({"staleness", "divergence", "dropped"} <= caught_up.keys(), caught_up)
            print("steps of the others meanwhile:", made)


def test_a_stopped_rank_delays_ranks_that_share_updates():
    # What the test above would see if ranks waited.
    with corpus() as root:
        made = progress_while_stopped(root, "step", 2, 1, enough=0, seconds=3)
        # One that rank 1 had done its part of, and one that was not in the log yet.
        check(made[0] <= 2, made)


def test_a_stopped_async_run_goes_on():
    with corpus() as root:
        process = start(*launch(3, "parallel.sync=async", "training.epochs=100000"), cwd=root)
        # All of them: the checkpoint is of the slowest one.
        wait_until(lambda: all(step_of(root, r) >= 60 for r in range(3)), process)
        os.kill(ranks_of(process)[2], signal.SIGTERM)
        out, _ = ends(process, 128 + signal.SIGTERM)
        check("stopped by a signal after step" in out, out)
        state = lambda: json.loads((sorted((root / "run").glob("checkpoint-*"))[-1] / "state.json").read_text())
        stopped_in = state()["epoch"]
        check(1 <= stopped_in < 100000, stopped_in)
        run(*launch(2, "parallel.sync=async", f"training.epochs={stopped_in + 3}", "--resume"),
            cwd=root, says="continuing after step")
        check(state()["epoch"] == stopped_in + 3, state())


def test_a_signal_during_validation():
    # To all ranks, or to one; and where updates come in the same order each time, the run that goes
    # on ends with the bytes of one that was not stopped.
    for to, *sync in ((None, "parallel.sync=step", "training.ema=0.9"),
                      (1, "parallel.sync=step"),
                      (1, "parallel.divide_optimizer=true", "training.ema=0.9"),
                      (0, "parallel.sequence=2", "model.dropout=0"),
                      (None, "parallel.deterministic=world_invariant"),
                      (0, "parallel.sync=async")):
        with corpus() as root:
            (root / "dev.jsonl").write_text((root / "dev.jsonl").read_text() * 400)
            words = launch(2, *sync, "training.validate_every_steps=4", "training.max_steps=8")
            exact = "parallel.sync=async" not in sync
            if exact:
                run(*words, cwd=root)
                (root / "run").rename(root / "whole")
            stopped = []

            def attempt():
                process = start(*words, cwd=root)
                wait_until(lambda: step_of(root, 0) >= 4, process)
                in_time = lambda: not log_so_far(root / "run", "validation")
                sent = signalled(process, to, signal.SIGTERM, in_time)
                stopped[:] = ends(process, 128 + signal.SIGTERM if sent else 0)
                if sent and in_time():  # or all had done their shares of the validation
                    return True
                shutil.rmtree(root / "run")

            until_in_time(attempt)
            out = stopped[0]
            check("stopped by a signal after step 4" in out or not exact, sync, out)
            newest = sorted((root / "run").glob("checkpoint-*"))[-1]
            check(json.loads((newest / "state.json").read_text())["validation_pending"], sync, newest)
            run(*words, "--resume", cwd=root, says="continuing after step")
            of = lambda d: [(e["step"], e["loss"], e["best"]) for e in log_of(d, "validation")]
            check(len(of(root / "run")) >= 2, sync, of(root / "run"))
            if exact:
                check(of(root / "whole") == of(root / "run"), sync, of(root / "whole"), of(root / "run"))
                expected, found = weights_of(root / "whole"), weights_of(root / "run")
                check(expected == found, "other weights than of an uninterrupted run", sync)


def test_a_killed_rank_ends_an_async_run():
    with corpus() as root:
        process = start(*launch(3, "parallel.sync=async", "training.epochs=100000"), cwd=root)
        wait_until(lambda: step_of(root, 0) >= 20, process)
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        _, err = ends(process, 128 + signal.SIGKILL)
        check("rank 1 was killed by SIGKILL" in err, err)


def test_wrong_settings():
    with corpus() as root:
        for setting, says in (("parallel.sync=sometimes", "parallel.sync"),
                              ("parallel.sync_every=0", "parallel.sync_every"),
                              ("parallel.max_staleness=-1", "parallel.max_staleness"),
                              ("data.sampling=twice", "data.sampling"),
                              ("data.draws_per_epoch=-1", "data.draws_per_epoch"),
                              ("parallel.divide_optimizer=2", "parallel.divide_optimizer")):
            fails("train", *READY, "data=.", setting, cwd=root, errs=says)
        fails("train", *READY, "data=.", "parallel.sync=async", "parallel.deterministic=world_invariant",
              cwd=root, errs="and parallel.sync = \"async\" do not go together")


main(globals())
