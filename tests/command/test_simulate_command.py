"""`motley simulate` is the simulator's command, wherever it is called."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

MOTLEY = Path(sys.executable).parent / "motley"
JOBS = "name,arrival_s,gpus,duration_s\na,0,1,3600\nb,60,2,600\n"


def simulate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MOTLEY, "simulate", *words], cwd=folder, env=os.environ, capture_output=True, text=True, check=False
    )


def test_the_examples_of_the_documentation_work_as_they_stand(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    (script,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    path = {"PATH": f"{MOTLEY.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["completed"] == 60
    left = {file.name for file in (tmp_path / "comparison").iterdir()}
    assert left == {"report.html", "figures.json", "figures.csv", "jobs.csv"}


def test_it_runs_the_simulator_on_files_of_the_folder_that_it_is_called_in(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(JOBS)
    done = simulate(
        tmp_path, "run", "trace.csv", "--format", "csv", "--cluster", "v100=4", "--policy", "fifo", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["completed"] == 2


def test_help_and_refusals_are_the_simulators_and_name_this_command(tmp_path: Path) -> None:
    assert "Usage: motley simulate compare" in simulate(tmp_path, "compare", "--help").stdout
    refused = simulate(tmp_path, "generate", "--like", "borg", "--jobs", "3")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("unknown cluster 'borg'; choose from philly")


def test_a_package_of_that_name_in_the_folder_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "simulation").mkdir()
    (tmp_path / "simulation" / "__main__.py").write_text("print('somebody else')")
    (tmp_path / "simulation" / "__init__.py").write_text("")
    assert "somebody else" not in simulate(tmp_path, "--help").stdout
