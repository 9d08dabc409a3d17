"""The two-line change in a JAX loop: a generator x = f(z) learns eight Gaussians in the plane by drifting.

The loop is that of plain_pytorch.py, in JAX: V = T⁺ − T⁻ with T = Σ α_i y_i, and the loss ‖x − sg(x + V)‖². The two
lines marked "truedrift" are the change. `abc_weights` takes arrays of JAX and works inside of `jax.jit`.
"""

import argparse
import math

import jax
import jax.numpy as jnp

from truedrift import abc_weights  # truedrift: line 1 of 2

BATCH, TAU, RATE = 16, 1.0, 2e-3
SIZES = (2, 64, 64, 2)


def eight_gaussians(key, count):
    modes, noise = jax.random.split(key)
    angle = jax.random.randint(modes, (count,), 0, 8) * (2 * math.pi / 8)
    return 2 * jnp.stack((jnp.cos(angle), jnp.sin(angle)), -1) + 0.15 * jax.random.normal(noise, (count, 2))


def sliced_wasserstein(a, b):
    """Root mean square distance between the sorted projections of a and b on 64 directions; 0 for equal samples."""
    angle = jnp.arange(64) * (math.pi / 64)
    directions = jnp.stack((jnp.cos(angle), jnp.sin(angle)))
    return float(jnp.sqrt(jnp.mean((jnp.sort(a @ directions, 0) - jnp.sort(b @ directions, 0)) ** 2)))


def initial_weights(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    sizes = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    return [(jax.random.normal(k, (i, o)) / math.sqrt(i), jnp.zeros(o)) for k, i, o in sizes]


def f(weights, z):
    for W, b in weights[:-1]:
        z = jax.nn.silu(z @ W + b)
    W, b = weights[-1]
    return z @ W + b


def centroid(x, y, *, y_is_x=False):
    squared = jnp.sum((x[:, None] - y[None]) ** 2, -1)
    logits = -jnp.sqrt(squared) / TAU
    if y_is_x:
        logits = jnp.where(jnp.eye(len(x), dtype=bool), -jnp.inf, logits)  # a sample does not repel itself
    alpha = jax.nn.softmax(logits, -1)
    alpha = abc_weights(alpha)  # truedrift: line 2 of 2
    return alpha @ y


def drift_loss(weights, z, y):
    x = f(weights, z)
    fixed = jax.lax.stop_gradient(x)
    V = centroid(fixed, y) - centroid(fixed, fixed, y_is_x=True)
    return jnp.mean((x - (fixed + V)) ** 2)


@jax.jit
def adam_step(weights, moments, step, rate, z, y):
    gradient = jax.grad(drift_loss)(weights, z, y)
    first, second = moments
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)

    def update(w, m, v):
        return w - rate * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)

    return jax.tree.map(update, weights, first, second), (first, second)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    keys = jax.random.split(jax.random.key(args.seed), 6)
    z = jax.random.normal(keys[0], (args.steps, BATCH, 2))
    y = eight_gaussians(keys[1], args.steps * BATCH).reshape(args.steps, BATCH, 2)
    z_test, y_test = jax.random.normal(keys[2], (4096, 2)), eight_gaussians(keys[3], 4096)
    fresh = sliced_wasserstein(eight_gaussians(keys[4], 4096), y_test)
    print(f"sliced Wasserstein distance to held-out data (of fresh data: {fresh:.4f})")

    weights = initial_weights(keys[5])
    zeros = jax.tree.map(jnp.zeros_like, weights)
    moments = (zeros, zeros)
    for step in range(args.steps + 1):
        if step % max(1, args.steps // 4) == 0 or step == args.steps:
            distance = sliced_wasserstein(f(weights, z_test), y_test)
            print(f"step {step:5d}   distance {distance:.4f}", flush=True)
        if step < args.steps:
            rate = RATE * (1 - step / args.steps)
            weights, moments = adam_step(weights, moments, step + 1.0, rate, z[step], y[step])


if __name__ == "__main__":
    main()
