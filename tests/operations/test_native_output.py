"""Lines of native libraries are not in the logs of the scheduler."""

import subprocess
import sys


def test_what_a_native_library_prints_is_discarded_and_ours_is_kept() -> None:
    begin = "import os; from operations.native_output import discard_native_output; discard_native_output()"
    code = f"{begin}; os.write(1, b'HiGHS'); print('ours')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ours\n", "")
