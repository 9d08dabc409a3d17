"""The names of the recipes, each with one line. This module needs no torch."""

DESCRIPTIONS: dict[str, str] = {
    "array": "your own numbers: X and optional classes y in --data FILE.npz, as truedrift.fit: a minute",
    "toy": "points in the plane, an MLP, features are the points: seconds",
    "digits": "scikit-learn's 8×8 digits, an MLP, features are the pixels: minutes on two cores",
    "fashion-mnist": "Fashion-MNIST (28×28, gray) by feature maps of EfficientNet-Lite0 and pixels: 20 minutes",
    "fashion-mnist-pixels": "Fashion-MNIST without an encoder: an MLP, features are the pixels: minutes on two cores",
    "folder": "your own images, resized to 32×32; one folder per class in --data DIR, or all in DIR: 30 minutes",
    "cifar10-cpu": "CIFAR-10 on a CPU by feature maps of EfficientNet-Lite0 and pixels: 90 minutes, 15 for one class",
    "cifar10-own": "cifar10-cpu with an encoder of your own, --encoder RUN of train-encoder: nothing pretrained",
    "cifar10": "CIFAR-10 as in the paper, n = 8, 16, 32 or 64; for a GPU",
    "cifar100": "CIFAR-100 as in the paper, n = 8, 16 or 32; for a GPU",
}
"""One line per recipe, for `truedrift recipes`."""
