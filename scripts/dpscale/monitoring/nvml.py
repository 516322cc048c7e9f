"""NVIDIA's GPUs through NVML, by UUID: its indices ignore CUDA_VISIBLE_DEVICES and what a scheduler hides."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

# bits of what NVML says of the clocks; the idle GPU's is no throttling
THROTTLE_REASONS = {
    0x2: "clocks set by a user",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}


class Gpus:
    """The GPUs with these UUIDs, each read as far as it can tell: boards differ, and MIG hides much.

    Attributes:
        absent: UUID -> why NVML has no such GPU; the others are read.

    Raises:
        RuntimeError: NVML is not there.
    """

    def __init__(self, uuids: Collection[str]) -> None:
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise RuntimeError(f"NVML: {error}") from None
        self._handles: dict[str, Any] = {}
        self.absent: dict[str, str] = {}
        for uuid in uuids:
            try:
                self._handles[uuid] = self._handle(uuid)
            except pynvml.NVMLError as error:
                self.absent[uuid] = f"NVML: {error}"

    def _handle(self, uuid: str) -> Any:
        """Of a GPU, or else of the part of one (MIG) with this UUID: CUDA does not tell which it is, NVML spells them apart."""
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except self._nvml.NVMLError as error:
            try:
                return self._nvml.nvmlDeviceGetHandleByUUID(uuid.replace("GPU-", "MIG-", 1))
            except self._nvml.NVMLError:
                raise error from None

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """NVML's answer; None where this board has none."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None

    def driver(self) -> str | None:
        return _text(self._ask(self._nvml.nvmlSystemGetDriverVersion))

    def readings(self) -> list[dict[str, Any]]:
        """What each GPU says right now."""
        return [{"name": uuid, **self._reading(handle)} for uuid, handle in self._handles.items()]

    def _reading(self, handle: Any) -> dict[str, Any]:
        nvml, ask = self._nvml, self._ask
        rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return {
            "utilization_percent": None if rates is None else rates.gpu,
            "memory_bytes": None if memory is None else memory.used,
            "processes": None if processes is None else len(processes),
            "power_w": _thousandth(ask(nvml.nvmlDeviceGetPowerUsage, handle)),
            "energy_j": _thousandth(ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
            "sm_clock_MHz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "memory_clock_MHz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "temperature_C": ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": None if reasons is None else throttle_text(reasons),
        }

    def facts(self) -> list[dict[str, Any]]:
        """What does not change while a GPU works, and makes one card of a model another's equal or not."""
        nvml, ask = self._nvml, self._ask
        return [
            {
                "uuid": uuid,
                "model": _text(ask(nvml.nvmlDeviceGetName, handle)),
                "memory_bytes": getattr(ask(nvml.nvmlDeviceGetMemoryInfo, handle), "total", None),
                "ecc": _first(ask(nvml.nvmlDeviceGetEccMode, handle)),
                "mig": _first(ask(nvml.nvmlDeviceGetMigMode, handle)),
                "persistence_mode": ask(nvml.nvmlDeviceGetPersistenceMode, handle),
                "power_limit_w": _thousandth(ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
                "max_sm_clock_MHz": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
                "max_memory_clock_MHz": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
                "pcie_generation": ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
                "pcie_width": ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            }
            for uuid, handle in self._handles.items()
        ]


def throttle_text(bits: int) -> str:
    """The names of the reasons, with + between them; empty if nothing holds the clocks back."""
    return "+".join(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _thousandth(value: float | None) -> float | None:
    """NVML counts milliwatts and millijoules."""
    return None if value is None else value / 1000


def _first(pair: Any) -> int | None:
    """The current mode of (current, pending)."""
    return None if pair is None else pair[0]


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
