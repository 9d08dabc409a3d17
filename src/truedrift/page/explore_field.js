// The drifting field V = T⁺ − T⁻, particles that it moves, and their distance to the data.
//
//     x ← x + η_k V(x),   η_k = η/(1 + k/10),   V from n fresh positives and the g − 1 others of a random group of g.
//
// The step size falls, so that the noise of the minibatches averages out.

// Field

/** Compute the greatest common divisor. */
const computeDivisor = (a, b) => (b === 0 ? a : computeDivisor(b, a % b));

/** Compute the mean over windows of `size` references of the centroids of the windows. Windows lie on a ring of the
 *  references and start at every multiple of gcd(n, size): disjoint blocks if size divides n. */
function computeWindowMean(estimator, x, y, size, tau, kernel) {
  const n = y.length;
  const step = computeDivisor(n, size);
  const references = new References(n + size - step);
  for (let i = 0; i < n; i++) references.set(i, LOG_KERNELS[kernel](distance(x, y[i]), tau), y[i]);
  for (let i = 0; i < size - step; i++) references.set(n + i, references.logW[i], y[i]); // the ring, cut open
  let [a, b] = [0, 0];
  for (let begin = 0; begin < n; begin += step) {
    const T = references.computeCentroid(estimator, references.sumPowers(begin, size), begin, size);
    a += T[0] * (step / n);
    b += T[1] * (step / n);
  }
  return [a, b];
}

/** Compute V = T⁺ − T⁻ at every point of a group. The negatives of a point are the others of its group, in cyclic
 *  order. If matched, both centroids are means over windows of min(n, g − 1) references. */
function computeField(group, positives, { tau, kernel = "laplace", estimator, matched }) {
  return group.map((x, i) => {
    const negatives = [...group.slice(i + 1), ...group.slice(0, i)];
    const [n, m] = [positives.length, negatives.length];
    const size = matched ? Math.min(n, m) : Infinity;
    const T_pos = computeWindowMean(estimator, x, positives, Math.min(size, n), tau, kernel);
    const T_neg = computeWindowMean(estimator, x, negatives, Math.min(size, m), tau, kernel);
    return subtract(T_pos, T_neg);
  });
}

// Energy distance of points to a mixture of Gaussians

/** Compute e^{−a} I₀(a) and e^{−a} I₁(a), a ≥ 0 (Abramowitz & Stegun 9.8.1–9.8.4, error below 2e-7). */
function computeBessel(a) {
  const evaluate = (coefficients, t) => coefficients.reduceRight((total, c) => total * t + c, 0);
  if (a < 3.75) {
    const t = (a / 3.75) ** 2;
    const I0 = evaluate([1, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813], t);
    const I1 = a * evaluate([0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411], t);
    return [Math.exp(-a) * I0, Math.exp(-a) * I1];
  }
  const t = 3.75 / a;
  const c0 = [
    ...[0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281],
    ...[-0.02057706, 0.02635537, -0.01647633, 0.00392377],
  ];
  const c1 = [
    ...[0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555],
    ...[0.02282967, -0.02895312, 0.01787654, -0.00420059],
  ];
  return [evaluate(c0, t) / Math.sqrt(a), evaluate(c1, t) / Math.sqrt(a)];
}

/** Compute E‖x − y‖ for y ~ N(μ, std² I) in the plane, from ν = ‖x − μ‖ (Rice): with a = ν²/(2 std²),
 *  std √(π/2) ((1 + a) I₀(a/2) + a I₁(a/2)) e^{−a/2}. */
function computeMeanDistance(nu, std) {
  const a = (nu / std) ** 2 / 2;
  const [I0, I1] = computeBessel(a / 2);
  return std * Math.sqrt(Math.PI / 2) * ((1 + a) * I0 + a * I1);
}

/** Compute the energy distance 2 E‖x − y‖ − E‖x − x′‖ − E‖y − y′‖ between N points x and a mixture of y, and the value
 *  E‖y − y′‖/N that is expected for N independent draws of the mixture. */
function computeEnergyDistance(points, centers, std) {
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const N = points.length;
  const measure = (list, deviation) =>
    average(list.flatMap((x) => centers.map((center) => computeMeanDistance(distance(x, center), deviation))));
  const [between, among] = [measure(points, std), measure(centers, Math.SQRT2 * std)];
  let pairs = 0;
  for (let i = 0; i < N; i++) for (let j = 0; j < i; j++) pairs += distance(points[i], points[j]);
  return { energy: 2 * between - among - (2 * pairs) / N ** 2, expected: among / N };
}

// Particles

const PARTICLES = 256;
const STEPS_TO_HALF = 10;
const REST_STEPS = 50;

/** Particles that start from N(0, startStd² I) and are moved toward a mixture whose modes have the deviation `std`. */
class Flow {
  constructor(seed, startStd, std) {
    this.std = std;
    this.random = makeGenerator(seed, 2, 2);
    this.points = drawMixture([[0, 0]], startStd, PARTICLES, this.random);
    this.steps = 0; // since the start
    this.curve = []; // [step, energy distance, matched]
    this.restart();
  }

  /** Begin with the large step size again, because the field has changed. */
  restart() {
    this.age = 0;
    this.earlier = []; // the points of the last steps
  }

  /** Move all particles by one step. */
  move({ n, g, tau, eta, estimator, matched, modes }) {
    const { points, random } = this;
    // Deal the particles into groups (Fisher–Yates), each with its own positives
    const order = Array.from(points.keys());
    for (let i = order.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    const stepSize = eta / (1 + this.age / STEPS_TO_HALF);
    const moved = points.slice();
    for (let begin = 0; begin < order.length; begin += g) {
      const group = order.slice(begin, begin + g);
      const positives = drawMixture(modes, this.std, n, random);
      const V = computeField(group.map((i) => points[i]), positives, { tau, estimator, matched });
      group.forEach((i, k) => (moved[i] = points[i].map((value, axis) => value + stepSize * V[k][axis])));
    }
    this.earlier.push(points);
    if (this.earlier.length > REST_STEPS) this.earlier.shift();
    this.points = moved;
    this.steps += 1;
    this.age += 1;
  }

  /** Compute the mean displacement over the last steps; ∞ before there are as many. */
  get displacement() {
    if (this.earlier.length < REST_STEPS) return Infinity;
    return this.points.reduce((sum, point, i) => sum + distance(point, this.earlier[0][i]), 0) / this.points.length;
  }
}

/** Compute the root mean square distance of points to the center of the modes, relative to that of the data. */
function computeRadiusRatio(points, modes, std) {
  const center = computeWeightedMean(modes.map(() => 1 / modes.length), modes);
  const meanSquare = (list) => list.reduce((sum, point) => sum + distance(point, center) ** 2, 0) / list.length;
  return Math.sqrt(meanSquare(points) / (meanSquare(modes) + 2 * std * std));
}
