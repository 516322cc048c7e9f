"""The textbook form of data-parallel training, as tutorials show it; it uses nothing of this project.

torchvision's dataset with transforms for each sample, a DistributedSampler, DistributedDataParallel, mp.spawn. Prints
the seconds that one pass over the samples takes, after a few steps to warm up.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

BATCH_SIZE = 128
WARMUP_STEPS = 10


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(4608, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def train(rank: int, args: argparse.Namespace) -> None:
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    address = f"tcp://127.0.0.1:{args.port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=args.processes)
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.2860,), (0.3530,))])
    dataset = datasets.FashionMNIST(args.images, train=True, transform=transform)
    part = Subset(dataset, range(args.samples))
    sampler = DistributedSampler(part)
    loader = DataLoader(part, batch_size=BATCH_SIZE, sampler=sampler)
    model = DistributedDataParallel(Net())
    optimizer = optim.Adadelta(model.parameters(), lr=0.5)
    for epoch, batches in enumerate((WARMUP_STEPS, None)):
        sampler.set_epoch(epoch)
        dist.barrier()
        started_s = time.perf_counter()
        for images, labels in islice(loader, batches):
            optimizer.zero_grad()
            loss = F.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
        dist.barrier()
        epoch_time_s = time.perf_counter() - started_s
    if rank == 0:
        print(epoch_time_s, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", required=True, help="folder for torchvision.datasets")
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--threads", type=int, help="per process; default: what torch picks")
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args,), nprocs=args.processes)
