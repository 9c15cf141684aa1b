"""Two machines, as network namespaces with a cable between them: run, cut off, throttled; and one with a quota.

Needs the right to make namespaces, and `ip` and `tc` (iproute2); skipped otherwise."""

from machines_support import *

def test_two_machines():
    with corpus() as root, Cable() as cable:
        expected = single(root)
        for process in cable.launch(root, 2):
            _, err = ends(process, 90, 0)
            check(err == "", err)
        check_same(expected, root / "machine-0" / "run")
        check(not list((root / "machine-1" / "run").glob("checkpoint-*")), "machine 1 saved as well")


def test_sums_go_round_inside_machines_first():
    """Two machines of two ranks add in another order than four ranks of one machine, always the same one."""
    more = "parallel.deterministic=same_world", "training.epochs=2"
    with corpus() as root, Cable() as cable:
        found = []
        for _ in range(2):
            shutil.rmtree(root / "machine-0" / "run", ignore_errors=True)
            for process in cable.launch(root, 2, *more):
                ends(process, 90, 0)
            found.append(weights_of(root / "machine-0" / "run"))
        check(found[0] == found[1], "two runs differ")
        whole = root / "whole"
        whole.mkdir()
        for file in root.glob("*.*"):
            shutil.copy(file, whole)
        run(*launch(4, *more), cwd=whole)
        check(found[0] != weights_of(whole / "run"), "the sums of one ring")
        steps = [[entry["loss"] for entry in log_of(folder / "run", "step")] for folder in (root / "machine-0", whole)]
        check(len(steps[0]) == len(steps[1]) > 4, steps)
        check(all(abs(a - b) < 1e-3 * abs(a) for a, b in zip(*steps)), steps)


def test_a_machine_whose_name_is_its_loopback():
    """As Debian's installer writes it: 127.0.1.1 for the machine itself, another address for the others."""
    with corpus() as root, Cable() as cable:
        expected = single(root)
        with cable.names_in_hosts("127.0.1.1 first", f"{HOSTS[0]} first"):
            for process in cable.launch(root, 1, host="first"):
                _, err = ends(process, 90, 0)
                check(err == "", err)
            check_same(expected, root / "machine-0" / "run")
            # Without a launcher of ours, and each rank by the variables alone.
            env = dict(os.environ, RONDO_TOKEN="a secret of these tests", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                       MASTER_ADDR="first", MASTER_PORT=str(PORT))
            for i in range(2):
                shutil.rmtree(root / f"machine-{i}" / "run", ignore_errors=True)
            both = [cable.start(i, *words(), cwd=root / f"machine-{i}", env=dict(env, RANK=str(i))) for i in range(2)]
            for process in both:
                ends(process, 90, 0)
            check_same(expected, root / "machine-0" / "run")


def test_a_name_that_is_ipv4_on_one_machine_and_ipv6_on_the_other():
    with corpus() as root, Cable() as cable:
        try:
            cable.lay_second_family()
        except AssertionError as e:
            raise Skip(f"no IPv6: {e}")
        families = f"{HOSTS[0]} first", f"{HOSTS_V6[0]} first"
        by_gloo = ["parallel.transport=gloo", "training.checkpoint_dir=tried", "training.max_steps=1"]
        tried = output_of(start(*map(str, launch(2, *by_gloo)), cwd=root), TIMEOUT)
        transports = ["gloo", "auto"]["built without Gloo" in tried[1]:]
        expected = {}  # the setting is in the model
        for transport in transports:
            expected[transport] = single(root, f"parallel.transport={transport}")
            shutil.rmtree(root / "whole")
        for names in families, families[::-1]:
            for transport in transports:
                with cable.names_in_hosts(*names):
                    for i in range(2):
                        shutil.rmtree(root / f"machine-{i}" / "run", ignore_errors=True)
                    for process in cable.launch(root, 1, f"parallel.transport={transport}", host="first"):
                        _, err = ends(process, 90, 0)
                        check(err == "", err)
                    check_same(expected[transport], root / "machine-0" / "run")
        # And where only one of them leads from here to there.
        tool("ip", "-n", cable.names[1], "address", "del", f"{HOSTS[1]}/24", "dev", "cable")
        with cable.names_in_hosts(*families):
            shutil.rmtree(root / "machine-0" / "run")
            for process in cable.launch(root, 1, "parallel.transport=auto", host="first"):
                _, err = ends(process, 90, 0)
                check(err == "", err)
            check_same(expected["auto"], root / "machine-0" / "run")


def test_the_cable_is_cut():
    with corpus() as root, Cable() as cable:
        both = cable.launch(root, 1, "parallel.timeout_seconds=6", "parallel.deterministic=same_world",
                            "training.epochs=100000", options=["--grace", 2])
        wait_for_step(root / "machine-0", 10, both[0])
        cable.cut()
        for rank, process in enumerate(both):
            _, err = ends(process, 15, 75)
            late_rank(err, rank, 1 - rank)
            check(re.search(r"all_reduce|broadcast|barrier|recv|send", err), "no operation is named:", err)


def ranks_on(cable, folders, port, *more):
    """A rank on each machine, by the variables alone, as another launcher starts them."""
    env = dict(os.environ, RONDO_TOKEN="a secret of these tests", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
               MASTER_ADDR=HOSTS[0], MASTER_PORT=str(port))
    return [cable.start(i, *words(*more), cwd=folder, env=dict(env, RANK=str(i))) for i, folder in enumerate(folders)]


def test_a_machine_falls_silent():
    """Noticed in tens of seconds by default: by launchers, by ranks that train, and by ranks that open their data,
    one of which takes its time (it is stopped, which nobody would mind)."""
    with corpus() as root, Cable() as cable:
        words = "parallel.timeout_seconds=300", "training.epochs=100000"
        launchers = cable.launch(root, 1, *words)
        folders = [root / f"machine-{i}" for i in range(2)]
        wait_for_step(folders[0], 10, launchers[0])
        training = ranks_on(cable, folders, PORT + 1, *words, "training.checkpoint_dir=training")
        wait_until(lambda: last_step(folders[0] / "training") >= 10, training[0])
        opening = ranks_on(cable, folders, PORT + 2, *words, "training.checkpoint_dir=opening")
        # Rank 0 makes the directory once both have agreed on the settings.
        wait_until(lambda: (folders[0] / "opening").exists(), opening[0], pause=0)
        check(halt(opening[1].pid), "a rank has ended")
        try:
            check(last_step(folders[0] / "opening") == 0, "the data are open already")
            cable.cut()
            for rank, process in enumerate(training):
                one_line(ends(process, 50, 75)[1], f"rank {1 - rank} is lost: its machine does not answer")
            one_line(ends(opening[0], 20, 75)[1], "rank 1 is lost: its machine does not answer")
            for node, process in enumerate(launchers):
                one_line(ends(process, 20, 75)[1], f"node {1 - node} does not answer")
        finally:
            opening[1].kill()
            opening[1].communicate()


def test_the_cable_is_mended():
    """Both launchers start again from the last checkpoint: the bits of an undisturbed run."""
    with corpus() as root, Cable() as cable:
        expected = single(root, "parallel.timeout_seconds=3")
        last, runs = last_step(root / "whole" / "run"), []

        def cut_midway():
            both = cable.launch(root, 1, "parallel.timeout_seconds=3",
                                options=["--grace", 1, "--max-restarts", 5])
            wait_for_step(root / "machine-0", 60, both[0])
            runs[:] = both, [ranks_of(process) for process in both]
            rank = runs[1][0].get(0)
            if rank and halt(rank) and last_step(root / "machine-0" / "run") < last - 5:
                cable.cut()
                go_on(rank)
                return True
            if rank:
                go_on(rank)
            for i, process in enumerate(both):
                ends(process, TIMEOUT, 0)
                shutil.rmtree(root / f"machine-{i}" / "run")

        until_in_time(cut_midway)
        both, before = runs
        for process, ranks in zip(both, before):  # until each has given up
            wait_until(lambda: ranks_of(process) != ranks, process)
        cable.mend()
        for process in both:
            _, err = ends(process, 90, 0)
            check("timed out after" in err and "(restart 1 of 5)" in err, err)
        check_same(expected, root / "machine-0" / "run")


def test_communication_hides_on_a_slow_cable():
    """Buckets overlap the backward pass; the log says how much, over a link of 800 Mbit/s. Other programs
    may disturb some steps, and a busy machine all of a run: in a quarter of the steps of one run of three
    at least four fifths have to be hidden. Without overlap it is nothing, in any run."""
    with corpus(train=800) as root, Cable() as cable:
        cable.throttle("800mbit")
        settings = ["parallel.deterministic=same_world", "training.epochs=8", "model.layers=5",
                    "model.hidden=128", "data.batch_frames=100000", "training.log_every_steps=1",
                    "parallel.bucket_kb=256"]
        seen = []
        while not seen or (seen[-1] < 0.8 and len(seen) < 3):
            shutil.rmtree(root / "machine-0" / "run", ignore_errors=True)
            for process in cable.launch(root, 1, *settings):
                ends(process, TIMEOUT, 0)
            steps = [e for e in log_of(root / "machine-0" / "run", "step") if "hidden_communication" in e]
            shares = sorted(e["hidden_communication"] for e in steps)
            check(len(shares) >= 8, "the log says nothing of communication")
            check(all(0 <= s <= 1 for s in shares), shares)
            median = lambda name: sorted(e.get(name, 0) for e in steps)[len(steps) // 2]
            print(f"over 800 Mbit/s, medians of {len(steps)} steps: communication "
                  f"{median('communication_seconds'):.3f} s, computation {median('compute_seconds'):.3f} s, "
                  f"hidden {median('hidden_communication'):.2f}")
            seen.append(shares[3 * len(shares) // 4])
        check(seen[-1] >= 0.8, "too little was hidden:", seen)


def test_a_quota_below_the_root_of_control_groups():
    """As systemd and Slurm set it, and as `rondo info` sees it. The kernel's files about the process are replaced for
    this one alone."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one CPU")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        group = root / "groups/job.slice/quota.scope"
        group.mkdir(parents=True)
        (root / "cgroup").write_text("0::/job.slice/quota.scope\n")
        (root / "mountinfo").write_text(f"31 23 0:28 / {root}/groups rw - cgroup2 cgroup2 rw\n")
        (group / "cpu.max").write_text("max 100000\n")
        lay = "".join(f"mount --bind {root}/{name} /proc/$$/{name} || exit 77; " for name in ("cgroup", "mountinfo"))

        def usable():
            try:
                done = subprocess.run(["unshare", "-m", "sh", "-c", lay + 'exec "$@"', "sh", RONDO, "info"],
                                      capture_output=True, text=True)
            except FileNotFoundError as e:
                raise Skip(str(e))
            if done.returncode != 0:
                raise Skip("no right to mount: " + done.stderr)
            return int(re.search(r"cpu: (\d+) usable", done.stdout)[1])

        check(usable() > 1, "no quota was set")
        (group.parent / "cpu.max").write_text("100000 100000\n")
        check(usable() == 1, usable())


main(globals())
