"""The Debian packages: installed, upgraded and purged by apt-get in a copy of this machine's files."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import ROOT

NEWER = "99.0.0"
IN_A_COPY = """
umask 022  # the tests' own may be that of a service
mount -t tmpfs -o size=4g,mode=755 copy "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" copy "$1/root"
for folder in proc dev; do mount --rbind /$folder "$1/root/$folder"; done
mount -t tmpfs run "$1/root/run"
mkdir -p "$1/root/packages" && mount --bind "$2" "$1/root/packages"
rm -rf "$1/root/opt/motley"* "$1/root/etc/motley" "$1/root/var/lib/motley" "$1/root/var/backups"
mkdir "$1/root/var/backups"
chroot "$1/root" userdel motley 2>/dev/null || true
exec chroot "$1/root" /bin/sh -e
"""
"""A shell, whose script is its input: nothing of what it writes lasts."""
APT = "apt-get install -y -qq --no-install-recommends"
ON_SQLITE = "sed -i '/^MOTLEY_\\(DATABASE\\|REDIS\\|CACHE_URL\\|TLS\\)=/d' /etc/motley/motley.env"
SYSTEMCTL = """#!/bin/sh
case $1 in
is-active) [ "$3" = motley-web ] || [ "$3" = motley-worker ] ;;
*) echo "$*" >>/systemctl ;;
esac
"""
"""There is no systemd in the copy: two of the services run."""
SET_UP = f"""
mkdir -p /run/systemd/system
printf '%s' '{SYSTEMCTL}' >/usr/bin/systemctl && chmod 755 /usr/bin/systemctl
{APT} /packages/*_0.*.deb
{ON_SQLITE}
motley-manage migrate --no-input >/dev/null
motley-manage collectstatic --no-input >/dev/null
"""
PEOPLE = "motley-manage dumpdata auth.user"
CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("apt-get"), reason="packages are installed by root on Debian"
    ),
]


NEWER_OF_THIS = f"""
for file in "$1"/motley*_0.*.deb; do
    dpkg-deb --raw-extract "$file" "$1/newer"
    version=$(dpkg-deb --field "$file" Version)
    sed -i "s/$version/{NEWER}/g" "$1"/newer/DEBIAN/*
    [ ! -d "$1/newer/opt" ] || mv "$1/newer/opt/motley-$version" "$1/newer/opt/motley-{NEWER}"
    dpkg-deb --root-owner-group -Znone --build "$1/newer" "$1" >/dev/null
    rm -rf "$1/newer"
done
"""
"""To build a version anew takes minutes, for the same files."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of this version, and of a newer one with the same files."""
    folder = tmp_path_factory.mktemp("packages")
    given = {**os.environ, "COMPRESSION": "none"}
    subprocess.run([ROOT / "deploy" / "debian" / "build", folder], env=given, check=True, capture_output=True)
    subprocess.run(["sh", "-euc", NEWER_OF_THIS, "sh", folder], check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder)


class Copy:
    """What was said by scripts that ran one after the other in one copy of this machine's files."""

    def __init__(self, packages: Path, folder: Path) -> None:
        self._words = ["unshare", "--mount", "sh", "-ec", IN_A_COPY, "sh", str(folder), str(packages)]

    def run(self, script: str) -> str:
        clean = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        done = subprocess.run(self._words, input=script, env=clean, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def copy(packages: Path, tmp_path: Path) -> Copy:
    return Copy(packages, tmp_path)


def test_an_upgrade_that_fails_changes_nothing_and_the_next_one_keeps_the_rows(copy: Copy) -> None:
    """First there is no backup, then tables are brought on and static files are not. At last all is purged."""
    said = copy.run(f"""
        {SET_UP}
        stat -c 'settings %a %U:%G' /etc/motley/motley.env
        grep -c '^MOTLEY_SECRET_KEY=[0-9a-f]\\{{64\\}}$' /etc/motley/motley.env
        export DJANGO_SUPERUSER_PASSWORD=of-a-test
        motley-manage createsuperuser --no-input --username ada --email a@example.org
        chown root /var/backups/motley
        {APT} /packages/*_{NEWER}*.deb && exit 1 || echo "without a backup $(readlink /opt/motley)"
        chown motley /var/backups/motley
        mv /var/lib/motley/static /var/kept && touch /var/lib/motley/static
        dpkg --configure motley && exit 1 || echo "without files $(readlink /opt/motley)"
        tail -n 1 /systemctl
        rm /var/lib/motley/static && mv /var/kept /var/lib/motley/static
        dpkg --configure motley
        echo "at last $(readlink /opt/motley)"
        ls -d /opt/motley-0.*/manage.py
        stat -c 'backup %a %U' /var/backups/motley/before-{NEWER}-*.backup
        {PEOPLE}
        tail -n 1 /systemctl
        echo purge
        apt-get purge -y -qq 'motley*'
        ls -d /etc/motley /opt/motley /opt/motley-* 2>/dev/null || true
        ls /var/lib/motley
    """)
    assert "settings 640 root:motley\n1\n" in said
    assert "NO BACKUP COULD BE MADE" in said
    assert "without a backup /opt/motley-0." in said
    assert "THE UPGRADE FAILED" in said
    assert "without files /opt/motley-0." in said
    assert f"motley: {NEWER} is in use, motley-0." in said
    assert f"at last /opt/motley-{NEWER}" in said
    assert "/manage.py\n" in said  # of the old version, of which running jobs have loaded files
    assert "backup 600 motley" in said
    assert '"username": "ada"' in said
    (stopped,) = [line for line in said.splitlines() if line.startswith("stop ")]
    assert stopped.startswith("stop motley-web motley-worker")
    assert said.index(stopped) < said.index("start motley-web motley-worker")
    purged = said[said.index("\npurge\n") :]
    assert not any(line.startswith(("/etc", "/opt")) for line in purged.splitlines()[-7:])
    assert "motley.sqlite3" in purged


def test_what_was_removed_is_brought_on_by_the_next_version(copy: Copy) -> None:
    said = copy.run(f"""
        {SET_UP}
        apt-get remove -y -qq motley
        {APT} /packages/*_{NEWER}*.deb
        ls /var/backups/motley
        readlink /opt/motley
    """)
    assert f"before-{NEWER}-" in said
    assert f"\n/opt/motley-{NEWER}\n" in said
