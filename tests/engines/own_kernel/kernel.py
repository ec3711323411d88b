"""A Linux of the tests' own (User-mode Linux), where cgroups of version 2 are whatever this machine has.

It sees this machine's files, read-only, and has its own processes, memory and root account.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

LINUX = "linux.uml"
REGISTERS = Path(__file__).with_name("registers.c")
MEMORY = "1536M"
LIMIT_S = 600
INSIDE = "MOTLEY_TEST_OWN_KERNEL"
"""Environment variable that is set in it."""
SYSTEMD = Path("/lib/systemd/systemd")
MOUNTS = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/tmp {inside}=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs run /run
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t hostfs -o {shared} none /mnt
"""
SHOWN_AGAIN = """
mkdir -p {path}
mount -r -t hostfs -o {path} none {path}
"""
"""A folder of this machine that its empty /tmp hides."""
COMMAND = """#!/bin/sh
cd {folder}
{command} >/mnt/output 2>&1
echo $? >/mnt/code
exec poweroff -f {as_systemd}
"""
UNITS = """
mkdir -p /run/systemd/system
cp /mnt/*.service /run/systemd/system
exec {systemd} --unit=command.service --log-target=console --show-status=no
"""
COMMAND_UNIT = """
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh /mnt/command
"""


class Ran(NamedTuple):
    code: int | None
    """None: it did not come to its end."""
    output: str


def is_here() -> bool:
    return all(shutil.which(program) for program in (LINUX, "cc"))


def run(argv: list[str], *, folder: Path, shared: Path) -> Ran:
    """Run a command as root of the other kernel; `shared` is a folder that it may write to, as /mnt."""
    _write_command(argv, folder, shared)
    return _boot("ip link set lo up\nexec /bin/sh /mnt/command\n", folder, shared)


def run_under_systemd(argv: list[str], units: list[Path], *, folder: Path, shared: Path) -> Ran:
    """The same, started by systemd as process 1, which knows these units."""
    for unit in units:
        text = unit.read_text().replace("[Service]", "[Service]\nStandardError=file:/mnt/errors", 1)
        (shared / unit.name).write_text(text.replace("[Unit]", "[Unit]\nDefaultDependencies=no", 1))
    _write_command(argv, folder, shared, as_systemd="-f")
    (shared / "command.service").write_text(COMMAND_UNIT)
    return _boot(UNITS.format(systemd=SYSTEMD), folder, shared)


def _write_command(argv: list[str], folder: Path, shared: Path, *, as_systemd: str = "") -> None:
    words = {"folder": shlex.quote(str(folder)), "command": shlex.join(argv), "as_systemd": as_systemd}
    (shared / "command").write_text(COMMAND.format(**words))


def _shown_again(folder: Path) -> str:
    """The checkout and its Python, where they lie below /tmp."""
    hidden = {path for path in (folder, Path(sys.prefix), Path(sys.base_prefix)) if path.is_relative_to("/tmp")}
    outermost = [path for path in sorted(hidden) if not any(path.is_relative_to(other) for other in hidden - {path})]
    return "".join(SHOWN_AGAIN.format(path=shlex.quote(str(path))) for path in outermost)


def _boot(rest_of_init: str, folder: Path, shared: Path) -> Ran:
    init = shared / "init"
    init.write_text(MOUNTS.format(inside=INSIDE, shared=shared) + _shown_again(folder) + rest_of_init)
    init.chmod(0o755)
    boot = [LINUX, f"mem={MEMORY}", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}", "quiet"]
    console = subprocess.run(
        [*boot, "con=null", "con0=null,fd:1", f"umid={shared.name}"],
        env=os.environ | {"LD_PRELOAD": _registers(shared)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
        check=False,
    ).stdout.decode(errors="replace")
    code, output = shared / "code", shared / "output"
    said = output.read_text(errors="replace") if output.exists() else console
    return Ran(int(code.read_text()) if code.exists() else None, said)


def _registers(place: Path) -> str:
    library = place / "registers.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, REGISTERS], check=True)
    return str(library)


def pytest_in_it(*words: str) -> list[str]:
    off = [word for name in ("cacheprovider", "xdist", "randomly", "django") for word in ("-p", f"no:{name}")]
    return [sys.executable, "-B", "-m", "pytest", "-q", *off, "-c", "/dev/null", "--noconftest", *words]
