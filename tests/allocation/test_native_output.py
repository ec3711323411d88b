"""What native libraries print is not among a program's results, nor in the logs of the scheduler."""

import subprocess
import sys


def test_what_a_native_library_prints_is_diverted_and_ours_is_kept() -> None:
    begin = "import os; from allocation.solvers.linear_program import divert_native_output; divert_native_output(2)"
    code = f"{begin}; os.write(1, b'HiGHS'); print('ours')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ours\n", "HiGHS")
