"""SSH into running jobs over their sessions: files for `ssh`, and the server that a session starts in the job.

`sshd -i` speaks on its standard streams, which a session carries, as the job's own account: no port is opened and no
daemon runs. Host keys are made anew for each session, since TLS and the token already prove which service answers.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from motley_command.configuration import ConfigurationError, configuration_file

PREFIX = "motley-"
"""Beginning of the names of hosts."""
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names of jobs that may be part of a host's name."""
ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""Names of accounts that are written into ssh's configuration: the job itself says them."""
NO_SERVER = 127
NO_SHELL = 126
IN_NAMESPACE = "unshare --user --map-current-user --keep-caps --mount"
"""In a mount namespace of its own the account has a shell and the job's folder as its home, which sshd insists on:
accounts of services have neither, and editors install their servers at home."""
LOOK = f"""\
PATH="$PATH:/usr/sbin:/usr/local/sbin"
for tool in sshd ssh-keygen; do
  command -v "$tool" >/dev/null || {{ echo "$tool" >&2; exit {NO_SERVER}; }}
done
if ! {IN_NAMESPACE} true 2>/dev/null; then
  case $(getent passwd "$(id -u)") in ''|*nologin|*false) exit {NO_SHELL} ;; esac
fi
id -un
"""
"""Prints the account of the job, or fails with the name of the program that is missing there, or without a shell."""
SERVE = f"""\
PATH="$PATH:/usr/sbin:/usr/local/sbin"
umask 077
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 143' TERM HUP INT
ssh-keygen -q -t ed25519 -N '' -f "$folder/host" || exit 1
printf '%s\\n' "$1" > "$folder/keys"
[ -w "$HOME" ] || export HOME="$PWD"
export -p > "$folder/env"
cat > "$folder/enter" <<END
#!/bin/sh
term=\\$TERM
. "$folder/env"
export TERM="\\$term"
cd "$PWD" || exit 1
case "\\$SSH_ORIGINAL_COMMAND" in
'') exec "\\$SHELL" ;;
*) exec "\\$SHELL" -c "\\$SSH_ORIGINAL_COMMAND" ;;
esac
END
chmod 700 "$folder/enter"
shell=/bin/bash
[ -x "$shell" ] || shell=/bin/sh
echo "export SHELL=$shell" >> "$folder/env"
name=$(id -un)
{{ echo "$name:x:$(id -u):$(id -g)::$HOME:$shell"; grep -v "^$name:" /etc/passwd; }} > "$folder/passwd"
grep -v '^tty:' /etc/group > "$folder/group"  # to which sshd gives terminals, and which no such namespace has
chmod 644 "$folder/passwd" "$folder/group"
mounts='mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"'
sftp=/usr/lib/openssh/sftp-server
[ -x "$sftp" ] || sftp=/usr/libexec/openssh/sftp-server
set -- "$(command -v sshd)" -i -e -f /dev/null -h "$folder/host" -o AuthorizedKeysFile="$folder/keys" \\
  -o StrictModes=no -o UsePAM=no -o PidFile=none -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \\
  -o PrintMotd=no -o LogLevel=ERROR -o "Subsystem=sftp $sftp" -o ForceCommand="$folder/enter"
if {IN_NAMESPACE} true 2>/dev/null; then
  {IN_NAMESPACE} /bin/sh -c "$mounts" "$folder" "$@"
else
  "$@"
fi
"""
"""Serves SSH on the standard streams to the holder of the key `$1`, with the job's environment and folder."""


def server_command(public_key: str) -> list[str]:
    """The command of a session that serves SSH."""
    return ["/bin/sh", "-c", SERVE, "motley-ssh", public_key]


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the key and the files for `ssh` are."""
    return configuration_file(environ).parent / "ssh"


def host_of(name: str, job_id: str) -> str:
    """Name of the host: that of the job, or its id where a name has other characters than a host's."""
    return PREFIX + (name if PLAIN.fullmatch(name) else job_id)


def public_key() -> str:
    """The key by which we log in, made at the first use."""
    path = folder() / "id_ed25519"
    if not path.exists():
        if shutil.which("ssh-keygen") is None:
            raise ConfigurationError("ssh-keygen is not installed: install OpenSSH's client.")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "motley", "-f", str(path)], check=True)  # noqa: S603, S607 - the command is ours
    return path.with_suffix(".pub").read_text(encoding="utf-8").strip()


def write_host(host: str, account: str) -> Path:
    """Write what `ssh` needs for all jobs, and the account of this one; returns the folder."""
    if not ACCOUNT.fullmatch(account):  # or a job could write lines of ssh's configuration
        raise ConfigurationError(f"{account!r} is no name of an account.")
    public_key()
    path = folder()
    (path / "jobs.conf").write_text(_for_all_jobs(path), encoding="utf-8")
    (path / f"{host}.conf").write_text(f"Host {host}\n    User {account}\n", encoding="utf-8")
    return path


def include_line() -> str:
    """The line of ~/.ssh/config by which `ssh`, VS Code and PyCharm know the jobs."""
    return f"Include {_quoted(folder() / '*.conf')}"


def add_include(path: Path) -> bool:
    """Write the line at the top of the file, where it holds for every host; False if it is there."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if include_line() in text.splitlines():
        return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(f"{include_line()}\n\n{text}" if text else f"{include_line()}\n", encoding="utf-8")
    path.chmod(0o600)
    return True


def _for_all_jobs(path: Path) -> str:
    """All jobs of a team share an account: whatever is forwarded to one, the others' programs could use."""
    return f"""\
# Written by motley ssh-config.
Host {PREFIX}*
    ProxyCommand {_this_command()} ssh-proxy %n
    IdentityFile {_quoted(path / "id_ed25519")}
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    GlobalKnownHostsFile /dev/null
    ForwardAgent no
    ForwardX11 no
    LogLevel ERROR
"""


def _this_command() -> str:
    """This command with its whole path: editors start `ssh` without the PATH of a shell."""
    found = shutil.which(sys.argv[0]) or shutil.which("motley") or "motley"
    return shlex.quote(str(Path(found).absolute()) if found != "motley" else found).replace("%", "%%")


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)
