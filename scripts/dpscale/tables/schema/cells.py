"""What identifies a row, and what is measured of a cell: shared by most tables."""

IDENTITY = {
    "experiment": "name of the experiment in the config",
    "strategy": "name of the strategy's variant in the config",
    "base": "the row of STRATEGIES behind the variant",
    "launcher": "what started the ranks",
    "nodes": "machines",
    "devices_per_node": "devices on each of them; on a CPU a device is a rank's share of the cores",
    "devices": "N = nodes x devices_per_node",
    "world_size": "processes: N, or 1 for a single-process strategy",
    "device": "cpu or cuda",
    "precision": "as asked for; effective_precision says what was seen",
    "compile": "whether torch.compile was used",
    "channels_last": "whether images were in channels-last memory format",
    "scaling": "weak: the batch per device is fixed; strong: the global batch is; largest: each cell's own, what fits",
    "batch_size_per_device": "samples per device and step; empty where a search is yet to find it",
    "global_batch_size": "samples per step over all devices; empty with it",
    "threads_per_rank": "CPU threads of each rank",
    "learning_rate": "the highest of the training: lr, scaled with the global batch where the config asks for it",
}
CELL = ["experiment", "strategy", "base", "launcher", "nodes", "devices_per_node", "devices"]
RUN = ["experiment", "launcher", "nodes", "devices_per_node", "devices", "device", "threads_per_rank"]
PLACEBO_OF = {"placebo_of": "of the placebo: the strategy that it measures again under another name; else empty"}
STATUS = {
    "status": "ok, unavailable (a need of the strategy is not met here) or missing (planned, but not measured yet)",
    "reason": "why it is not ok",
}
ESTIMATED = {
    "epoch_time_s": "training time of one epoch, in s; evaluation is apart",
    "step_time_s": "median over steps of the slowest rank's time, in s",
    "throughput_samples_per_s": "delivered training samples of all ranks per second of training",
    "throughput_per_device_samples_per_s": "throughput of one device: throughput_samples_per_s / N",
    "evaluation_time_s": "time of one evaluation of the whole test set, in s",
    "evaluation_throughput_samples_per_s": "test samples per second",
    "epoch_with_evaluation_s": "epoch_time_s + evaluation_time_s",
    "utilization_percent": "CPU: CPU time of the ranks over ranks x threads x time, above 100 where gloo's own threads and loader workers work beside these; CUDA: NVML's utilisation",
    "peak_memory_MiB": "largest resident set of any rank (VmHWM), in MiB; shared pages count",
    "peak_allocated_MiB": "CUDA: largest peak of memory in tensors of any rank, in MiB",
    "peak_reserved_MiB": "CUDA: largest peak of memory held by torch's allocator of any rank, in MiB",
    "compile_time_s": "time that torch.compile took before the first step, in s; no part of any other time",
    "final_accuracy": "share of the predictions over the test set that is right at the end; empty where ranks hold different weights",
    "final_top5_accuracy": "share of them whose five likeliest classes hold the right one; empty with no more than five classes, too",
}
# rates, each with the amount and the time that it is made of: rate x time = amount on every row
RATES = {
    "throughput_samples_per_s": ("train_samples_per_epoch", "epoch_time_s"),
    "evaluation_throughput_samples_per_s": ("test_samples", "evaluation_time_s"),
}
AMOUNTS = {
    "train_samples_per_epoch": "samples of an epoch, all ranks: the mean of the timed ones, or steps per epoch x the mean of the timed steps",
    "test_samples": "samples of one evaluation, all ranks",
}
TEXTS = {
    "experiment",
    "strategy",
    "base",
    "launcher",
    "device",
    "precision",
    "scaling",
    "placebo_of",
    "status",
    "reason",
}
