"""The part of Motley that runs on nodes, copied to the shared folder: the package `engines`, and NVIDIA's for NVML.

Both need the standard library only.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

try:
    import pynvml
except ImportError:
    pynvml = None

PACKAGE = Path(__file__).resolve().parents[1]


def install_runtime(root: Path) -> Path:
    """Copy our package `engines` below `root`, in a folder named by its content, and return that folder.

    Attempts of an older version go on with theirs; two services that install the same at once do not disturb each
    other.
    """
    sources = {path.relative_to(PACKAGE.parent): path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    if pynvml is not None:
        sources |= {Path("pynvml.py"): Path(pynvml.__file__).read_bytes()}
    target = root / "runtime" / _fingerprint(sources)
    if not target.exists():
        target.parent.mkdir(mode=0o755, exist_ok=True)
        _install(sources, target)
    return target


def _fingerprint(sources: dict[Path, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sources.items():
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _install(sources: dict[Path, bytes], target: Path) -> None:
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix="."))
    try:
        for path, content in sources.items():
            (beside / path).parent.mkdir(parents=True, exist_ok=True)
            (beside / path).write_bytes(content)
        beside.chmod(0o755)
        os.rename(beside, target)  # noqa: PTH104 - fails if another service was first, where Path.replace is the same
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
