"""Ranks as real processes: launched, killed, stopped, misled; what the run ends with."""

import resource
import signal
import socket

from cli_support import *

# A few hundred short steps; the same bits from any number of ranks.
SETTINGS = ["training.epochs=10", "training.checkpoint_every_steps=25", "training.log_every_steps=5",
            "model.dropout=0.2", "training.threads=1", "parallel.deterministic=world_invariant",
            "parallel.virtual_shards=4", "parallel.timeout_seconds=20",
            "training.checkpoint_dir=run"]


def words(*more):
    return ["train", *READY, *SETTINGS, "data=.", *more]


def launch(n, *more, options=()):
    return ["launch", "-n", n, *options, "--", *words(*more)]


@contextlib.contextmanager
def corpus():
    with folder() as root:
        feature_corpus(root, "ctc", train=200)
        yield root


def single(root):
    """The weights of an undisturbed run of one rank (settings and paths as in the others)."""
    whole = root / "whole"
    whole.mkdir()
    for file in root.glob("*.*"):
        shutil.copy(file, whole)
    run(*words(), cwd=whole)
    return weights_of(whole / "run")


def check_same(expected, directory):
    for name, data in weights_of(directory).items():
        check(expected[name] == data, f"{name}: other bytes than of one undisturbed rank")


def ranks_of(launcher):
    """{rank: process id} of what a launcher started."""
    pids = {}
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            parent = (directory / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == launcher.pid:
                variables = (directory / "environ").read_bytes().split(b"\0")
                rank = next(v for v in variables if v.startswith(b"RANK=")).split(b"=")[1]
                pids[int(rank)] = int(directory.name)
    return pids


def wait_for_step(root, step, process):
    end = time.monotonic() + TIMEOUT
    while True:
        with contextlib.suppress(OSError, ValueError):
            if max(e["step"] for e in log_of(root / "run", "step")) >= step:
                return
        check(process.poll() is None, "ended early with exit code", process.poll())
        check(time.monotonic() < end, "nothing happens")
        time.sleep(0.005)


def ends(process, seconds, code):
    """Its output, once it has ended within so many seconds."""
    began = time.monotonic()
    try:
        out, err = (b.decode() for b in process.communicate(timeout=TIMEOUT))
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"did not end: {process.communicate()}")
    took = time.monotonic() - began
    check(process.returncode == code, "exit", process.returncode, "expected", code, out, err)
    check(took < seconds, f"took {took:.1f} s, expected {seconds}:", err)
    return out, err


def one_line(err, *texts):
    lines = err.splitlines()
    check(len(lines) == 1 and lines[0].startswith("rondo: "), "expected one line:", err)
    for text in texts:
        check(text in err, f"'{text}' is not in:", err)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_ranks_are_one():
    with corpus() as root:
        expected = single(root)
        for n in (1, 2, 3):
            out, err = run(*launch(n), cwd=root)
            check(err == "", err)
            check(out.count("best model: ") == 1, "not rank 0 alone prints:", out)
            check_same(expected, root / "run")
            check((root / "run" / f"log.rank-{n - 1}.jsonl").exists() or n == 1, "no log of a rank")
            shutil.rmtree(root / "run")


def test_a_rank_is_killed():
    with corpus() as root:
        process = start(*launch(3, options=["--grace", 5]), cwd=root)
        wait_for_step(root, 10, process)
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        _, err = ends(process, 10, 128 + signal.SIGKILL)
        one_line(err, "rank 1 was killed by SIGKILL; ", "from rank 1", "rank 1 is lost")


def test_killed_ranks_start_again():
    with corpus() as root:
        expected = single(root)
        for victim in (0, 1):
            process = start(*launch(2, options=["--max-restarts", 2]), cwd=root)
            wait_for_step(root, 60, process)
            os.kill(ranks_of(process)[victim], signal.SIGKILL)
            out, err = ends(process, 60, 0)
            one_line(err, f"rank {victim} was killed by SIGKILL",
                     "starting again from the last checkpoint (restart 1 of 2)")
            check("continuing after step" in out, out)
            check_same(expected, root / "run")
            shutil.rmtree(root / "run")


def test_a_rank_is_stopped():
    with corpus() as root:
        for victim in (1, 0):
            process = start(*launch(2, "parallel.timeout_seconds=2", options=["--grace", 1]), cwd=root)
            wait_for_step(root, 10, process)
            os.kill(ranks_of(process)[victim], signal.SIGSTOP)
            _, err = ends(process, 10, 75)
            one_line(err, f"rank {victim} is stopped (SIGSTOP); ",
                     f"rank {1 - victim}: ", f"from rank {victim}", "timed out after ")
            shutil.rmtree(root / "run")


def test_a_rank_cannot_go_on():
    with corpus() as root:
        # The longest utterance comes last in the first epoch.
        rows = [[1.0] * 5 + [float("nan")]] * 60
        (root / "late.npy").write_bytes(npy(rows))
        with open(root / "train.jsonl", "a") as manifest:
            manifest.write(json.dumps({"features_filepath": "late.npy", "text": "abcabc"}) + "\n")
        process = start(*launch(3), cwd=root)
        _, err = ends(process, 20, 1)
        one_line(err, "rank ", "late.npy: frame 0 column 5 is not a finite number")
        state = sorted((root / "run").glob("checkpoint-*"))[-1] / "state.json"
        check(json.loads(state.read_text())["step"] >= 5, "the updates before are lost")


def test_disk_full():
    with corpus() as root:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        process = start(*launch(2), cwd=root, preexec_fn=limit)
        _, err = ends(process, 20, 1)
        one_line(err, "rank 0: ", "File too large")


def test_signals_stop_all_after_the_same_update():
    with corpus() as root:
        expected = single(root)
        for n, whom in ((2, "launcher"), (3, 1), (1, "launcher")):
            done = sorted((root / "run").glob("checkpoint-*")) if (root / "run").exists() else []
            before = json.loads((done[-1] / "state.json").read_text())["step"] if done else 0
            process = start(*launch(n, "--resume"), cwd=root)
            wait_for_step(root, before + 10, process)
            pid = process.pid if whom == "launcher" else ranks_of(process)[whom]
            os.kill(pid, signal.SIGTERM)
            out, err = ends(process, 20, 128 + signal.SIGTERM)
            step = int(out.split("signal after step ")[1].split(";")[0])
            newest = sorted((root / "run").glob("checkpoint-*"))[-1]
            check(json.loads((newest / "state.json").read_text())["step"] == step, newest, out)
        run(*launch(4, "--resume"), cwd=root, says="continuing after step")
        check_same(expected, root / "run")


def as_ranks(root, ranks, port, token="secret"):
    """Processes as another launcher would start them: {rank: (more words, more variables)}."""
    processes = []
    for rank, (more, variables) in ranks.items():
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(max(len(ranks), 2)),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RONDO_TOKEN=token)
        env.update(variables)
        processes.append(start(*words(*more), cwd=root, env=env))
    return processes


def test_ranks_with_other_settings():
    with corpus() as root:
        a, b = as_ranks(root, {0: ([], {}), 1: (["optimizer.lr=0.5"], {})}, free_port())
        one_line(ends(b, 20, 1)[1], "rank 1: its settings are not those of rank 0: optimizer.lr: ")
        check(ends(a, 20, 1)[1] == "", "rank 0 has nothing of its own to say")
        check(not (root / "run").exists(), "a run that did not start left something")


def test_a_stranger():
    with corpus() as root:
        more = ["parallel.timeout_seconds=3"]
        a, b = as_ranks(root, {0: (more, {}), 1: (more, {"RONDO_TOKEN": "guessed"})}, free_port())
        one_line(ends(b, 20, 1)[1], "token")
        _, err = ends(a, 20, 75)
        check("rondo: " in err and "rank 0" in err, err)


def test_a_rank_that_never_comes():
    with corpus() as root:
        a, = as_ranks(root, {0: (["parallel.timeout_seconds=2"], {})}, free_port())
        _, err = ends(a, 10, 75)
        one_line(err, "rank 0: rendezvous of 2 ranks", "timed out")


def test_conflicting_launchers():
    with corpus() as root:
        env = dict(os.environ, RANK="0", WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1")
        fails(*words(), cwd=root, env=env, errs="RANK is 0, but OMPI_COMM_WORLD_RANK is 1")
        fails(*words(), cwd=root, env=dict(os.environ, RANK="0", WORLD_SIZE="2"),
              errs="set MASTER_ADDR and MASTER_PORT")


def test_mpirun():
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise Skip("no mpirun")
    with corpus() as root:
        expected = single(root)
        command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", RONDO, *words()]
        process = subprocess.run(list(map(str, command)), cwd=root, capture_output=True, timeout=TIMEOUT)
        check(process.returncode == 0, process.stdout.decode(), process.stderr.decode())
        check_same(expected, root / "run")


def test_two_launchers_as_two_machines():
    with corpus() as root:
        expected = single(root)
        master = f"127.0.0.1:{free_port()}"
        env = dict(os.environ, RONDO_TOKEN="secret")
        both = [start(*launch(2, options=["--nodes", 2, "--node-rank", i, "--master", master]),
                      cwd=root, env=env) for i in range(2)]
        for process in both:
            ends(process, 60, 0)
        check_same(expected, root / "run")


def test_wrong_usage():
    for bad in (["launch", "-n", "2"], ["launch", "-n", "0", "--", "train"],
                ["launch", "--", "info"], ["launch", "--nodes", "2", "--", "train"]):
        run(*bad, code=2, errs="rondo")


main(globals())
