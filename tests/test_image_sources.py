"""Images are found where users have them, with the same labels however they lie there, or refused by name."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import images
import pytest
from torchvision import datasets

from dpscale.errors import UserError
from dpscale.workloads import ilsvrc
from dpscale.workloads.datasets import imagenet
from dpscale.workloads.image_files import Found, ImageFile, find

CLASSES = list(images.CLASSES)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ with 3 x 6 and val/ with 3 x 2 JPEGs of 40 x 30."""
    return images.tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def tars(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as ImageNet's archives."""
    return images.archives(tree, tmp_path_factory.mktemp("tars") / "ILSVRC2012")


def found(dataset: str, source: Path, expected: int = 3, counts: dict[str, int] | None = None) -> Found:
    return find(source, None) if dataset == "image_folder" else ilsvrc.find(source, expected, counts)


# Folders of classes


def test_labels_follow_the_names_of_class_folders_as_in_torchvision(tree):
    classes, splits = found("image_folder", tree)
    theirs = datasets.ImageFolder(str(tree / "train"))
    assert classes == theirs.classes == CLASSES
    assert [(image.path, image.label) for image in splits["train"]] == theirs.samples
    assert len(splits["test"]) == 6


def test_images_may_lie_deeper_and_other_files_are_left_alone(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "tree")
    deep = tmp_path / "tree" / "train" / CLASSES[0] / "more" / "x.png"
    deep.parent.mkdir()
    images.picture(0, 0, (8, 8)).save(deep)
    for name in ("notes.txt", ".hidden.jpg"):
        (deep.parent / name).write_text("no image")
    (tmp_path / "tree" / "val").rename(tmp_path / "tree" / "test")
    _, splits = found("image_folder", tmp_path / "tree")
    assert len(splits["train"]) == 19
    assert str(deep) in {image.path for image in splits["train"]}


def broken_tree(tree: Path, folder: Path, change: str) -> Path:
    shutil.copytree(tree, folder)
    if change == "no val":
        shutil.rmtree(folder / "val")
    elif change == "no classes":
        shutil.rmtree(folder / "train")
        (folder / "train").mkdir()
    elif change == "class without test images":
        shutil.rmtree(folder / "val" / CLASSES[1])
    elif change == "class without training images":
        shutil.rmtree(folder / "train" / CLASSES[1])
    elif change == "empty class":
        for path in (folder / "train" / CLASSES[2]).iterdir():
            path.unlink()
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("no val", "needs train/<class>/ and val/<class>/ or test/<class>/ with images"),
        ("no classes", r"train: has no folders; give each class one"),
        ("class without test images", "val: other classes than the training images have: it lacks n01443537"),
        ("class without training images", "val: other classes than .*: only there: n01443537"),
        ("empty class", "n01484850: holds no image"),
    ],
)
@pytest.mark.parametrize("dataset", ["image_folder", "imagenet"])
def test_folders_that_do_not_fit_together_are_refused(tree, tmp_path, dataset, change, said):
    source = broken_tree(tree, tmp_path / "tree", change)
    if (dataset, change) == ("imagenet", "no val"):
        said = r"holds no val/ and no ILSVRC2012_img_val.tar"
    if (dataset, change) == ("imagenet", "class without training images"):
        said = "training images of 2 classes, 3 expected"
    with pytest.raises(UserError, match=said):
        found(dataset, source)


def test_another_number_of_classes_than_the_config_says_is_refused(tree):
    with pytest.raises(UserError, match=r"train: 3 class folders, but datasets\.image_folder\.classes = 4"):
        find(tree, 4)


def test_images_come_in_torchvisions_order_however_deep_they_lie(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "tree")
    for name in ("deep/x.jpg", "deep-er/x.jpg", "deep/er/x.jpg", "a.jpg", "z.jpg"):
        path = tmp_path / "tree/train" / CLASSES[0] / name
        path.parent.mkdir(exist_ok=True)
        images.picture(0, 0, (8, 8)).save(path)
    theirs = datasets.ImageFolder(str(tmp_path / "tree/train"))
    assert [(image.path, image.label) for image in find(tmp_path / "tree", None).splits["train"]] == theirs.samples


def test_a_class_may_lie_behind_a_link(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "tree")
    here = tmp_path / "tree/train" / CLASSES[1]
    here.rename(tmp_path / "elsewhere")
    here.symlink_to(tmp_path / "elsewhere")
    assert contents(find(tmp_path / "tree", None).splits["train"]) == contents(find(tree, None).splits["train"])


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_a_link_in_a_circle_is_refused_where_its_images_would_come_forty_times(tree, tmp_path, target):
    shutil.copytree(tree, tmp_path / "tree")
    link = tmp_path / "tree/train" / CLASSES[0] / "again"
    link.symlink_to(target)
    with pytest.raises(UserError, match=f"{link}: a link to a folder that it lies in itself; remove it"):
        find(tmp_path / "tree", None)


def test_a_folder_that_can_not_be_read_is_no_empty_one(tree, tmp_path, monkeypatch):
    shutil.copytree(tree, tmp_path / "tree")
    locked = tmp_path / "tree/train" / CLASSES[0] / "more"
    locked.mkdir()
    real = os.scandir

    def scandir(path: str | Path) -> object:
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match=str(locked)):
        find(tmp_path / "tree", None)


# Archives of class folders


def tar_of(tree: Path, path: Path, top: str = ".", mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        archive.add(tree, top)
    return path


def zip_of(tree: Path, path: Path, top: str = "", compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for file in sorted(tree.rglob("*")):
            archive.write(file, f"{top}{file.relative_to(tree)}")
        archive.writestr(f"__MACOSX/{top}train/x/._x.jpg", b"what macOS adds")
    return path


ARCHIVES: dict[str, Callable[[Path, Path], Path]] = {
    "tar": tar_of,
    "tar of one folder": lambda tree, path: tar_of(tree, path, "flowers of mine"),
    "zip": zip_of,
    "zip of one folder": lambda tree, path: zip_of(tree, path, "flowers/"),
    "zip that compresses nothing": lambda tree, path: zip_of(tree, path, "", zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_of_class_folders_is_the_same_as_the_folder(tree, tmp_path, kind):
    classes, splits = find(ARCHIVES[kind](tree, tmp_path / "it's my archive"), None)
    assert classes == CLASSES
    assert {split: contents(of_split) for split, of_split in splits.items()} == {
        split: contents(of_split) for split, of_split in find(tree, None).splits.items()
    }


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("no val", "needs train/<class>/ and val/<class>/"),
        ("class without test images", "val: other classes than .*: it lacks n01443537"),
        ("class without training images", "val: other classes than .*: only there: n01443537"),
    ],
)
def test_an_archive_whose_splits_do_not_fit_together_is_refused(tree, tmp_path, kind, change, said):
    with pytest.raises(UserError, match=said):
        find(ARCHIVES[kind](broken_tree(tree, tmp_path / "tree", change), tmp_path / "archive"), None)


@pytest.mark.parametrize(("mode", "program"), [("w:gz", "gunzip"), ("w:bz2", "bunzip2"), ("w:xz", "unxz")])
def test_a_compressed_tar_is_refused_with_what_to_do(tree, tmp_path, mode, program):
    with pytest.raises(UserError, match=rf"archive: compressed, so that .*; decompress it \({program}\), or unpack it"):
        find(tar_of(tree, tmp_path / "archive", mode=mode), None)


def test_a_tar_cut_between_any_two_of_its_members_is_refused_by_its_path(tree, tmp_path):
    """Python takes what is left for a whole one."""
    whole = tar_of(tree, tmp_path / "archive").read_bytes()
    with tarfile.open(tmp_path / "archive") as archive:
        ends = [member.offset for member in archive][1:] + [archive.offset]
    for end in ends:
        (tmp_path / "archive").write_bytes(whole[:end])
        with pytest.raises(UserError, match=rf"{tmp_path}/archive: not a whole tar archive"):
            find(tmp_path / "archive", None)


@pytest.mark.parametrize("length", [0, 1, 300, 5000, -30])
def test_a_cut_zip_is_refused_by_its_path(tree, tmp_path, length):
    path = zip_of(tree, tmp_path / "archive")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match=rf"{path}: neither a folder nor a whole tar or zip archive; copy it again"):
        find(path, None)


def test_a_wrong_byte_in_a_zip_is_found_by_its_checksum(tree, tmp_path):
    """Of an image that is not compressed, and that a decoder would take."""
    path = zip_of(tree, tmp_path / "archive", "", zipfile.ZIP_STORED)
    image = find(path, None).splits["train"][3]
    content = bytearray(path.read_bytes())
    content[content.index(image.read()) + 30] ^= 1
    path = Path(shutil.move(path, tmp_path / "another"))
    path.write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match=str(image.member)):
        image._replace(path=str(path)).read()


# ImageNet


def layout(name: str, tree: Path, tars: Path, folder: Path) -> Path:
    if name == "archives":
        return tars
    if name == "class folders":  # fault B7, pytorch/vision#3602: no devkit, no meta file
        return tree
    images.devkit(tree, images.flat_val(tree, folder))
    if name == "flat val":
        (folder / "train").symlink_to(tree / "train")
    else:
        shutil.copy(tars / "ILSVRC2012_img_train.tar", folder)
    return folder


@pytest.mark.parametrize("name", ["archives", "class folders", "flat val", "flat val beside the training archive"])
def test_imagenet_is_the_same_images_and_labels_in_the_same_order_in_every_layout(tree, tars, tmp_path, name):
    classes, splits = found("imagenet", layout(name, tree, tars, tmp_path / "source"))
    assert classes == CLASSES
    assert {split: contents(of_split) for split, of_split in splits.items()} == {
        split: contents(of_split) for split, of_split in found("image_folder", tree)[1].items()
    }


def contents(of_split: list[ImageFile]) -> list[tuple[int, bytes]]:
    return [(image.label, image.read()) for image in of_split]


def test_images_of_archives_come_by_class_and_name(tars):
    _, splits = found("imagenet", tars)
    assert [image.label for image in splits["train"]] == [0] * 6 + [1] * 6 + [2] * 6
    names = [image.member for image in splits["train"]]
    assert names == sorted(names)
    assert splits["test"][0].name == f"{tars}/ILSVRC2012_img_val.tar: ILSVRC2012_val_00000001.JPEG"


@pytest.mark.parametrize("name", ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"])
def test_a_missing_archive_is_named_with_all_that_is_to_be_put_there(tars, tmp_path, name):
    shutil.copytree(tars, tmp_path / "source")
    (tmp_path / "source" / name).unlink()
    with pytest.raises(UserError) as refused:
        found("imagenet", tmp_path / "source")
    text = str(refused.value)
    assert text.startswith(f"datasets.imagenet.source = '{tmp_path / 'source'}': holds no ")
    assert name in text.splitlines()[0]
    assert "https://image-net.org" in text
    assert all(archive in text for archive in (ilsvrc.TRAIN, ilsvrc.VAL, f"{ilsvrc.DEVKIT}.tar.gz"))


@pytest.mark.parametrize("name", ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"])
def test_a_cut_archive_is_refused_by_its_name(tars, tmp_path, name):
    shutil.copytree(tars, tmp_path / "source")
    whole = (tmp_path / "source" / name).read_bytes()
    for length in (0, 100, len(whole) // 3, len(whole) // 2):
        (tmp_path / "source" / name).write_bytes(whole[:length])
        with pytest.raises(UserError, match=rf"{name.removesuffix('.tar.gz')}.*; copy it again"):
            found("imagenet", tmp_path / "source")


def test_a_devkit_of_other_images_is_refused(tree, tmp_path):
    source = layout("flat val", tree, tree, tmp_path / "source")
    (source / "val" / "ILSVRC2012_val_00000004.JPEG").unlink()
    with pytest.raises(UserError, match=r"val: 5 images, expected are .*00000001.JPEG to ILSVRC2012_val_00000006.JPEG"):
        found("imagenet", source)


def test_a_devkit_of_other_classes_is_refused(tree, tmp_path):
    source = layout("flat val", tree, tree, tmp_path / "source")
    (source / ilsvrc.DEVKIT / ilsvrc.GROUND_TRUTH).write_text("1\n1\n2\n2\n1\n2\n")
    with pytest.raises(UserError, match=r"ILSVRC2012_devkit_t12: other classes .*: it lacks n01440764 \(1\)"):
        found("imagenet", source)


def test_a_part_of_imagenet_must_be_called_one(tars):
    with pytest.raises(UserError, match=r"of 3 classes, 1000 expected; .*datasets\.imagenet\.classes: 3"):
        found("imagenet", tars, expected=1000)


def test_images_are_counted(tars):
    with pytest.raises(UserError, match=r"18 train images of 1,281,167, 6 test images of 50,000; copy what is missing"):
        found("imagenet", tars, counts=imagenet.COUNTS)


def test_imagenets_archives_may_have_been_packed_anew(tree, tars, tmp_path):
    """With ./ or a folder before the names, and other files beside the images."""
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(tars / f"{ilsvrc.DEVKIT}.tar.gz", source)
    notes = tmp_path / "notes.txt"
    notes.write_text("no image")
    with tarfile.open(source / ilsvrc.TRAIN, "w") as outer:
        outer.add(notes, "./notes.txt")
        for wnid in CLASSES:
            outer.add(tar_of(tree / "train" / wnid, tmp_path / f"{wnid}.tar", wnid), f"./{wnid}.tar")
    with tarfile.open(source / ilsvrc.VAL, "w") as archive:
        archive.add(notes, "val/notes.txt")
        for path in tree.glob("val/*/*"):
            archive.add(path, f"val/{path.name}")
    classes, splits = found("imagenet", source)
    assert classes == CLASSES
    assert {split: contents(of_split) for split, of_split in splits.items()} == {
        split: contents(of_split) for split, of_split in found("imagenet", tars)[1].items()
    }


@pytest.mark.parametrize("what", ["a class without images", "a class twice"])
def test_a_training_archive_with_something_wrong_in_it_is_refused(tars, tmp_path, what):
    shutil.copytree(tars, tmp_path / "source")
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    with tarfile.open(tmp_path / "source" / ilsvrc.TRAIN, "a") as archive:
        member = tarfile.TarInfo("n09999999.tar" if what == "a class without images" else f"{CLASSES[0]}.tar")
        member.size = len(empty.getvalue())
        archive.addfile(member, io.BytesIO(empty.getvalue()))
    said = {
        "a class without images": r"img_train\.tar: its n09999999\.tar holds no image",
        "a class twice": r"img_train\.tar: holds n01440764 more than once",
    }
    with pytest.raises(UserError, match=said[what]):
        found("imagenet", tmp_path / "source", expected=4)
