"""Program of the agent as the service serves it: a zipapp of the engines' sources, and the script that runs it."""

import hashlib
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from django.conf import settings

from connections_app.models import Agent
from engines.agent.connection import checked_url
from engines.agent.program import DIGITS, RELEASE

AT = (2026, 1, 1, 0, 0, 0)
"""Time of every file: the same sources are the same bytes on every machine."""
MAIN = "import sys\n\nfrom engines.agent.install import main\n\nsys.exit(main())\n"
SCRIPT = """\
#!/bin/sh
# Makes this machine a server of the Motley cluster at {url}: checks first, and then writes.
set -eu
python=
for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" > /dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    echo "FAIL python: Python 3.11 or newer is needed, and $(python3 --version 2>&1 || echo none) is here:" \\
        "install it, as by apt-get install python3.11. Nothing was written." >&2
    exit 1
fi
package=$(mktemp)
trap 'rm -f "$package"' EXIT
curl {only}-fsS {url}/agent/motley-agent.pyz -o "$package"
"$python" "$package" --url {url} "$@"
"""
REFUSAL = """\
#!/bin/sh
echo "FAIL service: it was asked at {url}, and what comes over http can be replaced on the way: use its https" \\
    "address. Where a proxy speaks https for it, see MOTLEY_TLS in docs/configuration.md. Nothing was written." >&2
exit 1
"""


def install_script(url: str) -> str:
    """The script for `sh`, of the service at this address; root runs it, so one of http over a network only refuses."""
    try:
        checked_url(url)
    except ValueError:
        return REFUSAL.format(url=url)
    return SCRIPT.format(url=url, only="--proto '=https' " if url.startswith("https://") else "")


@cache
def agent_package() -> bytes:
    """The program of this release, with NVIDIA's module for queries of the driver; kept in memory, some 300 kB."""
    root = Path(settings.BASE_DIR) / "engines"
    files = {f"engines/{path.relative_to(root).as_posix()}": path.read_bytes() for path in sorted(root.rglob("*.py"))}
    if (found := find_spec("pynvml")) is not None and found.origin is not None:
        files["pynvml.py"] = Path(found.origin).read_bytes()
    return _zipped({**files, "__main__.py": MAIN.encode(), RELEASE: settings.MOTLEY_VERSION.encode()})


@cache
def program_digest() -> str:
    """What names this program on a server, as `engines.agent.program` has it."""
    return hashlib.sha256(agent_package()).hexdigest()[:DIGITS]


def runs_own_program(agent: Agent) -> bool | None:
    """Whether the agent runs the program of this service; None: from sources, or it has not said so."""
    return agent.program == program_digest() if agent.program else None


def _zipped(files: dict[str, bytes]) -> bytes:
    written = BytesIO()
    with ZipFile(written, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = ZipInfo(name, AT)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    return written.getvalue()
