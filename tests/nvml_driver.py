"""A driver library that answers as NVIDIA's does, for two GPUs or `GPU_COUNT` of them.

The second is lost with a process on it, from the start or as soon as the file SECOND_GPU_IS_LOST_WITH is there; the
first has the faults whose files are named: FIRST_GPU_HAS_ECC_ERRORS_WITH, FIRST_GPU_HAS_XID_WITH (the file holds the
number, and the event is told once), FIRST_GPU_HAS_PROCESS_WITH, FIRST_GPU_HANGS_WITH. The
whole driver hangs as long as the file DRIVER_HANGS_WITH is there.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdint.h>
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;
typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } event;
int named(const char *variable) {
    const char *file = getenv(variable);
    return file && access(file, F_OK) == 0;
}
int first(void *device, const char *variable) { return (uintptr_t)device == 1 && named(variable); }
/* The second GPU: from the start, or as soon as the file is there. */
int lost(void *device) {
    const char *file = getenv("SECOND_GPU_IS_LOST_WITH");
    return (uintptr_t)device == 2 && (!file || access(file, F_OK) == 0);
}
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
const char *nvmlErrorString(int code) { return "gone"; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = getenv("GPU_COUNT") ? atoi(getenv("GPU_COUNT")) : 2;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return lost(*device) && getenv("LOST_WITHOUT_HANDLE") ? 15 : 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)(uintptr_t)(uuid[4] - '0' + 1);
    unsigned count;
    nvmlDeviceGetCount_v2(&count);
    return (unsigned)(uuid[4] - '0') >= count ? 6 : 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) { strncpy(name, "NVIDIA H200", size); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    snprintf(uuid, size, "GPU-%u", (unsigned)(uintptr_t)device - 1);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    while (named("DRIVER_HANGS_WITH")) usleep(10000);
    info->total = 141ULL << 30;
    info->used = 12ULL << 30;
    info->free = info->total - info->used;
    return lost(device) ? 15 : 0;
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = (unsigned)(uintptr_t)device + 3;
    return 0;
}
int processes(void *device, unsigned *count, process *infos) {
    unsigned room = *count;
    *count = lost(device) || first(device, "FIRST_GPU_HAS_PROCESS_WITH");
    if (*count > room) return 7;  /* the list does not fit */
    if (*count) infos[0].pid = 4711;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *c, process *i) { return processes(d, c, i); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *c, process *i) { return processes(d, c, i); }
int nvmlDeviceGetUtilizationRates(void *device, utilization *rates) {
    rates->gpu = 37;
    rates->memory = 12;
    return lost(device) ? 15 : 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    while (first(device, "FIRST_GPU_HANGS_WITH")) usleep(10000);
    *milliwatts = 250500;
    return lost(device) ? 15 : 0;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    *celsius = 61;
    return lost(device) ? 15 : 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = 0x1 | 0x20;  /* idle, and too hot */
    return lost(device) ? 15 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *count) {
    *count = first(device, "FIRST_GPU_HAS_ECC_ERRORS_WITH") ? 3 : 0;
    if (first(device, "FIRST_GPU_CANNOT_COUNT_WITH")) *count = ~0ULL;
    return lost(device) ? 15 : 0;
}
int nvmlEventSetCreate(void **set) { *set = (void *)1; return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, event *data, unsigned timeout) {
    const char *name = getenv("FIRST_GPU_HAS_XID_WITH");
    FILE *file = name ? fopen(name, "r") : 0;
    if (!file) return 10;  /* nothing in that time */
    data->device = (void *)1;
    data->type = 8;
    if (fscanf(file, "%llu", &data->data) != 1) data->data = 0;
    fclose(file);
    unlink(name);
    return 0;
}
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
