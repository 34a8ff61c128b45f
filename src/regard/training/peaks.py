"""Model FLOPs utilisation (Chowdhery et al. 2022): how much of a device's peak a run uses."""

# Dense bf16 TFLOP/s from the makers' data sheets, by a part of the device's name; the first match counts.
PEAKS = {
    "B200": 2250.0,
    "GH200": 989.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}


def utilisation(name: str, targets_per_second: float, flops_per_target: float) -> float:
    """The fraction of the peak spent on the model's own products; 0 for a device that is not in the table."""
    peak = next((value for part, value in PEAKS.items() if part in name), 0.0)
    return targets_per_second * flops_per_target / (peak * 1e12) if peak else 0.0
