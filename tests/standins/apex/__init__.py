"""In the place of NVIDIA apex, which needs GPUs: the calls that the row makes, checked and put down in their order."""

calls: list[tuple] = []
