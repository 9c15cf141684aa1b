"""Two machines, as network namespaces with a cable between them: made, started, cut off, lost.

Needs the right to make namespaces, and `ip` and `tc` (iproute2); raises Skip otherwise."""

from ranks_support import *

HOSTS = ("10.213.77.1", "10.213.77.2")
HOSTS_V6 = ("fd42:213:77::1", "fd42:213:77::2")
PORT = 29400


def tool(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True)
    check(done.returncode == 0, *command, done.stderr.decode())


class Cable:
    """Two namespaces with a veth pair between them."""

    def __init__(self):
        self.names = [f"rondo-{os.getpid()}-{i}" for i in range(2)]

    def __enter__(self):
        if not shutil.which("ip") or not shutil.which("tc"):
            raise Skip("no ip and tc (iproute2)")
        made = subprocess.run(["ip", "netns", "add", self.names[0]], capture_output=True)
        if made.returncode != 0:
            raise Skip("no right to make network namespaces: " + made.stderr.decode().strip())
        try:
            tool("ip", "netns", "add", self.names[1])
            self.plug_in()
        except AssertionError as e:
            self.__exit__()
            raise Skip(f"no veth pair: {e}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def plug_in(self):
        tool("ip", "-n", self.names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable",
             "netns", self.names[1])
        for name, host in zip(self.names, HOSTS):
            tool("ip", "-n", name, "address", "add", f"{host}/24", "dev", "cable")
            tool("ip", "-n", name, "link", "set", "lo", "up")
            tool("ip", "-n", name, "link", "set", "cable", "up")

    def unplug(self):
        tool("ip", "-n", self.names[0], "link", "delete", "cable")

    def lay_anew(self, machine):
        """After unplug(): a machine that knows of no connection."""
        tool("ip", "netns", "delete", self.names[machine])
        tool("ip", "netns", "add", self.names[machine])
        self.plug_in()

    def kill_all(self, machine):
        """At once, but for processes that others start meanwhile: until none is left."""
        while pids := subprocess.run(["ip", "netns", "pids", self.names[machine]], capture_output=True,
                                     check=True).stdout.split():
            for pid in map(int, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def cut(self):
        tool("ip", "-n", self.names[1], "link", "set", "cable", "down")

    def mend(self):
        tool("ip", "-n", self.names[1], "link", "set", "cable", "up")

    def throttle(self, rate):
        for name in self.names:
            tool("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "cable", "root", "tbf",
                 "rate", rate, "burst", "32kb", "latency", "200ms")

    def start(self, machine, *command, **popen):
        return subprocess.Popen(["ip", "netns", "exec", self.names[machine], RONDO, *map(str, command)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)

    def lay_second_family(self):
        """IPv6 beside IPv4; the addresses."""
        for name, host in zip(self.names, HOSTS_V6):
            tool("ip", "-n", name, "address", "add", f"{host}/64", "dev", "cable", "nodad")

    @contextlib.contextmanager
    def names_in_hosts(self, *lines):
        """/etc/hosts of each machine, as `ip netns exec` lays it over the common one."""
        folders = [pathlib.Path("/etc/netns") / name for name in self.names]
        try:
            for folder, text in zip(folders, lines):
                folder.mkdir(parents=True)
                (folder / "hosts").write_text("127.0.0.1 localhost\n" + text + "\n")
            yield
        finally:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    def launch(self, root, ranks, *more, options=(), host=HOSTS[0]):
        """What docs/distributed.md says, on each machine, in a folder of its own."""
        return [self.launch_one(i, root, ranks, *more, options=options, host=host) for i in range(2)]

    def launch_one(self, machine, root, ranks, *more, options=(), host=HOSTS[0]):
        folder = root / f"machine-{machine}"
        if not folder.exists():
            folder.mkdir()
            for file in root.glob("*.*"):
                shutil.copy(file, folder)
        command = launch(ranks, *more, options=[
            "--nodes", 2, "--node-rank", machine, "--master", f"{host}:{PORT}", *options])
        return self.start(machine, *command, cwd=folder, env=dict(os.environ, RONDO_TOKEN="a secret of these tests"))
