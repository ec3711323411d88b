"""A driver library that answers as NVIDIA's does, for two GPUs: one is free, the other lost with a process on it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

DRIVER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdint.h>
typedef struct { unsigned long long total, free, used; } memory;
/* The second GPU: from the start, or as soon as the file is there. */
int lost(void *device) {
    const char *file = getenv("SECOND_GPU_IS_LOST_WITH");
    return (uintptr_t)device == 2 && (!file || access(file, F_OK) == 0);
}
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
const char *nvmlErrorString(int code) { return "gone"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return lost(*device) && getenv("LOST_WITHOUT_HANDLE") ? 15 : 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)(uintptr_t)(uuid[4] - '0' + 1);
    return uuid[4] > '1' ? 6 : 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) { strncpy(name, "NVIDIA H200", size); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    strncpy(uuid, (uintptr_t)device == 1 ? "GPU-0" : "GPU-1", size);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    info->total = 141ULL << 30;
    return lost(device) ? 15 : 0;
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = (unsigned)(uintptr_t)device + 3;
    return 0;
}
int processes(void *device, unsigned *count, void *infos) {
    unsigned room = *count;
    *count = lost(device);
    return *count > room ? 7 : 0;  /* 7: the list does not fit */
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *c, void *i) { return processes(d, c, i); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *c, void *i) { return processes(d, c, i); }
"""


def compiled_driver(place: Path) -> Path:
    """The folder to name in LD_LIBRARY_PATH."""
    if shutil.which("cc") is None and os.environ.get("CI") != "true":
        pytest.skip("there is no C compiler for the driver library: install gcc and libc6-dev")
    (place / "driver.c").write_text(DRIVER)
    library = "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", library, "driver.c"], cwd=place, check=True
    )
    return place
