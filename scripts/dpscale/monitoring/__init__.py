"""What ranks, devices and machines use meanwhile: asked of the kernel and of NVML, beside the training."""
