"""Run campaigns of random faults: `python -m tests.chaos SETTING --seed SEED --faults FAULTS`."""

import argparse
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos.campaign import Campaign
from tests.chaos.embedded import embedded
from tests.chaos.servers import on_servers
from tests.chaos.slurm import over_slurm
from tests.chaos.stack import full_stack
from tests.chaos.watch import say

SETTINGS = {"embedded": embedded, "stack": full_stack, "slurm": over_slurm, "servers": on_servers}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("setting", choices=[*SETTINGS, "all"], nargs="?", default="all")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000), help="a random one unless given")
    parser.add_argument("--faults", type=int, default=340, help="in each setting; all take hours unless given")
    parser.add_argument("--only", nargs="+", metavar="FAULT", help="of the setting's faults, these")
    given = parser.parse_args()
    settings = SETTINGS if given.setting == "all" else (given.setting,)
    sys.exit(sum([violations(name, given) for name in settings]) > 0)


def violations(setting: str, given: argparse.Namespace) -> int:
    """Run one campaign and print what it found; how many violations that is."""
    seed, faults = given.seed, given.faults
    say(f"{setting}: --seed {seed} --faults {faults}")
    began_s = time.monotonic()
    with SETTINGS[setting](seed) as campaign:
        if given.only:
            campaign.faults = {name: campaign.faults[name] for name in given.only}
        found = campaign.run(faults)
        for violation in found:
            say(f"VIOLATION in {command_of(setting, given)}: {violation}")
        if found:
            keep_files(campaign)
    injected = ", ".join(f"{count} x {name}" for name, count in sorted(campaign.injected.items()))
    say(f"{setting}, seed {seed}: {faults} faults ({injected})")
    say(f"{len(campaign.jobs)} jobs, {len(found)} violations, {time.monotonic() - began_s:.0f} s")
    return len(found)


def command_of(setting: str, given: argparse.Namespace) -> str:
    """The command that repeats the campaign."""
    only = ["--only", *(f'"{fault}"' for fault in given.only)] if given.only else []
    words = [setting, f"--seed {given.seed}", f"--faults {given.faults}", *only]
    return f"make chaos ARGS={shlex.quote(' '.join(words))}"


def keep_files(campaign: Campaign) -> None:
    kept = Path(tempfile.mkdtemp(prefix="chaos-"))
    for path in campaign.evidence():
        if path.is_dir():
            with suppress(shutil.Error):  # sockets cannot be copied; all else is
                shutil.copytree(path, kept / path.name, symlinks=True, dirs_exist_ok=True)
        elif path.exists():
            shutil.copy(path, kept)
    say(f"the files are kept in {kept}")


if __name__ == "__main__":
    main()
