"""How fast formats for many encoded images give them back, one process: what the choice in docs/images.md rests on.

    pip install datasets litdata mosaicml-streaming webdataset     into a virtual environment of your own: no test needs them
    python tests/bench/formats.py FOLDER_OF_JPEGS                  a line of JSON for each format; one that is missing says so

The files are taken once through memory, so that all formats are read from the kernel's cache: what differs is the work
per image, not the disk. Each is then read in random order (a stream in its own), `--rounds` times, formats interleaved.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

Samples = list[tuple[bytes, int]]
Reader = Callable[[np.ndarray], Iterable[tuple[bytes, int]]]  # order -> (encoded image, label)
SHARD_BYTES = 2**26


def files(samples: Samples, folder: Path) -> Reader:
    folder.mkdir()
    for number, (content, _) in enumerate(samples):
        (folder / f"{number}.jpg").write_bytes(content)
    labels = [label for _, label in samples]
    return lambda order: (((folder / f"{index}.jpg").read_bytes(), labels[index]) for index in order.tolist())


def packed(samples: Samples, folder: Path) -> Reader:
    """What dpscale does: bytes one after another, and an index."""
    folder.mkdir()
    with (folder / "images").open("wb") as file:
        file.writelines(content for content, _ in samples)
    sizes = np.array([len(content) for content, _ in samples])
    spans, labels = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1), np.array([label for _, label in samples])
    descriptor = os.open(folder / "images", os.O_RDONLY)

    def read(order: np.ndarray) -> Iterator[tuple[bytes, int]]:
        for index in order.tolist():
            start, size = spans[index].tolist()
            yield os.pread(descriptor, size, start), int(labels[index])

    return read


def arrow(samples: Samples, folder: Path) -> Reader:
    from datasets import Dataset, load_from_disk

    columns = {"image": [content for content, _ in samples], "label": [label for _, label in samples]}
    Dataset.from_dict(columns).save_to_disk(str(folder), max_shard_size=SHARD_BYTES)
    stored = load_from_disk(str(folder))
    return lambda order: ((row["image"], row["label"]) for row in (stored[index] for index in order.tolist()))


def litdata(samples: Samples, folder: Path) -> Reader:
    from litdata import StreamingDataset
    from litdata.streaming import Cache

    cache = Cache(str(folder), chunk_bytes=SHARD_BYTES)
    for index, (content, label) in enumerate(samples):
        cache[index] = {"image": content, "label": label}
    cache.done()
    cache.merge()
    stored = StreamingDataset(str(folder))
    return lambda order: ((row["image"], row["label"]) for row in (stored[index] for index in order.tolist()))


def mosaicml_streaming(samples: Samples, folder: Path) -> Reader:
    from streaming import MDSWriter, StreamingDataset

    with MDSWriter(out=str(folder), columns={"image": "bytes", "label": "int"}, size_limit=SHARD_BYTES) as writer:
        for content, label in samples:
            writer.write({"image": content, "label": label})
    stored = StreamingDataset(local=str(folder), batch_size=1)
    return lambda order: ((row["image"], row["label"]) for row in (stored[index] for index in order.tolist()))


def webdataset(samples: Samples, folder: Path) -> Reader:
    """A stream: its order is that of its shards, through a buffer of 1,000; it has no access by index."""
    import webdataset as wds

    folder.mkdir()
    with wds.ShardWriter(f"{folder}/%05d.tar", maxsize=SHARD_BYTES, verbose=0) as writer:
        for index, (content, label) in enumerate(samples):
            writer.write({"__key__": f"{index:08}", "jpg": content, "cls": label})
    shards = sorted(str(path) for path in folder.glob("*.tar"))
    stream = wds.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000)
    return lambda order: ((row["jpg"], int(row["cls"])) for row in stream)


FORMATS = (files, packed, arrow, litdata, mosaicml_streaming, webdataset)


def rate(read: Reader, order: np.ndarray, decode: bool) -> float:
    """Images per second of one pass."""
    started_s, count = time.perf_counter(), 0
    for content, _ in read(order):
        if decode:
            Image.open(io.BytesIO(content)).convert("RGB")
        count += 1
    if count != len(order):
        raise RuntimeError(f"{count} images of {len(order)} came back")
    return count / (time.perf_counter() - started_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of JPEGs, at any depth")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    samples = [(path.read_bytes(), number % 1000) for number, path in enumerate(sorted(args.folder.rglob("*.jpg")))]
    with tempfile.TemporaryDirectory() as temporary:
        readers, facts = {}, {}
        for make in FORMATS:
            name, started_s = make.__name__, time.perf_counter()
            try:
                readers[name] = make(samples, Path(temporary, name))
            except ImportError as missing:
                print(json.dumps({"format": name, "missing": str(missing)}))
                continue
            size = sum(path.stat().st_blocks * 512 for path in Path(temporary, name).rglob("*") if path.is_file())
            facts[name] = {"write_s": round(time.perf_counter() - started_s, 2), "MB_on_disk": round(size / 1e6, 1)}
        rates: dict[tuple[str, bool], list[float]] = {
            (name, decode): [] for name in readers for decode in (False, True)
        }
        for number in range(args.rounds):
            order = np.random.default_rng(number).permutation(len(samples))
            for (name, decode), found in rates.items():
                found.append(round(rate(readers[name], order, decode), 1))
        for name in readers:
            found = {"read_per_s": rates[name, False], "read_and_decode_per_s": rates[name, True]}
            print(json.dumps({"format": name, "images": len(samples), **facts[name], **found}), flush=True)


if __name__ == "__main__":
    main()
