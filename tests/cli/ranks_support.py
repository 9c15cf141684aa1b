"""What the tests of ranks in processes of their own share: starting them, watching them, their end."""

import signal
import socket

from cli_support import *

# A few hundred short steps; the same bits from any number of ranks.
SETTINGS = ["training.epochs=10", "training.checkpoint_every_steps=25", "training.log_every_steps=5",
            "model.dropout=0.2", "training.threads=1", "parallel.deterministic=world_invariant",
            "parallel.batch_parts=4", "parallel.timeout_seconds=20",
            "training.checkpoint_dir=run"]


def words(*more):
    return ["train", *READY, *SETTINGS, "data=.", *more]


def launch(n, *more, options=()):
    return ["launch", "-n", n, *options, "--", *words(*more)]


@contextlib.contextmanager
def corpus(train=200):
    with folder() as root:
        feature_corpus(root, "ctc", train=train)
        yield root


BAD_UTTERANCE = "late.npy: frame 0 column 5 is not a finite number"


def add_bad_utterance(root):
    """One that cannot be computed. As the longest it comes last in the first epoch."""
    rows = [[1.0] * 5 + [float("nan")]] * 60
    (root / "late.npy").write_bytes(npy(rows))
    with open(root / "train.jsonl", "a") as manifest:
        manifest.write(json.dumps({"features_filepath": "late.npy", "text": "abcabc"}) + "\n")


def single(root, *more):
    """The weights of an undisturbed run of one rank; settings and paths have to be as in the others,
    for they are part of the files."""
    whole = root / "whole"
    whole.mkdir()
    for file in root.glob("*.*"):
        shutil.copy(file, whole)
    run(*words(*more), cwd=whole)
    return weights_of(whole / "run")


def check_same(expected, directory):
    for name, data in weights_of(directory).items():
        check(expected[name] == data, f"{name}: other bytes than of one undisturbed rank")


def ranks_of(launcher):
    """{rank: process id} of what a launcher started."""
    pids = {}
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            # Others may have names that are no text.
            parent = (directory / "stat").read_bytes().rsplit(b")", 1)[1].split()[1]
            if int(parent) == launcher.pid:
                variables = (directory / "environ").read_bytes().split(b"\0")
                names = (b"RANK=", b"OMPI_COMM_WORLD_RANK=")  # rondo launch's, or mpirun's
                rank = next(v for v in variables if v.startswith(names)).split(b"=")[1]
                pids[int(rank)] = int(directory.name)
    return pids


def wait_for_step(root, step, process):
    """Until rank 0 has logged this step, or a later one."""
    wait_until(lambda: last_step(root / "run") >= step, process, pause=0.005)


def signalled(process, whom, number, in_time):
    """Sends a signal to a rank, or to the launcher (None), in a moment of which in_time() is true: rank 0
    stands still until all have it who are to have it. False: it was too late, and nothing was sent."""
    ranks = ranks_of(process)
    if 0 not in ranks or (whom or 0) not in ranks or not halt(ranks[0]):
        return False
    try:
        if not in_time():
            return False
        os.kill(process.pid if whom is None else ranks[whom], number)
        if whom is None:  # it is passed on
            wait_until(lambda: is_pending(ranks[0], number), process, pause=0.001)
        elif whom != 0 and number != signal.SIGKILL:
            wait_until(lambda: not is_pending(ranks[whom], number), process, pause=0.001)
        return True
    finally:
        go_on(ranks[0])


def signalled_midway(words, root, steps, last, whom, number):
    """A launcher one of whose ranks, or itself (None), was sent a signal so many steps after those logged
    before, and before the last few of the run."""
    launchers = []

    def attempt():
        before = last_step(root / "run")
        process = start(*words, cwd=root)
        wait_for_step(root, before + steps, process)
        launchers[:] = [process]
        if signalled(process, whom, number, lambda: last_step(root / "run") < last - 5):
            return True
        ends(process, TIMEOUT, 0)
        shutil.rmtree(root / "run")

    until_in_time(attempt)
    return launchers[0]


def ends(process, seconds, code):
    """Its output, once it has ended within so many seconds, of which those in which this machine held
    up the test itself do not count."""
    try:
        out, err = output_of(process, seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"did not end within {seconds} s")
    check(process.returncode == code, "exit", process.returncode, "expected", code, out, err)
    return out, err


def one_line(err, *texts):
    lines = err.splitlines()
    check(len(lines) == 1 and lines[0].startswith("rondo: "), "expected one line:", err)
    for text in texts:
        check(text in err, f"'{text}' is not in:", err)


def late_rank(err, witness, rank):
    """In one line: what `witness` waited for from, or sent to, the rank that does not answer."""
    one_line(err, f"rank {witness}: ", "timed out after ")
    check(re.search(rf"\b(from|to) rank {rank}\b", err), "no operation with that rank is named:", err)


def lost_rank(err, rank):
    """One line, of a rank that was sending to or receiving from the one that is gone."""
    one_line(err, f"rank {rank} was killed by SIGKILL; ", f"rank {rank} is lost")
    check(re.search(rf"\b(from|to) rank {rank}\b", err), "no operation with that rank is named:", err)


def preloading(source, file):
    """The environment of processes that load a library of this C first, compiled as `file`."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise Skip("no C compiler")
    file.with_suffix(".c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", file.with_suffix(".c"), "-o", file, "-ldl"], check=True)
    options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return dict(os.environ, LD_PRELOAD=str(file), ASAN_OPTIONS=options)


reserved = []


def free_port():
    """One that nobody else is given while this test runs, and at which it may listen: bound, as the system
    lets two sockets of which at most one listens."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    reserved.append(s)
    return s.getsockname()[1]


def as_ranks(root, ranks, port, token="a secret of these tests", preexec={}, programs={}):
    """Processes as another launcher would start them: {rank: (more words, more variables)}; by rank,
    what to call in a new process, and another program than RONDO."""
    processes = []
    for rank, (more, variables) in ranks.items():
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(max(len(ranks), 2)),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RONDO_TOKEN=token)
        env.update(variables)
        processes.append(start(*words(*more), cwd=root, env=env, preexec_fn=preexec.get(rank),
                               executable=programs.get(rank)))
    return processes
