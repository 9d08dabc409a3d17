"""A training step computed literally by its formulas in float64: loops over classes and scales, plain autograd.

    loss = mean over class c and scale s of ‖f − sg(f + V)‖²/(gD),   g ← g · min(1, clip/‖g‖)
    m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  θ ← θ − lr·λ·θ − lr · m̂/(√v̂ + 1e-8),   θ̄ ← βθ̄ + (1 − β)θ

Only the random draws of a step (noise, labels, image indices) come from the package; they are tested separately.
"""

from __future__ import annotations

import copy

import torch
from oracles.drift_loss import literal_drift_loss
from oracles.matching import literal_matched_drift
from torch import Tensor

from truedrift.data import ClassBatches, Samples, to_model_range
from truedrift.training import RunConfig, draw_inputs


class LiteralRun:
    """A generator with textbook AdamW and weight average; `encode` is the frozen encoder."""

    def __init__(self, config: RunConfig, generator, encode, samples: Samples) -> None:
        self.config, self.encode, self.samples = config, encode, samples
        self.generator = copy.deepcopy(generator)
        self.theta = list(self.generator.parameters())
        self.m = [torch.zeros_like(p) for p in self.theta]
        self.v = [torch.zeros_like(p) for p in self.theta]
        self.average = [p.detach().clone() for p in self.theta]
        options = config.batch
        self.batches = ClassBatches(
            samples.labels,
            len(samples.classes),
            n=options.n,
            seed=config.seed,
            flips=samples.flips,
            classes_per_step=options.labels,
        )

    def image(self, index: int, mirrored: bool) -> Tensor:
        values = to_model_range(self.samples.values[index]).double()  # bytes become float32 first
        return values.flip(-1) if mirrored else values

    def features(self, indices: Tensor, mirrored: Tensor) -> tuple[Tensor, ...]:
        images = [self.image(i, flip) for i, flip in zip(indices.tolist(), mirrored.tolist(), strict=True)]
        return tuple(self.encode(torch.stack(images)))

    def loss(self, step: int, hidden_drift_as: int | None = None) -> Tensor:
        """Return the mean over groups; each generated sample belongs to the class it was drawn for, hidden or not.

        `hidden_drift_as` introduces a mistake that tests must detect: samples with hidden labels drift as that class.
        """
        config = self.config
        drawn = self.batches.classes_at(step).classes
        draws = draw_inputs(config, self.generator, step)
        generated_samples = self.generator(draws.z.double(), draws.labels, draws.strength.double(), draws.style_ids)
        member = drawn.repeat_interleave(config.generated)
        hidden = draws.labels == len(self.samples.classes)
        assert torch.equal(draws.labels[~hidden], member[~hidden])
        if hidden_drift_as is not None:
            member[hidden] = hidden_drift_as
        batch = self.batches.at(step)
        u, unconditional, negatives = config.batch.unconditional, None, None
        if u:
            unconditional = self.batches.unconditional(step, u)
            negatives = self.features(unconditional.indices, unconditional.mirrored)
        fresh_negatives = self.fresh_features(step)
        losses = []
        for row, c in enumerate(drawn.tolist()):
            assert (self.samples.labels[batch.indices[row]] == c).all()
            gen = self.encode(generated_samples[member == c])
            pos = self.features(batch.indices[row], batch.mirrored[row])
            strength = draws.strength[row * config.generated].double()
            weight = (strength - 1) * (config.generated - 1) / u if u else None
            for s in range(len(gen)):
                if fresh_negatives is not None or config.objective.matched:
                    fresh = None if fresh_negatives is None else fresh_negatives[s][row]
                    losses.append(self.matched_loss(gen[s], pos[s], fresh))
                    continue
                sides = [gen[s][None, None], pos[s][None, None], negatives[s][None, None] if u else None]
                options = config.objective
                loss = literal_drift_loss(
                    *sides,
                    temperatures=options.temperatures,
                    normalization=options.normalization,
                    form=options.form,
                    abc_pos=options.estimator_pos == "abc",
                    abc_neg=options.estimator_neg == "abc",
                    feature_scale=options.feature_scale,
                    weight_neg=weight.expand(1, 1, u) if u else None,
                )
                losses.append(loss.squeeze())
        return torch.stack(losses).mean()

    def fresh_features(self, step: int) -> list[Tensor] | None:
        """Features [classes of the step, r, D] of the fresh negatives at every scale, by sample; constants."""
        r = self.config.batch.fresh_negatives
        if r == 0:
            return None
        draws = draw_inputs(self.config, self.generator, step, fresh=True)
        with torch.no_grad():
            rows = [
                self.encode(self.generator(z[None], label[None], strength[None], ids[None]))
                for z, label, strength, ids in zip(
                    draws.z.double(), draws.labels, draws.strength.double(), draws.style_ids, strict=True
                )
            ]
        return [torch.cat(scale).unflatten(0, (-1, r)) for scale in zip(*rows, strict=True)]

    def matched_loss(self, gen: Tensor, pos: Tensor, fresh: Tensor | None) -> Tensor:
        """Loss of one group of standardized unit features, by loops over windows, queries and references."""
        options = self.config.objective
        assert options.feature_scale == "standardize-l2"
        sides = [gen, pos] if fresh is None else [gen, pos, fresh]
        together = torch.cat([side.detach() for side in sides])
        mean, deviation = together.mean(0), together.std(0)
        f, y, *rest = (torch.nn.functional.normalize((side - mean) / deviation, dim=-1) for side in sides)
        x = f.detach()
        total = torch.zeros_like(x)
        for tau in options.temperatures:
            V = literal_matched_drift(
                x,
                y,
                rest[0] if rest else x,
                tau=tau,
                normalization=options.normalization,
                form=options.form,
                estimator=options.estimator_pos,
                own=not rest,
                matched=options.matched,
                relative=True,
            )
            total = total + V / (V.square().mean() + 1e-8).sqrt()
        return (f - (x + total)).square().mean()

    def step(self, step: int) -> tuple[float, float]:
        """Take step number `step`, counted from 0; return its loss and gradient norm."""
        loss, options = self.loss(step), self.config.optimizer
        gradients = torch.autograd.grad(loss, self.theta)
        norm = float(sum(g.square().sum() for g in gradients)) ** 0.5
        scale = min(1.0, options.clip / norm)
        lr = options.learning_rate * min(1.0, (step + 1) / options.warmup_steps)
        with torch.no_grad():
            for i, (p, gradient) in enumerate(zip(self.theta, gradients, strict=True)):
                g = gradient * scale
                self.m[i] = options.beta1 * self.m[i] + (1 - options.beta1) * g
                self.v[i] = options.beta2 * self.v[i] + (1 - options.beta2) * g**2
                m_hat = self.m[i] / (1 - options.beta1 ** (step + 1))
                v_hat = self.v[i] / (1 - options.beta2 ** (step + 1))
                p.copy_(p - lr * options.weight_decay * p - lr * m_hat / (v_hat.sqrt() + 1e-8))
                self.average[i] = options.ema * self.average[i] + (1 - options.ema) * p
        return float(loss.detach()), norm
