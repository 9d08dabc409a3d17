// Centroids of minibatches, in float64: kernel → log-weights → α → γ → T = Σ γ_i y_i, and means over many minibatches.
//
// A point is [a, b]; points are an array of them. x is a query, y are references, tau is the temperature τ.
// The formulas are those of the Python library, and the tests compare both.

// Random numbers

/** Make a generator of uniform numbers in [0, 1): sfc32, a function of a few integers (seed, stream, …). */
function makeGenerator(...seeds) {
  let [a, b, c, counter] = [seeds[0] | 0, seeds[1] | 0, seeds[2] | 0, 1];
  const next = () => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + sum | 0;
    return (sum >>> 0) / 2 ** 32;
  };
  for (let k = 0; k < 15; k++) next();
  return next;
}

/** Draw a point of N(0, I) in the plane (Box–Muller). */
function drawNormal(random) {
  const radius = Math.sqrt(-2 * Math.log(1 - random()));
  const angle = 2 * Math.PI * random();
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
}

/** Draw points of the mixture (1/K) Σ_k N(center_k, std² I). */
function drawMixture(centers, std, count, random) {
  return Array.from({ length: count }, () => {
    const [a, b] = centers[Math.floor(random() * centers.length)];
    const [da, db] = drawNormal(random);
    return [a + std * da, b + std * db];
  });
}

/** Draw the indices of n references of a pool, with replacement. Draw m of a seed is the same for every query, and the
 *  first references of a larger n are those of a smaller n: the cloud moves smoothly. */
function drawReferences(seed, m, n, poolSize) {
  const random = makeGenerator(seed, m, 0x9e3779b9);
  const index = new Int32Array(n);
  for (let k = 0; k < n; k++) index[k] = Math.floor(random() * poolSize);
  return index;
}

// Kernels and weights

const subtract = (p, q) => [p[0] - q[0], p[1] - q[1]];
const norm = (p) => Math.sqrt(p[0] * p[0] + p[1] * p[1]);
const distance = (p, q) => Math.sqrt((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2);

/** log k(x, y): −‖x − y‖/τ (laplace) or −‖x − y‖²/(2τ²) (gaussian). */
const LOG_KERNELS = {
  laplace: (r, tau) => -r / tau,
  gaussian: (r, tau) => -(r * r) / (2 * tau * tau),
};

/** Compute log w_i = log k(x, y_i). */
function computeLogWeights(x, y, tau, kernel) {
  return y.map((point) => LOG_KERNELS[kernel](distance(x, point), tau));
}

/** Compute α = softmax(log w), without the reference at the place `without`. */
function computeSoftmax(logW, without = -1) {
  let top = -Infinity;
  for (let i = 0; i < logW.length; i++) if (i !== without && logW[i] > top) top = logW[i];
  const alpha = new Float64Array(logW.length);
  let total = 0;
  for (let i = 0; i < logW.length; i++) {
    alpha[i] = i === without ? 0 : Math.exp(logW[i] - top);
    total += alpha[i];
  }
  for (let i = 0; i < alpha.length; i++) alpha[i] /= total;
  return alpha;
}

/** Compute p_k = Σ α_i^k for k = 2 or 3. */
function computePowerSum(alpha, k) {
  let total = 0;
  for (const a of alpha) total += k === 2 ? a * a : a * a * a;
  return total;
}

// Estimators: log w, α → γ with Σγ = 1

const ESTIMATORS = {
  // γ = α
  standard: (logW, alpha) => alpha,

  // γ_i = α_i (1 − p_2 + α_i)
  abc: (logW, alpha) => {
    const p2 = computePowerSum(alpha, 2);
    return alpha.map((a) => a * (1 - p2 + a));
  },

  // γ_i = α_i (1 − p_2 + 3p_2² − 2p_3 + (1 − 3p_2) α_i + 2α_i²)
  abc2: (logW, alpha) => {
    const p2 = computePowerSum(alpha, 2);
    const p3 = computePowerSum(alpha, 3);
    return alpha.map((a) => a * (1 - p2 + 3 * p2 * p2 - 2 * p3 + (1 - 3 * p2) * a + 2 * a * a));
  },

  // n T − (n − 1) mean_i T_{−i}:  γ_j = (2 − 1/n) α_j − (1 − 1/n) α_j Σ_{i≠j} o_i,  o_i = α_i/(1 − α_i).
  // Only the odds of the largest weight can be 0/0. Its term is α_top β_j, with the weights β of the others.
  jackknife: (logW, alpha) => {
    const n = alpha.length;
    const top = alpha.indexOf(Math.max(...alpha));
    const beta = computeSoftmax(logW, top);
    const odds = alpha.map((a, i) => (i === top ? 0 : a / (1 - a)));
    const total = odds.reduce((sum, o) => sum + o, 0);
    return alpha.map((a, j) => (2 - 1 / n) * a - (1 - 1 / n) * (a * (total - odds[j]) + alpha[top] * beta[j]));
  },
};

/** Compute γ of an estimator from log w. */
const computeGamma = (estimator, logW) => ESTIMATORS[estimator](logW, computeSoftmax(logW));

/** Compute Σ γ_i y_i. */
function computeWeightedMean(gamma, y) {
  let [a, b] = [0, 0];
  for (let i = 0; i < gamma.length; i++) {
    a += gamma[i] * y[i][0];
    b += gamma[i] * y[i][1];
  }
  return [a, b];
}

/** Compute the target T*(x): the centroid of the whole pool. */
const computeTarget = (x, pool, tau, kernel) =>
  computeWeightedMean(computeSoftmax(computeLogWeights(x, pool, tau, kernel)), pool);

// The same centroids without γ, from power sums: many minibatches per picture need a fast loop

/** References in a row: log-weights and both coordinates. */
class References {
  constructor(capacity) {
    this.logW = new Float64Array(capacity);
    this.w = new Float64Array(capacity); // of the last power sums
    this.a = new Float64Array(capacity);
    this.b = new Float64Array(capacity);
  }

  set(i, logW, point) {
    this.logW[i] = logW;
    this.a[i] = point[0];
    this.b[i] = point[1];
  }

  /** Compute P_k = Σ w^k and Σ w^k y, k = 1, 2, 3, of `size` references from `begin`; the largest weight is w = 1. */
  sumPowers(begin, size) {
    const { logW, w, a, b } = this;
    let top = begin;
    for (let i = begin; i < begin + size; i++) if (logW[i] > logW[top]) top = i;
    let [P1, P2, P3, a1, a2, a3, b1, b2, b3] = [0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (let i = begin; i < begin + size; i++) {
      const w1 = (w[i] = Math.exp(logW[i] - logW[top]));
      const w2 = w1 * w1;
      const w3 = w1 * w2;
      P1 += w1;
      P2 += w2;
      P3 += w3;
      a1 += w1 * a[i];
      a2 += w2 * a[i];
      a3 += w3 * a[i];
      b1 += w1 * b[i];
      b2 += w2 * b[i];
      b3 += w3 * b[i];
    }
    return { top, P1, P2, P3, a1, a2, a3, b1, b2, b3 };
  }

  /** Compute the centroid of `size` references from `begin` from their power sums.
   *
   *      ABC        T + Y_2 − p_2 T
   *      ABC-2      T + (1 − 3p_2)(Y_2 − p_2 T) + 2 (Y_3 − p_3 T)
   *      jackknife  T − (1 − 1/n) Σ_i o_i (T − y_i)   */
  computeCentroid(estimator, sums, begin, size) {
    const { P1, P2, P3, a1, a2, a3, b1, b2, b3 } = sums;
    const T = [a1 / P1, b1 / P1];
    if (estimator === "standard") return T;
    if (estimator === "jackknife") return this.jackknife(T, sums, begin, size);
    const [p2, p3] = [P2 / P1 ** 2, P3 / P1 ** 3];
    const D2 = [a2 / P1 ** 2 - p2 * T[0], b2 / P1 ** 2 - p2 * T[1]];
    if (estimator === "abc") return [T[0] + D2[0], T[1] + D2[1]];
    const D3 = [a3 / P1 ** 3 - p3 * T[0], b3 / P1 ** 3 - p3 * T[1]];
    return [0, 1].map((axis) => T[axis] + (1 - 3 * p2) * D2[axis] + 2 * D3[axis]);
  }

  /** Compute the jackknife. For the largest weight, o_i (T − y_i) = α_i (T_others − y_i), which is never 0/0. */
  jackknife(T, { top, P1, a1, b1 }, begin, size) {
    if (size === 1) return T;
    let [a, b] = [0, 0];
    for (let i = begin; i < begin + size; i++) {
      if (i === top) continue;
      const odds = this.w[i] / (P1 - this.w[i]);
      a += odds * (T[0] - this.a[i]);
      b += odds * (T[1] - this.b[i]);
    }
    let others = [(a1 - this.a[top]) / (P1 - 1), (b1 - this.b[top]) / (P1 - 1)];
    if (P1 - 1 < 1e-3) {
      // The differences cancel: sum the others relative to their own largest weight
      const alpha = computeSoftmax(this.logW.subarray(begin, begin + size), top - begin);
      others = [this.a, this.b].map((y) => alpha.reduce((sum, value, i) => sum + value * y[begin + i], 0));
    }
    a += (others[0] - this.a[top]) / P1;
    b += (others[1] - this.b[top]) / P1;
    return [T[0] - (1 - 1 / size) * a, T[1] - (1 - 1 / size) * b];
  }
}

// Monte Carlo

/** Sums over the minibatches 0, 1, … of a seed: the centroids of all estimators of the same n references. */
class MinibatchSums {
  constructor(x, pool, tau, kernel, n, seed) {
    Object.assign(this, { pool, n, seed });
    this.logW = computeLogWeights(x, pool, tau, kernel);
    this.target = computeTarget(x, pool, tau, kernel);
    this.references = new References(n);
    this.count = 0;
    this.sumOfEffectiveSizes = 0;
    // Per estimator: Σ e and Σ ‖e‖² of the errors e = T − T*
    this.sums = Object.fromEntries(Object.keys(ESTIMATORS).map((name) => [name, { a: 0, b: 0, square: 0 }]));
  }

  /** Add the next minibatch. Returns its centroid per estimator. */
  addDraw() {
    const { n, references } = this;
    const index = drawReferences(this.seed, this.count++, n, this.pool.length);
    for (let k = 0; k < n; k++) references.set(k, this.logW[index[k]], this.pool[index[k]]);
    const powers = references.sumPowers(0, n);
    this.sumOfEffectiveSizes += powers.P1 ** 2 / powers.P2; // n_eff = 1/p_2
    const centroids = {};
    for (const name in ESTIMATORS) {
      const T = references.computeCentroid(name, powers, 0, n);
      const [a, b] = subtract(T, this.target);
      const sum = this.sums[name];
      sum.a += a;
      sum.b += b;
      sum.square += a * a + b * b;
      centroids[name] = T;
    }
    return centroids;
  }

  /** Summarize one estimator: the bias, its standard error √(tr Σ̂/M), and the root mean square distance to T*. */
  summarize(name) {
    const { a, b, square } = this.sums[name];
    const M = this.count;
    const bias = [a / M, b / M];
    const variance = (square / M - bias[0] ** 2 - bias[1] ** 2) * (M / (M - 1));
    return { bias, error: Math.sqrt(Math.max(variance, 0) / M), rms: Math.sqrt(square / M) };
  }

  get meanEffectiveSize() {
    return this.sumOfEffectiveSizes / this.count;
  }
}
