// The exact bias of a centroid: E[T_n] − T* over all minibatches of n references from a pool, without Monte Carlo.
//
// A centroid is a ratio whose denominator S = Σ w depends on all draws. 1/S^m = ∫ t^{m−1}/(m−1)! e^{−tS} dt makes them
// independent, because e^{−tS} is a product with one factor per draw. A product of sums is expanded over the partitions
// of its factors: those of one block refer to the same draw.

// The centroids as polynomials of p_k = Σ α^k and Y_k = Σ α^k y. [coefficient, k of Y_k, powers k of the factors p_k]
const CENTROIDS = {
  standard: [[1, 1, []]],
  abc: [[1, 1, []], [1, 2, []], [-1, 1, [2]]],
  abc2: [[1, 1, []], [1, 2, []], [2, 3, []], [-1, 1, [2]], [-3, 2, [2]], [3, 1, [2, 2]], [-2, 1, [3]]],
};

/** List the ways to split items into blocks. */
function listPartitions(items) {
  if (items.length === 0) return [[]];
  const [first, ...rest] = items;
  return listPartitions(rest).flatMap((partition) => [
    [[first], ...partition],
    ...partition.map((block, k) => partition.with(k, [first, ...block])),
  ]);
}

/** List the integrals of an estimator's mean: for each monomial of m powers of w, and each partition of its factors
 *  over draws, [coefficient/(m−1)!, power of the block with y, powers of the other blocks]. */
function listMeanTerms(name) {
  return CENTROIDS[name].flatMap(([coefficient, powerOfY, powers]) => {
    const factors = [powerOfY, ...powers]; // the first has y
    const m = factors.reduce((sum, power) => sum + power, 0);
    let factorial = 1;
    for (let k = 2; k < m; k++) factorial *= k;
    return listPartitions(factors.map((_, place) => place)).map((partition) => {
      const power = (block) => block.reduce((sum, place) => sum + factors[place], 0);
      const others = partition.filter((block) => !block.includes(0)).map(power);
      return [coefficient / factorial, power(partition.find((block) => block.includes(0))), others];
    });
  });
}

const MEAN_TERMS = Object.fromEntries(Object.keys(CENTROIDS).map((name) => [name, listMeanTerms(name)]));
const ROW = 3 * 5; // the highest power is 5
const NODE_STEP = 3 / 16;
const LARGEST_N = 512;
const [NODES_BELOW, NODES_ABOVE] = [Math.ceil(40 / NODE_STEP), Math.ceil(5 / NODE_STEP)];
const EXPONENTIALS = Float64Array.from({ length: NODES_BELOW + NODES_ABOVE + 1 }, (_, k) =>
  Math.exp((k - NODES_BELOW) * NODE_STEP),
);

/** Exact bias E[T_n] − T* of references drawn with replacement from a pool, for any n up to `LARGEST_N`.
 *
 *  With w = e^{−s} (s = 0 at the largest weight), y centered at T*, and t = e^u, the transforms
 *
 *      M_p(u) = t^p E[w^p f e^{−tw}] = E[f H_p(u − s)],   H_p(z) = e^{pz − e^z},   f = 1, a or b,   φ(u) = E[e^{−tw}]
 *
 *  are summed once per query. Then E[T_n] − T* = Σ coefficient · n(n−1)…(n−B+1) ∫ φ^{n−B} Π M du over the terms with B
 *  blocks, by the trapezoid rule, which converges exponentially. */
class ExactBias {
  constructor(x, pool, tau, kernel) {
    const logW = computeLogWeights(x, pool, tau, kernel);
    this.target = computeTarget(x, pool, tau, kernel);
    const top = Math.max(...logW);
    const s = logW.map((value) => top - value);
    const y = pool.map((point) => subtract(point, this.target));
    this.transform(s, y);
    this.combine();
  }

  /** Compute M_p and log φ at the nodes u = first + k·step. H_p(z) is 0 above z = 5 and below z = −40. */
  transform(s, y) {
    const first = Math.floor((-Math.log(LARGEST_N) - 37) / NODE_STEP);
    const count = 1 + Math.ceil((Math.max(...s) + 5) / NODE_STEP) - first;
    const mass = 1 / s.length;
    const M = (this.M = new Float64Array(count * ROW)); // per node and power p: of f = 1, a and b
    const [phi, rest] = [new Float64Array(count), new Float64Array(count)]; // φ and 1 − φ
    for (let i = 0; i < s.length; i++) {
      const [a, b] = y[i];
      // tw at a node is e^{j·step} times one number per point
      const nearest = Math.round(s[i] / NODE_STEP);
      const ratio = Math.exp(nearest * NODE_STEP - s[i]);
      const begin = Math.max(0, nearest - first - NODES_BELOW);
      const end = Math.min(count, nearest - first + NODES_ABOVE + 1);
      for (let k = 0; k < begin; k++) phi[k] += mass;
      for (let k = begin; k < end; k++) {
        const tw = ratio * EXPONENTIALS[k + first - nearest + NODES_BELOW];
        let [decay, less] = [1, tw]; // e^{−tw} and 1 − e^{−tw}, each with all its digits
        if (tw > 0.5) [decay, less] = [Math.exp(-tw), 1 - Math.exp(-tw)];
        else if (tw > 1e-8) [decay, less] = [1 + Math.expm1(-tw), -Math.expm1(-tw)];
        phi[k] += mass * decay;
        rest[k] += mass * less;
        let H = mass * decay;
        for (let place = k * ROW; place < (k + 1) * ROW; place += 3) {
          H *= tw;
          M[place] += H;
          M[place + 1] += H * a;
          M[place + 2] += H * b;
        }
      }
      for (let k = end; k < count; k++) rest[k] += mass;
    }
    // log φ from the smaller one of φ and 1 − φ
    this.logPhi = phi.map((value, k) => (rest[k] < 0.5 ? Math.log1p(-rest[k]) : Math.log(Math.max(value, 1e-300))));
  }

  /** Add up the integrands of the terms with B = 1, 2, 3 blocks of each estimator. */
  combine() {
    const count = this.logPhi.length;
    this.integrands = {};
    for (const name in MEAN_TERMS) {
      const sums = [1, 2, 3].map(() => [new Float64Array(count), new Float64Array(count)]);
      for (const [coefficient, powerOfY, others] of MEAN_TERMS[name]) {
        const [sumA, sumB] = sums[others.length];
        for (let k = 0; k < count; k++) {
          const row = k * ROW - 3;
          let factor = coefficient;
          for (const power of others) factor *= this.M[row + 3 * power];
          sumA[k] += factor * this.M[row + 3 * powerOfY + 1];
          sumB[k] += factor * this.M[row + 3 * powerOfY + 2];
        }
      }
      this.integrands[name] = sums.slice(0, 1 + Math.max(...MEAN_TERMS[name].map((term) => term[2].length)));
    }
  }

  /** Compute the bias of an estimator with n references. Jackknife: n E[T_n] − (n − 1) E[T_{n−1}]. */
  computeBias(name, n) {
    if (name === "jackknife") {
      const [more, less] = [this.computeBias("standard", n), this.computeBias("standard", n - 1)];
      return [0, 1].map((axis) => n * more[axis] - (n - 1) * less[axis]);
    }
    let [a, b] = [0, 0];
    let falling = 1;
    this.integrands[name].forEach(([sumA, sumB], earlier) => {
      falling *= n - earlier; // n (n − 1) … (n − B + 1), 0 if n < B
      if (falling === 0) return;
      for (let k = 0; k < this.logPhi.length; k++) {
        const power = falling * NODE_STEP * Math.exp((n - earlier - 1) * this.logPhi[k]);
        a += power * sumA[k];
        b += power * sumB[k];
      }
    });
    return [a, b];
  }
}
