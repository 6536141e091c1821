#!/usr/bin/env python3
"""Jobs of Debian's Slurm get a Weft of their own, and leave nothing behind (contrib/slurm).

usage: scripts/slurm.py [--release] [--keep] [TEST...]     as root; scripts/deps.sh slurm installs what is needed

Runs munged, slurmctld and two slurmd, each slurmd on a host of its own: network, host name, processes, mounts and
/run. Everything is below one temporary directory (TMPDIR) and in namespaces that end with this script. --keep keeps
the directory with the logs.
"""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 90
# Longer than a disk could be read in TIMEOUT_S. The file is sparse.
HUGE_BYTES = 1 << 40
USERS = {"ada": 5001, "bob": 5002}
NODES = ("n1", "n2")
SCRATCH = "/scratch"

SLURM_CONF = """
ClusterName=weft
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={at}/munge/socket
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/%n/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/%n/slurmd.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/%n/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=2
UnkillableStepTimeout=20
PrologFlags=Alloc
PrologEpilogTimeout=120
Prolog={lib}/prolog
Epilog={lib}/epilog
NodeName=n[1-2] CPUs=8 Feature=weft,other
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=10 State=UP
"""

# Mounts a FUSE file system, takes every request, answers the first one (FUSE_INIT) only, and ends with its input.
# Arguments: mount point, user. Prints a line when it is mounted, and one for each request that waits.
HUNG_MOUNT = """
import ctypes, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id={sys.argv[2]},group_id={sys.argv[2]},allow_other"
if libc.mount(b"hung", sys.argv[1].encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
_, _, unique = struct.unpack_from("IIQ", os.read(fuse, 1 << 20))
init = struct.pack("IIIIHHI40x", 7, 31, 0, 0, 0, 0, 4096)
os.write(fuse, struct.pack("IiQ", 16 + len(init), 0, unique) + init)
print("mounted", flush=True)
while sys.stdin not in select.select([fuse, sys.stdin], [], [])[0]:
    os.read(fuse, 1 << 20)
    print("waits", flush=True)
"""


def run(*command, check=True, **options):
    options.setdefault("timeout", TIMEOUT_S)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def until(what, check, timeout_s=TIMEOUT_S):
    """Waits until `check` returns something true, and returns it."""
    end = time.monotonic() + timeout_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.1)


def parse_arguments():
    words = sys.argv[1:]
    options = {word for word in words if word.startswith("-")}
    if options - {"--release", "--keep"}:
        sys.exit(__doc__)
    return options, [word for word in words if not word.startswith("-")]


class Host:
    """A host: namespaces for network, host name, processes and mounts, with its own /etc, /run, /var and scratch."""

    def __init__(self, at, name, number):
        self.at, self.name, self.number = at, name, number
        self.dir = at / name
        self.net = f"weft-slurm-{os.getpid()}-{name}"
        self.init = None

    def start(self):
        """Starts the host, or starts it again after `crash`: then with the same disks and an empty /run."""
        for part in ("spool", "scratch", "etc", "etc.work", "var", "var.work"):
            (self.dir / part).mkdir(parents=True, exist_ok=True)
        script = f"""
            set -e
            hostname {self.name}
            mount --make-rprivate /
            mount -t overlay overlay -o lowerdir=/etc,upperdir={self.dir}/etc,workdir={self.dir}/etc.work /etc
            mount -t overlay overlay -o lowerdir=/var,upperdir={self.dir}/var,workdir={self.dir}/var.work /var
            mount -t tmpfs -o mode=755 tmpfs /run
            mount -t tmpfs -o mode=755 tmpfs /mnt
            mkdir /mnt/scratch
            mount --bind {self.dir}/scratch /mnt/scratch
            cp {self.at}/hosts /etc/hosts
            ip link set lo up
            echo ready
            # Reaps orphans, as the first process of a host does.
            trap 'exit 0' TERM
            sleep infinity & wait
        """
        self.init = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.net}", "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", "bash", "-c", script],
            stdout=subprocess.PIPE, stderr=(self.dir / "host.err").open("a"), text=True,
        )
        if self.init.stdout.readline() != "ready\n":
            raise AssertionError(f"{self.name} does not start")
        children = pathlib.Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        self.pid = int(children[0])

    def crash(self):
        """Ends all processes of the host at once."""
        os.kill(self.pid, signal.SIGKILL)
        self.init.wait(TIMEOUT_S)

    def command(self, *words, user=None):
        enter = ["nsenter", "-t", self.pid, "-a", f"--wdns={self.at}/home/{user}" if user else "--wdns=/"]
        if user:
            rights = [f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"]
            enter += ["setpriv", *rights, "env", "-i", f"HOME={self.at}/home/{user}", f"USER={user}", "LC_ALL=C",
                      f"PATH={self.at}/bin:/usr/bin:/bin"]
        return [str(word) for word in (*enter, *words)]

    def run(self, *words, user=None, **options):
        return run(*self.command(*words, user=user), **options)

    def servers(self):
        return self.run("pgrep", "-f", "weft serve", check=False).split()

    @contextlib.contextmanager
    def holds(self, line, *words, user=None):
        """Runs a program, which ends with its input, on this host. Begins when it has printed the line."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(self.command(*words, user=user), **options) as program:
            found = program.stdout.readline()
            assert found == f"{line}\n", found + program.stdout.read()
            yield program

    def mounts(self):
        """Returns where something of a job is mounted."""
        lines = pathlib.Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if "/weft-job-" in line.split()[4] or "/.weft-ended-" in line.split()[4]]

    def remains(self):
        """Returns what jobs have left on this host."""
        found = [f"process {pid}" for pid in self.servers()]
        jobs = pathlib.Path(f"/proc/{self.pid}/root/run/weft-jobs")
        found += [str(path) for path in jobs.glob("[!.]*")]
        found += [str(path) for path in (self.dir / "scratch").iterdir()]
        found += [f"mount {at}" for at in self.mounts()]
        return [f"{self.name}: {what}" for what in found]


class Site:
    """A controller and two nodes, with Slurm, Weft and users."""

    def __init__(self, at, build):
        self.at = at
        self.lib = at / "lib"
        self.children = []
        self.ctl = Host(at, "ctl", 1)
        self.nodes = [Host(at, name, number + 2) for number, name in enumerate(NODES)]
        self.hosts = [self.ctl, *self.nodes]
        self.build = build

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        at = self.at
        at.chmod(0o755)
        shutil.copytree(ROOT / "contrib/slurm", self.lib)
        (at / "bin").mkdir()
        for name in ("weft", "libweft_preload.so"):
            shutil.copy(self.build / name, at / "bin")
        for user, uid in USERS.items():
            (at / "home" / user).mkdir(parents=True)
            shutil.chown(at / "home" / user, uid, uid)
        lines = [f"10.83.0.{host.number} {host.name}\n" for host in self.hosts]
        (at / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        run(at / "bin/weft", "key", "make", at / "site.key")
        self.network()
        for host in self.hosts:
            self.etc(host)
            host.start()
        self.daemon(at / "munge.log", self.munge())
        until("munged answers", (at / "munge/socket").exists)
        self.daemon(at / "slurmctld.out", self.ctl.command("slurmctld", "-D"))
        for node in self.nodes:
            self.slurmd(node)
        self.nodes_are_idle()

    def nodes_are_idle(self):
        until("all nodes are idle", lambda: self.ctl.run("sinfo", "-h", "-o", "%T", check=False) == "idle")

    def network(self):
        """Connects the hosts by a bridge in the network of the controller."""
        for host in self.hosts:
            run("ip", "netns", "add", host.net)
        inside = ("ip", "-n", self.ctl.net)
        run(*inside, "link", "add", "br0", "type", "bridge")
        run(*inside, "addr", "add", "10.83.0.1/24", "dev", "br0")
        run(*inside, "link", "set", "br0", "up")
        for node in self.nodes:
            run(*inside, "link", "add", node.name, "type", "veth", "peer", "name", "eth0", "netns", node.net)
            run(*inside, "link", "set", node.name, "master", "br0", "up")
            run("ip", "-n", node.net, "addr", "add", f"10.83.0.{node.number}/24", "dev", "eth0")
            run("ip", "-n", node.net, "link", "set", "eth0", "up")

    def etc(self, host):
        """Writes the files below /etc of a host."""
        etc = host.dir / "etc"
        (etc / "weft").mkdir(parents=True)
        (etc / "slurm").mkdir()
        for name, line in (("passwd", "{0}:x:{1}:{1}::{2}/home/{0}:/bin/bash\n"), ("group", "{0}:x:{1}:\n")):
            added = "".join(line.format(user, uid, self.at) for user, uid in USERS.items())
            (etc / name).write_text(pathlib.Path("/etc", name).read_text() + added)
        # No cgroups, so that the test also runs in containers.
        (etc / "slurm/cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (etc / "slurm/slurm.conf").write_text(SLURM_CONF.format(at=self.at, lib=self.lib))
        self.configure(host)
        shutil.copy(self.at / "site.key", etc / "weft/slurm.key")

    def configure(self, host, more=""):
        settings = f'SCRATCH="/mnt/scratch:ssd"\nWEFT={self.at}/bin/weft\nSTART_TIMEOUT=40\n'
        (host.dir / "etc/weft/slurm.conf").write_text(settings + more)

    def munge(self):
        directory = self.at / "munge"
        directory.mkdir(mode=0o755)
        (directory / "key").write_bytes(os.urandom(128))
        (directory / "key").chmod(0o600)
        names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={directory}/{name}" for option, name in names.items()]
        return ["munged", "--foreground", "--force", *options]

    def daemon(self, log, command):
        with log.open("a") as out:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.children.append(child)
        return child

    def slurmd(self, node):
        return self.daemon(node.dir / "slurmd.out", node.command("slurmd", "-D", "-N", node.name))

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.kill()
            child.wait(TIMEOUT_S)
        for host in self.hosts:
            if host.init and host.init.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    host.crash()
            run("ip", "netns", "del", host.net, check=False)

    def submit(self, user, script, *options):
        """Submits a job on both nodes, and returns its id."""
        options = options or ("-C", "weft", "-N2", "-n2", "--ntasks-per-node=1")
        command = ["sbatch", "--parsable", "-o", "out-%j", *options]
        return int(self.ctl.run(*command, user=user, input=f"#!/bin/bash\n{script}\n"))

    def script(self, name, job, node, user="ada"):
        """Returns the command of a prolog or an epilog on a node of a job on both nodes."""
        names = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": USERS[user], "SLURM_JOB_NODELIST": "n[1-2]", "SLURMD_NODENAME": node.name}
        return ["env", *(f"{name}={value}" for name, value in names.items()), self.lib / name]

    def functions(self, node, text):
        """Runs a script with the functions of prolog and epilog on a node, and returns its output."""
        return node.run("bash", "-c", f". {self.lib}/common.sh\n{text}")

    def state(self, job):
        text = self.ctl.run("scontrol", "-o", "show", "job", job)
        return re.search(r"JobState=(\S+)", text)[1]

    def output(self, user, job):
        path = self.at / "home" / user / f"out-{job}"
        return path.read_text() if path.exists() else ""

    def ended(self, job, *states):
        """Waits until the job and its epilogs have ended."""
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(f"job {job} has ended", lambda: self.state(job) in ends)
        until("the epilogs have ended", lambda: self.ctl.run("sinfo", "-h", "-t", "comp", "-o", "%N") == "")
        found = self.state(job)
        assert found in (states or ("COMPLETED",)), f"job {job}: {found}\n{self.output('ada', job)}{self.output('bob', job)}{self.logs()}"

    def logs(self):
        logs = [node.dir / "var/log/weft/slurm.log" for node in self.nodes]
        return "".join(log.read_text() for log in logs if log.exists())

    def nothing_is_left(self):
        left = [what for node in self.nodes for what in node.remains()]
        assert not left, f"left: {left}\n{self.logs()}"
        drained = self.ctl.run("sinfo", "-h", "-t", "drain,down", "-N", "-o", "%N %E")
        assert not drained, f"drained: {drained}\n{self.logs()}"

    def when_job_says(self, user, job, word):
        until(f"job {job} says {word}", lambda: word in self.output(user, job) or self.state(job) in ("FAILED",))
        assert word in self.output(user, job), self.output(user, job) + self.logs()


def two_nodes_share_files(site):
    """Ranks on two nodes write with an unmodified program and read the bytes of each other."""
    job = site.submit("ada", r"""
        set -e
        srun weft run -- sh -c 'seq $SLURM_PROCID 7 2000000 > /weft/part.$SLURM_PROCID'
        srun sh -c 'weft run -- md5sum /weft/part.$((1 - SLURM_PROCID))' | sort
        # The program that srun starts inherits the cluster and the library.
        weft run -- srun -n2 sh -c 'tail -n 1 /weft/part.$SLURM_PROCID' | sort
        weft getstripe -v /weft/part.0
        weft status
        weft cp /weft/part.1 $HOME/part.1
    """)
    site.ended(job)
    out = site.output("ada", job)
    for rank in (0, 1):
        text = run("seq", rank, 7, 2000000) + "\n"
        digest = run("md5sum", input=text).split()[0]
        assert f"{digest}  /weft/part.{rank}" in out, out
        assert text.splitlines()[-1] in out, out
    assert (site.at / "home/ada/part.1").read_text() == text
    assert all(f"n{node}" in out for node in (1, 2)), out
    site.nothing_is_left()
    return f"files on both nodes, {len(text)} bytes each"


def jobs_on_the_same_nodes_are_separate(site):
    """Two jobs of two users run at once on the same nodes, and neither sees the files of the other."""
    script = r"""
        weft run -- sh -c 'echo $USER > /weft/$USER'
        echo written
        end=$((SECONDS + 60))
        until [ -e ../ada/go ] || ((SECONDS > end)); do sleep 0.1; done
        srun weft run -- sh -c 'echo names: $(ls /weft)'
    """
    for user in USERS:
        (site.at / "home" / user).chmod(0o755)
    jobs = {user: site.submit(user, script) for user in USERS}
    for user, job in jobs.items():
        site.when_job_says(user, job, "written")
    node = site.nodes[0]
    assert len(node.servers()) == 2, node.servers()
    mine, other = jobs["ada"], jobs["bob"]
    for path in (f"/mnt/scratch/weft-job-{mine}/data/cluster.key", f"/mnt/scratch/weft-job-{mine}/data/target"):
        node.run("test", "-e", path)
        spied = subprocess.run(node.command("ls", path, user="bob"), capture_output=True, text=True, check=False)
        assert "Permission denied" in spied.stderr, spied
    # Without the key, bob gets no connection to ada's servers, also over the network.
    config = site.at / "home/bob/stolen.toml"
    text = node.run("cat", f"/run/weft-jobs/{mine}/cluster.toml")
    text = re.sub(r'key_file = ".*"', f'key_file = "{site.at}/home/bob/no.key"', text)
    config.write_text(re.sub(r'address = \[("tcp:[^"]*").*\]', r"address = \1", text))
    spied = subprocess.run(node.command("weft", "--cluster", config, "ls", "/weft", user="bob"),
                           capture_output=True, text=True, check=False)
    assert spied.returncode != 0 and "key" in spied.stderr, spied
    (site.at / "home/ada/go").touch()
    for user, job in jobs.items():
        site.ended(job)
        assert site.output(user, job).count(f"names: {user}\n") == 2, site.output(user, job)
    site.nothing_is_left()
    return f"jobs {mine} and {other}"


def other_jobs_get_no_cluster(site):
    """A job without the constraint gets no cluster, and one node suffices for a cluster."""
    job = site.submit("ada", "ls -d /run/weft-jobs/$SLURM_JOB_ID", "-C", "other", "-N2")
    site.ended(job, "FAILED")
    assert "No such file" in site.output("ada", job), site.output("ada", job)
    job = site.submit("bob", "weft run -- sh -c 'echo a > /weft/a; cat /weft/a'; weft status", "-C", "other&weft", "-N1")
    site.ended(job)
    assert "tcp:" not in site.output("bob", job), site.output("bob", job)
    site.nothing_is_left()
    return "none without -C weft"


def a_key_of_another_cluster_is_not_used(site):
    """A user has a cluster file and a key of the site's permanent cluster, which a job must not use."""
    config = site.at / "home/ada/.config/weft"
    config.mkdir(parents=True)
    run("cp", site.at / "site.key", config / "key")
    (config / "cluster.toml").write_text("not a cluster file\n")
    run("chown", "-R", f"{USERS['ada']}:{USERS['ada']}", site.at / "home/ada/.config")
    job = site.submit("ada", "srun weft run -- sh -c 'echo $SLURM_PROCID > /weft/$SLURM_PROCID'; weft ls /weft")
    site.ended(job)
    assert "0" in site.output("ada", job) and "1" in site.output("ada", job)
    shutil.rmtree(site.at / "home/ada/.config")
    site.nothing_is_left()
    return "the job's own"


def a_cancelled_job_leaves_nothing(site):
    job = site.submit("ada", "srun weft run -- sh -c 'yes > /weft/$SLURM_PROCID' & sleep 1; echo started; wait")
    site.when_job_says("ada", job, "started")
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED")
    site.nothing_is_left()
    return f"job {job}"


def a_killed_server_leaves_nothing(site):
    """A server is killed during the job: the program gets an error, the epilog removes everything."""
    job = site.submit("ada", r"""
        weft run -- sh -c 'head -c 8000000 /dev/zero > /weft/a'
        echo started
        end=$((SECONDS + 60))
        until [ -e killed ] || ((SECONDS > end)); do sleep 0.1; done
        weft status || echo server is down
    """)
    site.when_job_says("ada", job, "started")
    site.nodes[1].run("kill", "-KILL", *site.nodes[1].servers())
    (site.at / "home/ada/killed").touch()
    site.ended(job)
    assert "server is down" in site.output("ada", job), site.output("ada", job)
    site.nothing_is_left()
    return f"job {job}"


def a_killed_slurmd_leaves_nothing(site):
    """slurmd is killed during the job and starts again; the job is then cancelled."""
    node = site.nodes[1]
    job = site.submit("bob", "weft run -- sh -c 'echo a > /weft/a'; echo started; sleep 120")
    site.when_job_says("bob", job, "started")
    for pid in node.run("pgrep", "-x", "slurmd").split():
        node.run("kill", "-KILL", pid)
    site.ctl.run("scancel", job)
    site.slurmd(node)
    site.ended(job, "CANCELLED")
    site.nothing_is_left()
    return f"job {job}"


def a_restarted_node_removes_old_data(site):
    """A node loses power during a job. The next job on it removes the data, because /run is empty."""
    node = site.nodes[1]
    job = site.submit("ada", "weft run -- sh -c 'head -c 4000000 /dev/zero > /weft/a'; echo started; sleep 120", "-C",
                      "weft", "-N2", "--no-requeue")
    site.when_job_says("ada", job, "started")
    node.crash()
    # The disk keeps the data. Slurm runs no epilog for a job that it does not know any more.
    (node.dir / f"scratch/weft-job-{job}").rename(node.dir / "scratch/weft-job-999999")
    node.start()
    site.slurmd(node)
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED", "NODE_FAIL")
    site.nodes_are_idle()
    job = site.submit("bob", "srun weft run -- ls /weft")
    site.ended(job)
    site.nothing_is_left()
    return f"before job {job}"


def a_prolog_may_run_again(site):
    """A second run of the prolog changes nothing while the server runs, and starts it again after it was killed."""
    node = site.nodes[1]
    job = site.submit("ada", r"""
        srun weft run -- sh -c 'seq 300000 > /weft/$SLURM_PROCID'
        echo started
        end=$((SECONDS + 60))
        until [ -e again ] || ((SECONDS > end)); do sleep 0.1; done
        srun weft run -- md5sum /weft/0 /weft/1
    """)
    site.when_job_says("ada", job, "started")
    prolog = site.script("prolog", job, node)
    before = node.servers()
    node.run(*prolog)
    assert len(before) == 1 and node.servers() == before
    node.run("kill", "-KILL", *before)
    until("the server has ended", lambda: not node.servers())
    node.run(*prolog)
    assert len(node.servers()) == 1 and node.servers() != before
    (site.at / "home/ada/again").touch()
    site.ended(job)
    digest = run("md5sum", input=run("seq", 300000) + "\n").split()[0]
    assert site.output("ada", job).count(digest) == 4, site.output("ada", job)
    site.nothing_is_left()
    # A second epilog changes nothing either.
    node.run(*site.script("epilog", job, node))
    return f"job {job}"


def foreign_files_stay(site):
    """Directories and links at the names of a job's directories stay. The job says why it has no cluster."""
    node = site.nodes[0]
    scratch, victim = node.dir / "scratch", site.at / "home/bob/victim"
    victim.mkdir()
    (victim / "file").write_text("kept")
    last = site.submit("bob", "true", "-C", "other", "-N1")
    site.ended(last)
    (scratch / f"weft-job-{last + 1}").symlink_to(victim)
    job = site.submit("ada", "weft run -- ls /weft", "-C", "weft", "-N1", "-w", "n1")
    assert job == last + 1
    site.ended(job, "FAILED")
    out = site.output("ada", job)
    assert "it exists, and Weft has not made it; remove it" in out and "prolog" in out, out
    assert (victim / "file").read_text() == "kept" and (scratch / f"weft-job-{job}").is_symlink()
    (scratch / f"weft-job-{job}").unlink()
    # A directory of a user, with a record of its own.
    other = scratch / f"weft-job-{job + 1}"
    other.mkdir()
    (other / "owner").write_text(f"0 0 {job + 1}\n")
    run("chown", "-R", f"{USERS['ada']}:{USERS['ada']}", other)
    job = site.submit("ada", "weft run -- ls /weft", "-C", "weft", "-N1", "-w", "n1")
    site.ended(job, "FAILED")
    assert (other / "owner").exists(), site.logs()
    shutil.rmtree(other)
    # Links that the user of a job makes below its directory.
    job = site.submit("ada", f"""
        cd /mnt/scratch/weft-job-$SLURM_JOB_ID/data && ln -s {victim} link && mkdir -p deep/er && ln -s {victim} deep/er/link
        mv run gone && ln -s {victim} run && chmod 0 deep
    """, "-C", "weft", "-N1", "-w", "n1")
    site.ended(job)
    assert (victim / "file").read_text() == "kept"
    site.nothing_is_left()
    return f"jobs to {job}"


def a_wrong_setting_is_reported(site):
    """A setting that differs between nodes, and a missing scratch directory, fail the job with the reason."""
    site.configure(site.nodes[1], 'SCRATCH="/mnt/missing:ssd"\nSTART_TIMEOUT=3\n')
    site.configure(site.nodes[0], "START_TIMEOUT=3\n")
    job = site.submit("ada", "srun -N1 -n1 -w n2 weft run -- ls /weft; weft run -- ls /weft")
    site.ended(job, "FAILED")
    out = site.output("ada", job)
    assert "/mnt/missing: it must be a directory" in out, out
    assert "not all servers started within 3 s" in out, out
    # With ON_FAILURE="node" the job waits for another node, and this one is drained.
    site.configure(site.nodes[0])
    site.configure(site.nodes[1], 'SCRATCH="/mnt/missing:ssd"\nON_FAILURE="node"\n')
    drained = site.submit("ada", "true", "-C", "weft", "-N1", "-w", "n2")
    until("the node is drained", lambda: "n2" in site.ctl.run("sinfo", "-h", "-t", "drain,drng", "-o", "%N"))
    site.ctl.run("scancel", drained)
    site.ended(drained, "CANCELLED")
    site.configure(site.nodes[1])
    site.ctl.run("scontrol", "update", "node=n2", "state=resume")
    site.nodes_are_idle()
    site.nothing_is_left()
    return f"jobs {job} and {drained}"


def a_server_log_that_blocks_is_not_read(site):
    """The prolog reports a server that does not start, though its user made the log a FIFO, endless or huge."""
    node = site.nodes[1]
    job = site.submit("ada", "echo started; sleep 300")
    site.when_job_says("ada", job, "started")
    data = f"/mnt/scratch/weft-job-{job}/data"
    log, jobs = f"{data}/run/server.log", f"/run/weft-jobs/{job}"
    node.run("cp", f"{jobs}/cluster.toml", f"{jobs}/kept")
    node.run("kill", "-KILL", *node.servers())
    until("the server has ended", lambda: not node.servers())
    node.run("mv", f"{data}/cluster.key", f"{data}/other.key", user="ada")

    def reason():
        node.run("cp", f"{jobs}/kept", f"{jobs}/cluster.toml")
        node.run(*site.script("prolog", job, node))
        return node.run("cat", f"{jobs}/failed")

    node.run("sh", "-c", f"rm {log}; mkfifo {log}", user="ada")
    with node.holds("open", "sh", "-c", f"exec 3<>{log}; echo open; cat", user="ada"):
        found = reason()
    assert f"the server ended at its start: {log} is not a regular file" in found, found
    for target in ("/dev/zero", f"{site.at}/home/ada/out-{job}"):
        node.run("ln", "-sf", target, log, user="ada")
        found = reason()
        assert f"the server ended at its start: {log} is not a regular file" in found, found
    node.run("sh", "-c", f"rm {log}; truncate -s {HUGE_BYTES} {log}", user="ada")
    found = reason()
    assert "cluster.key" in found and len(found) < 1000, found
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED")
    site.nothing_is_left()
    return f"job {job}"


def an_epilog_waits_for_the_lock(site):
    """An epilog changes nothing while another process holds the lock of the node."""
    node = site.nodes[1]
    job = site.submit("ada", "echo started; sleep 300")
    site.when_job_says("ada", job, "started")
    before = node.servers()
    with node.holds("locked", "flock", "/run/weft-jobs/.lock", "sh", "-c", "echo locked; cat"):
        epilog = site.daemon(node.dir / "epilog.out", node.command(*site.script("epilog", job, node)))
        until("the epilog waits", lambda: node.run("pgrep", "-fx", "flock -w [0-9]+ 9", check=False))
        node.run("test", "-e", f"/run/weft-jobs/{job}/cluster.toml")
        assert len(before) == 1 and node.servers() == before, node.servers()
    assert epilog.wait(TIMEOUT_S) == 0, (node.dir / "epilog.out").read_text()
    assert not node.remains(), node.remains()
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED")
    site.nothing_is_left()
    return f"job {job}"


def programs_keep_no_lock(site):
    """Programs of the user and programs with a time limit do not have the lock's descriptor while root holds the lock."""
    node = site.nodes[0]
    uid = USERS["ada"]
    found = site.functions(node, f"""
        lock_jobs
        readlink /proc/$$/fd/9
        as_user {uid} {uid} sh -c 'echo "user $(id -u)"; ls -l /proc/$$/fd'
        within 20 sh -c 'echo "user $(id -u)"; ls -l /proc/$$/fd'
    """)
    lock, *rest = found.splitlines()
    assert lock == "/run/weft-jobs/.lock" and f"user {uid}" in rest and "user 0" in rest, found
    assert not any(lock in line for line in rest), found
    job = site.submit("ada", "echo started; sleep 300")
    site.when_job_says("ada", job, "started")
    servers = node.servers()
    found = node.run("ls", "-l", *(f"/proc/{pid}/fd" for pid in servers))
    assert len(servers) == 1 and "socket:" in found and lock not in found, found
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED")
    site.nothing_is_left()
    return f"job {job}"


def a_hung_mount_is_removed(site):
    """FUSE servers of the job's user, at a directory and at the directory above, do not answer. The epilog ends anyway."""
    if not pathlib.Path("/dev/fuse").exists():
        return "SKIPPED: this system has no /dev/fuse (modprobe fuse)"
    node, uid = site.nodes[1], USERS["ada"]
    job = site.submit("ada", "echo started; sleep 300")
    site.when_job_says("ada", job, "started")
    data = f"/mnt/scratch/weft-job-{job}/data"
    node.run("mkdir", f"{data}/a b", user="ada")
    python = (sys.executable, "-c", HUNG_MOUNT)
    with node.holds("mounted", *python, f"{data}/a b", uid) as inner:
        # Not even a program that no signal ends is waited for.
        found = site.functions(node, f"""
            within 1 "${{FUNCTION[@]}}" as_user {uid} {uid} ls '{data}/a b'
            echo "code $?"
        """)
        assert found == "not finished within 1 s\ncode 124", found
        assert inner.stdout.readline() == "waits\n"
        with node.holds("mounted", *python, data, uid):
            assert node.mounts() == [f"{data}/a\\040b", data], node.mounts()
            site.ctl.run("scancel", job)
            site.ended(job, "CANCELLED")
            site.nothing_is_left()
    return f"job {job}"


def files_of_other_mounts_stay(site):
    """A directory is mounted below the directory of a job, on the same file system. The epilog removes the mount only."""
    node = site.nodes[0]
    other = site.at / "home/ada/mounted"
    other.mkdir()
    (other / "file").write_text("kept")
    run("chown", "-R", f"{USERS['ada']}:{USERS['ada']}", other)
    job = site.submit("ada", "echo started; sleep 300", "-C", "weft", "-N1", "-w", "n1")
    site.when_job_says("ada", job, "started")
    data = f"/mnt/scratch/weft-job-{job}/data"
    node.run("mkdir", "-p", f"{data}/deep/er", user="ada")
    node.run("mount", "--bind", other, f"{data}/deep/er")
    node.run("test", "-e", f"{data}/deep/er/file")
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED")
    site.nothing_is_left()
    assert (other / "file").read_text() == "kept"
    shutil.rmtree(other)
    return f"job {job}"


def a_directory_that_stays_is_reported(site):
    """The user of a job may not remove a file. The log says which, and a later epilog removes the directory."""
    node = site.nodes[0]
    job = site.submit("ada", "echo started; sleep 300", "-C", "weft", "-N1", "-w", "n1")
    site.when_job_says("ada", job, "started")
    data = f"/mnt/scratch/weft-job-{job}/data"
    node.run("sh", "-c", f"mkdir {data}/foreign && echo kept > {data}/foreign/file")
    site.ctl.run("scancel", job)
    site.ended(job, "CANCELLED")
    stays = [path for path in (node.dir / "scratch").iterdir() if path.name.startswith(f".weft-ended-{job}-")]
    assert len(stays) == 1, site.logs()
    assert [path.name for path in (stays[0] / "data").iterdir()] == ["foreign"], site.logs()
    pattern = rf"job {job}: warning: /mnt/scratch/{stays[0].name}: not removed completely: .*foreign/file.*Permission denied; the next"
    assert re.search(pattern, site.logs()), site.logs()
    (stays[0] / "data/foreign/file").unlink()
    run("chown", f"{USERS['ada']}", stays[0] / "data/foreign")
    job = site.submit("bob", "weft ls /weft", "-C", "weft", "-N1", "-w", "n1")
    site.ended(job)
    site.nothing_is_left()
    return f"before job {job}"


TESTS = [
    two_nodes_share_files, jobs_on_the_same_nodes_are_separate, other_jobs_get_no_cluster,
    a_key_of_another_cluster_is_not_used, a_cancelled_job_leaves_nothing, a_killed_server_leaves_nothing,
    a_killed_slurmd_leaves_nothing, a_restarted_node_removes_old_data,
    a_prolog_may_run_again, foreign_files_stay, a_wrong_setting_is_reported,
    a_server_log_that_blocks_is_not_read, an_epilog_waits_for_the_lock, programs_keep_no_lock,
    a_hung_mount_is_removed, files_of_other_mounts_stay, a_directory_that_stays_is_reported,
]


def main():
    options, names = parse_arguments()
    if os.geteuid() != 0:
        sys.exit("scripts/slurm.py: only root can make hosts of namespaces: run it as root")
    run("shellcheck", "-x", ROOT / "contrib/slurm/prolog", ROOT / "contrib/slurm/epilog")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    build = target / ("release" if "--release" in options else "debug")
    at = pathlib.Path(tempfile.mkdtemp(prefix="weft-slurm-"))
    passed = 0
    try:
        with Site(at, build) as site:
            for test in TESTS:
                if names and test.__name__ not in names:
                    continue
                began = time.monotonic()
                what = test(site)
                passed += 1
                print(f"{test.__name__}: {what}, {time.monotonic() - began:.1f} s", flush=True)
    finally:
        if "--keep" in options:
            print(f"logs: {at}", file=sys.stderr)
        else:
            shutil.rmtree(at)
    if not passed:
        sys.exit(f"no test is named {names}")
    print(f"{passed} tests of jobs of {run('slurmctld', '-V')} passed")


if __name__ == "__main__":
    main()
