"""Ranks as real processes: launched in every way there is; what the run ends with."""

import resource

from ranks_support import *


def test_ranks_are_one():
    with corpus() as root:
        expected = single(root)
        for n in (1, 2, 3):
            out, err = run(*launch(n), cwd=root)
            check(err == "", err)
            check(out.count("best model: ") == 1, "not rank 0 alone prints:", out)
            check_same(expected, root / "run")
            logs = {0: "log.jsonl", **{r: f"log.rank-{r}.jsonl" for r in range(1, n)}}
            steps = [[e["step"] for e in map(json.loads, (root / "run" / name).read_text().splitlines())
                      if e["event"] == "step"] for name in logs.values()]
            check(steps[0] and all(s == steps[0] for s in steps), "not all ranks log the same steps:", steps)
            check(len(list((root / "run").glob("log*.jsonl"))) == n, "logs of other ranks")
            shutil.rmtree(root / "run")


def test_ranks_on_simulated_gpus():
    """As processes and as threads, in every way to work together: the bits are the same."""
    for mode in ([], ["parallel.divide_optimizer=true"],
                 ["parallel.deterministic=world_invariant"]):
        with corpus(train=24) as root:
            settings = ["--device", "sim", "training.epochs=1", "training.max_steps=4", "model.hidden=8",
                        "parallel.deterministic=same_world", *mode]
            run(*words(*settings), "--ranks", 2, cwd=root)
            threads = weights_of(root / "run")
            shutil.rmtree(root / "run")
            run(*launch(2, *settings), cwd=root, says="best model: ")
            check_same(threads, root / "run")
            if mode == ["parallel.deterministic=world_invariant"]:
                shutil.rmtree(root / "run")
                run(*words(*settings), cwd=root)
                check_same(threads, root / "run")


def test_signals_stop_all_after_the_same_update():
    with corpus() as root:
        expected = single(root)
        last = last_step(root / "whole" / "run")
        for n, whom in ((2, None), (3, 1), (1, None)):
            process = signalled_midway(launch(n, "--resume-or-start"), root, 10, last, whom, signal.SIGTERM)
            out, err = ends(process, 20, 128 + signal.SIGTERM)
            step = int(out.split("signal after step ")[1].split(";")[0])
            newest = sorted((root / "run").glob("checkpoint-*"))[-1]
            check(json.loads((newest / "state.json").read_text())["step"] == step, newest, out)
        run(*launch(4, "--resume"), cwd=root, says="continuing after step")
        check_same(expected, root / "run")


def test_a_stranger():
    # Rank 0 waits in vain for so long; longer where a busy machine holds up the other one for that time.
    for seconds in (3, 10, 30):
        with corpus() as root:
            more = [f"parallel.timeout_seconds={seconds}"]
            a, b = as_ranks(root, {0: (more, {}), 1: (more, {"RONDO_TOKEN": "guessed"})}, free_port())
            _, refusal = output_of(b, TIMEOUT)
            _, err = ends(a, seconds + 20, 75)
            check("rondo: " in err and "rank 0" in err, err)
            if b.returncode == 1:
                break
    check(b.returncode == 1, "exit", b.returncode, refusal)
    one_line(refusal, "token")


def listens_at(pid):
    """The addresses at which a process waits for connections."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(fd))
    addresses = []
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        path = pathlib.Path(f"/proc/{pid}/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            column = line.split()
            if column[3] == "0A" and f"socket:[{column[9]}]" in inodes:  # it listens
                words = [column[1][i:i + 8] for i in range(0, len(column[1].split(":")[0]), 8)]
                raw = b"".join(int(w, 16).to_bytes(4, sys.byteorder) for w in words)
                addresses.append(socket.inet_ntop(family, raw))
    return addresses


def test_nobody_listens_beyond_this_machine():
    with corpus() as root:
        process = start(*launch(2, "training.epochs=100000"), cwd=root)
        wait_for_step(root, 5, process)
        check(listens_at(process.pid) == ["127.0.0.1"], "the launcher:", listens_at(process.pid))
        for rank, pid in ranks_of(process).items():
            check(listens_at(pid) == [], "rank", rank, "still listens:", listens_at(pid))
        process.send_signal(signal.SIGTERM)
        ends(process, 20, 128 + signal.SIGTERM)
        # While they wait for a third one: rank 0 at the meeting point, the other nowhere yet.
        three = {"WORLD_SIZE": "3"}
        waiting = as_ranks(root, {0: ([], three), 1: ([], three)}, free_port())
        wait_until(lambda: listens_at(waiting[0].pid), waiting[0])
        check([listens_at(process.pid) for process in waiting] == [["127.0.0.1"], []],
              [listens_at(process.pid) for process in waiting])
        for process in waiting:
            process.kill()
            process.communicate()


def test_few_file_descriptors():
    with corpus() as root:
        limit = lambda soft, hard: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for process in as_ranks(root, {r: ([], {}) for r in range(4)}, free_port(), preexec=dict.fromkeys(range(4), limit(8, 4096))):
            ends(process, TIMEOUT, 0)
        # What the system does not allow is said by the rank that lacks them.
        shutil.rmtree(root / "run")
        few = as_ranks(root, {r: (["parallel.timeout_seconds=5"], {}) for r in range(4)}, free_port(), preexec={1: limit(8, 8)})
        errors = [output_of(process, TIMEOUT)[1] for process in few]
        check("Too many open files" in errors[1] or "Too many open files" in errors[0], errors)
        launcher = subprocess.Popen([RONDO, *map(str, launch(100))], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    preexec_fn=limit(64, 200))
        _, err = ends(launcher, TIMEOUT, 1)
        one_line(err, "-n 100: the launcher needs 232 file descriptors, and the system allows 200")


def test_a_rank_that_never_comes():
    with corpus() as root:
        a, = as_ranks(root, {0: (["parallel.timeout_seconds=2"], {})}, free_port())
        _, err = ends(a, 10, 75)
        one_line(err, "rank 0: rendezvous of 2 ranks", "timed out")


def test_what_stops_all_ranks_is_said_once():
    """In the words of one rank alone, and of no rank: it is as wrong on all of them."""
    with corpus(train=24) as root:
        (root / "broken.safetensors").write_bytes(b"no model")
        lines = [json.loads(line) for line in (root / "train.jsonl").open()]
        write_manifest(root / "gone.jsonl", [*lines, {"features_filepath": "gone.npy", "text": "a"}])
        write_manifest(root / "texts.jsonl", [*lines, {"features_filepath": lines[0]["features_filepath"]}])
        (root / "used").mkdir()
        (root / "used" / "model.safetensors").write_bytes(b"")
        for wrong in ("data.train=none.jsonl", "data.dev=none.jsonl", "data.train=gone.jsonl", "data.test=gone.jsonl",
                      "data.train=texts.jsonl", "optimizer.lrr=1", "training.init_from=none.safetensors",
                      "training.init_from=broken.safetensors", "training.checkpoint_dir=used", "--resume",
                      "training.patience=3 data.dev="):
            more = wrong.split()
            expected = run(*words(*more), cwd=root, code=1, errs=[])
            for command in (launch(3, *more), words("--ranks", 3, *more)):
                found = run(*command, cwd=root, code=1, errs=[])
                check(found[1] == expected[1], wrong, "--- of one rank:", expected, "--- of several:", found)
            for process in as_ranks(root, {r: (more, {"LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "2"}) for r in (0, 1)}, free_port()):
                out, err = output_of(process, TIMEOUT)
                check(process.returncode == 1 and err in (expected[1], ""), wrong, process.returncode, err)


def test_conflicting_launchers():
    with corpus() as root:
        env = dict(os.environ, RANK="0", WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1")
        fails(*words(), cwd=root, env=env, errs="RANK is 0, but OMPI_COMM_WORLD_RANK is 1")
        fails(*words(), cwd=root, env=dict(os.environ, RANK="0", WORLD_SIZE="2"),
              errs="set MASTER_ADDR and MASTER_PORT")


def under_mpirun(root, ranks, *more, options=(), wrapper=(), env=None):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        raise Skip("no mpirun")
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", *options, "-np", ranks, *wrapper, RONDO, *words(*more)]
    return subprocess.Popen(list(map(str, command)), cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def test_mpirun():
    with corpus() as root:
        expected = single(root)
        ends(under_mpirun(root, 2), TIMEOUT, 0)
        check_same(expected, root / "run")


def test_messages_by_mpi():
    with corpus() as root:
        by_mpi = "parallel.transport=mpi"
        _, err = run(*launch(2, by_mpi), cwd=root, code=1)
        if "built without MPI" in err:
            raise Skip("built without MPI")
        check("expected ranks that mpirun or srun has started" in err, err)
        expected = single(root, by_mpi)  # settings are part of the files
        for ranks in (2, 3):
            ends(under_mpirun(root, ranks, by_mpi), TIMEOUT, 0)
            check_same(expected, root / "run")
            shutil.rmtree(root / "run")
        # By itself where the ranks are on several machines, as these believe.
        shutil.rmtree(root / "whole")
        expected = single(root)
        apart = under_mpirun(root, 2, options=["--mca", "pml_base_verbose", 10],
                             wrapper=["env", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "OMPI_COMM_WORLD_LOCAL_RANK=0"],
                             env=dict(os.environ, RONDO_TOKEN="a secret of these tests", MASTER_ADDR="127.0.0.1",
                                      MASTER_PORT=str(free_port())))
        _, err = output_of(apart, TIMEOUT)
        check(apart.returncode == 0 and "selected" in err, "MPI was not started:", err)
        check_same(expected, root / "run")
        shutil.rmtree(root / "run")
        # The first update is enough for a rank that goes wrong: its reason is told, and all end.
        bad = under_mpirun(root, 2, by_mpi, "training.init_from=nothing.safetensors")
        out, err = output_of(bad, TIMEOUT)
        check(bad.returncode != 0 and "nothing.safetensors" in err, err)
        # A rank that is killed: mpirun ends the others, and says which it was.
        lost = under_mpirun(root, 2, by_mpi, "training.epochs=100000")
        wait_for_step(root, 5, lost)
        os.kill(ranks_of(lost)[1], signal.SIGKILL)
        _, err = output_of(lost, 20)
        check(lost.returncode != 0 and "rank 1" in err, err)


def torchrun():
    found = os.environ.get("RONDO_TORCHRUN") or shutil.which("torchrun")
    if not found:
        raise Skip("no torchrun (it is of PyTorch; RONDO_TORCHRUN may name it)")
    return found


def under_torchrun(folder, options, *command, env=None):
    """A run of two ranks in a copy of the corpus, to its end."""
    folder.mkdir()
    for file in folder.parent.glob("*.*"):
        shutil.copy(file, folder)
    command = [torchrun(), *options, "--nproc-per-node", 2, "--no-python", *command, RONDO, *words(), "--resume-or-start"]
    process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    ends(process, TIMEOUT, 0)


def test_torchrun():
    torchrun()
    with corpus() as root:
        expected = single(root)
        for i, options in enumerate((["--standalone"], ["--master-port", free_port()],
                                     ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"])):
            under_torchrun(root / f"machine-{i}", options)
            check_same(expected, root / f"machine-{i}" / "run")


def test_torchrun_starts_ranks_again():
    torchrun()
    with corpus() as root:
        expected = single(root)
        # The first attempt of rank 1 is killed in the middle of the run.
        script = root / "rank.sh"
        script.write_text("""#!/bin/sh
if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  "$@" &
  until [ -e run/log.jsonl ] && [ $(grep -c '"step"' run/log.jsonl) -ge 12 ]; do sleep 0.02; done
  kill -9 $!
  touch killed
  exit 9
fi
exec "$@"
""")
        script.chmod(0o755)
        under_torchrun(root / "machine", ["--standalone", "--max-restarts", 2], script)
        check((root / "machine" / "killed").exists(), "no rank was killed")
        check_same(expected, root / "machine" / "run")


def test_torchrun_takes_in_another_agent_and_goes_on_without_it():
    torchrun()
    with corpus() as root:
        expected = single(root, "training.epochs=400")
        meeting = f"127.0.0.1:{free_port()}"
        # Agents that share their store do not find each other again after a change (PyTorch 2.15).
        env = dict(os.environ, RONDO_TOKEN="0123456789abcdef", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")

        def agent():
            command = [torchrun(), "--nnodes", "1:2", "--nproc-per-node", 2, "--max-restarts", 3, "--rdzv-backend", "c10d",
                       "--rdzv-endpoint", meeting, "--rdzv-conf", "last_call_timeout=1", "--no-python", RONDO,
                       *words("training.epochs=400"), "--resume-or-start"]
            return subprocess.Popen(list(map(str, command)), cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)

        begun_by = lambda ranks: [entry["step"] for entry in log_so_far(root / "run", "resume") if entry["ranks"] == ranks]
        first = agent()
        wait_for_step(root, 20, first)
        second = agent()
        wait_until(lambda: begun_by(4), first)
        wait_for_step(root, begun_by(4)[0] + 20, first)
        second.terminate()
        output_of(second, TIMEOUT)
        ends(first, TIMEOUT, 0)
        check(begun_by(2), "the first agent did not go on by itself")
        check_same(expected, root / "run")


def test_what_a_killed_job_has_left_is_not_believed():
    with corpus() as root:
        expected = single(root)
        env = dict(os.environ, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2", MASTER_PORT="1",
                   MASTER_ADDR="localhost", TORCHELASTIC_RUN_ID=f"test-{os.getpid()}", TORCHELASTIC_RESTART_COUNT="0")
        both = lambda: [subprocess.Popen([RONDO, *map(str, words())], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         env=dict(env, RANK=str(r), LOCAL_RANK=str(r))) for r in (1, 0)]
        ranks = both()
        wait_for_step(root, 5, ranks[1])
        for process in ranks:
            process.kill()
            process.communicate()
        shutil.rmtree(root / "run")
        for process in both():
            ends(process, TIMEOUT, 0)
        check_same(expected, root / "run")


def test_two_launchers_as_two_machines():
    with corpus() as root:
        expected = single(root)
        master = f"127.0.0.1:{free_port()}"
        env = dict(os.environ, RONDO_TOKEN="a secret of these tests")
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
