"""Ranks on two hosts that share nothing but a folder and a network: network namespaces of this machine, joined by one
cable, and MPI over TCP. Making them takes the rights of root."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_models import TINY
from test_mpi import MPIEXEC, environment, started
from test_mpi_runs import OPTIONS, write_job

import nncuda
from nncuda.train import TrainConfig, TrainingRun, list_checkpoints

IP = shutil.which("ip") or "/usr/sbin/ip"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
#: What mpiexec starts in place of ssh: [-x] host command.
LAUNCHER = """#!/bin/sh
[ "$1" != -x ] || shift
case $1 in
{cases}
*) echo "there is no host $1" >&2; exit 1 ;;
esac
shift
exec {ip} netns exec "$host" sh -c "$*"
"""
#: Those that have one machine's memory or files in between would not need the cable.
OVER_TCP = {"UCX_TLS": "tcp,self"}


@dataclass(frozen=True)
class Hosts:
    names: tuple[str, str]
    launcher: Path

    def command(self, ranks: tuple[int, int], *program: str | Path) -> list[str]:
        """What runs so many ranks of a program on each host."""
        places = ",".join(f"{address}:{count}" for address, count in zip(ADDRESSES, ranks, strict=True) if count)
        mpiexec = [MPIEXEC, "-launcher", "ssh", "-launcher-exec", self.launcher, "-localhost", ADDRESSES[0]]
        of_job = ["-iface", "cable0", "-hosts", places, "-n", str(sum(ranks))]
        return [IP, "netns", "exec", self.names[0], *map(str, [*mpiexec, *of_job, *program])]

    def cable(self, state: str) -> None:
        ip("-n", self.names[1], "link", "set", "cable1", state)

    def processes(self) -> list[int]:
        return [int(pid) for name in self.names for pid in ip("netns", "pids", name).split()]


def ip(*arguments: str) -> str:
    return subprocess.run([IP, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    names = (f"nncuda-{os.getpid()}-0", f"nncuda-{os.getpid()}-1")
    made: list[str] = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            end = ("type", "veth", "peer", "name", "cable1", "netns", names[1])
            ip("link", "add", "cable0", "netns", names[0], *end)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"hosts of the network cannot be made here: {error}")
        for at, name in enumerate(names):
            ip("-n", name, "address", "add", f"{ADDRESSES[at]}/24", "dev", f"cable{at}")
            for device in ("lo", f"cable{at}"):
                ip("-n", name, "link", "set", device, "up")
        launcher = tmp_path / "launcher"
        cases = "\n".join(f"{address}) host={name} ;;" for address, name in zip(ADDRESSES, names, strict=True))
        launcher.write_text(LAUNCHER.format(cases=cases, ip=IP))
        launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
        made_hosts = Hosts(names, launcher)
        # A link has its carrier a moment after it was set up, and MPI passes over one that has none.
        wait_for(lambda: all("state UP" in ip("-n", name, "link", "show", "type", "veth") for name in names))
        yield made_hosts
        for pid in made_hosts.processes():
            os.kill(pid, signal.SIGKILL)
    finally:
        for name in made:
            ip("netns", "delete", name)


def train(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "nncuda", "train", str(folder), "--threads", "1", *arguments]


def checkpoint_of(folder: Path, step: int) -> list[bytes]:
    files = ("model.safetensors", "optimizer.safetensors", "training.json")
    return [(folder / f"checkpoints/step-{step:08d}" / name).read_bytes() for name in files]


@started
@pytest.mark.parametrize("experts", [1, 4])
def test_two_hosts_have_the_bits_of_one_rank(hosts: Hosts, tmp_path: Path, experts: int) -> None:
    arguments = [*write_job(tmp_path), "--steps", "6", "--save-every", "6"]
    divided = ["--expert-parallel", str(experts)]
    for folder, command in (
        ("alone", train(tmp_path / "alone", *arguments)),
        ("hosts", hosts.command((2, 2), *train(tmp_path / "hosts", *arguments, *divided))),
    ):
        done = subprocess.run(command, env=environment(**OVER_TCP), stdout=-1, stderr=-2, text=True, timeout=120)
        assert done.returncode == 0, f"{folder}: {done.stdout}"
    assert checkpoint_of(tmp_path / "hosts", 6)[:2] == checkpoint_of(tmp_path / "alone", 6)[:2]
    metrics = [(tmp_path / folder / "metrics.jsonl").read_text().count('"step"') for folder in ("alone", "hosts")]
    assert metrics[0] == metrics[1] > 0


@started
def test_a_cable_that_is_cut(hosts: Hosts, tmp_path: Path) -> None:
    """Ranks on both sides say which one they wait for, and end; the last checkpoint stands, with the bits of a run that
    nothing happened to. mpiexec itself waits for its part on the other host."""
    arguments = [*write_job(tmp_path), "--peer-timeout", "6", "--log-ranks"]
    folder = tmp_path / "run"
    command = hosts.command((2, 2), *train(folder, *arguments))
    with (tmp_path / "said").open("w") as output:
        job = subprocess.Popen(
            command, env=environment(**OVER_TCP), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for(lambda: job.poll() is not None or has_checkpoints(folder))
        assert job.poll() is None, (tmp_path / "said").read_text()
        ranks = [pid for pid in hosts.processes() if is_rank(pid)]
        assert len(ranks) == 4
        hosts.cable("down")
        wait_for(lambda: not any(is_rank(pid) for pid in ranks))
    finally:
        job.kill()
        job.wait()
    said = (tmp_path / "said").read_text()
    assert said.count("did not answer within 6 s (NNCUDA_ERROR_PEER)") == 2, said  # those that mpiexec still hears
    step = int(list_checkpoints(folder / "checkpoints")[-1].name[5:])
    with nncuda.Context(threads=1) as ctx:
        options = TrainConfig.from_dict({**OPTIONS, "save_every": step})
        whole = TrainingRun.start(tmp_path / "whole", ctx, TINY, options, tmp_path / "train.tokens")
        next(progress for progress in whole.steps() if progress.step == step)
    assert checkpoint_of(folder, step)[:2] == checkpoint_of(tmp_path / "whole", step)[:2]


def has_checkpoints(folder: Path) -> bool:
    return folder.exists() and len(list_checkpoints(folder / "checkpoints")) >= 2


def is_rank(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable) + b"\0")
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
