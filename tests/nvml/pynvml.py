"""NVML of a machine with five GPUs and two MIG instances, in the place of NVIDIA's: GPU i has UUID GPU-i, but for the last.
The fourth tells hardly anything, as in MIG mode, and DPSCALE_TEST_NVML=none is a machine without a driver."""

import os
from itertools import count
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
UUIDS = [*(f"GPU-{index}" for index in range(4)), "GPU-4e8f71a2-5b", "MIG-7c0de001-01", "MIG-7c0de002-02"]
MUTE = 3
_rounds = count()


class NVMLError(Exception):
    pass


def _told(index, value):
    if index == MUTE:
        raise NVMLError("Not Supported")
    return value


def nvmlInit():
    if os.environ.get("DPSCALE_TEST_NVML") == "none":
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetHandleByUUID(uuid):
    if uuid not in UUIDS:
        raise NVMLError("Not Found")
    return UUIDS.index(uuid)


def nvmlSystemGetDriverVersion():
    return b"580.65"


def nvmlDeviceGetUtilizationRates(index):
    return SimpleNamespace(gpu=_told(index, 10 * (index + 1)))


def nvmlDeviceGetMemoryInfo(index):
    return SimpleNamespace(used=2**30, total=2**36)


def nvmlDeviceGetComputeRunningProcesses(index):
    return [SimpleNamespace(pid=1)]


def nvmlDeviceGetCurrentClocksThrottleReasons(index):
    return _told(index, 0x4 | 0x20 | 0x1)


def nvmlDeviceGetPowerUsage(index):
    return _told(index, 250_000)


def nvmlDeviceGetTotalEnergyConsumption(index):
    return _told(index, 1000 * next(_rounds))


def nvmlDeviceGetClockInfo(index, kind):
    return _told(index, {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[kind])


def nvmlDeviceGetMaxClockInfo(index, kind):
    return nvmlDeviceGetClockInfo(index, kind)


def nvmlDeviceGetTemperature(index, sensor):
    return _told(index, 61)


def nvmlDeviceGetName(index):
    return b"NVIDIA H200"


def nvmlDeviceGetEccMode(index):
    return _told(index, (1, 1))


def nvmlDeviceGetMigMode(index):
    raise NVMLError("Not Supported")


def nvmlDeviceGetPersistenceMode(index):
    return 1


def nvmlDeviceGetEnforcedPowerLimit(index):
    return _told(index, 700_000)


def nvmlDeviceGetCurrPcieLinkGeneration(index):
    return 5


def nvmlDeviceGetCurrPcieLinkWidth(index):
    return 16
