// Panel 1: the bias of a minibatch centroid (`fig:illustration`, alive).

const POOL_POINTS = 300;
const [LEAST_DRAWS, SHOWN_DRAWS, ALL_DRAWS] = [50, 400, 10_000]; // per frame, as dots, in the measured mean
const MOST_RINGS = 64;
const PLOTTED_N = [2, 4, 8, 16, 32, 64, 128, 256, 512];

/** The settings of this panel at the start, and others to try, each with a sentence on what one sees. */
const FIGURE = takeDefaults("n", "tau", "kernel", "estimator", "query", "clusters");
const BIAS_TRIES = {
  start: {
    values: FIGURE,
    sentence:
      "Every small dot is the centroid of one minibatch. Their mean, the large mark, misses the target: it is drawn " +
      "toward the middle of the data. More minibatches do not help, because the arrow is a bias and not noise.",
  },
  abc: {
    values: { ...FIGURE, estimator: "abc" },
    sentence:
      "The same references get other weights, γ = α (1 − Σα² + α). The arrow is less than half as long. The cloud " +
      "stays as wide as it was: ABC corrects the mean, not every single minibatch.",
  },
  many: {
    values: { ...FIGURE, n: 64, estimator: "abc" },
    sentence:
      "The standard bias is small now, and that of ABC is about a hundred times smaller. In the plot of bias against " +
      "n, the standard line falls as 1/n, those of ABC and the jackknife as 1/n², and that of ABC-2 as 1/n³.",
  },
  cold: {
    values: { ...FIGURE, n: 8, tau: 0.1, estimator: "abc" },
    sentence:
      "The nearest reference has most of the weight: n_eff is below 2. ABC hardly changes the bias, and the jackknife " +
      "makes it worse. Make n or τ larger: the arrow gets shorter.",
  },
  flat: {
    values: { ...FIGURE, tau: 5 },
    sentence:
      "All references have almost the same weight, and the bias is small. But the target is close to the mean of all " +
      "data, wherever you drag the query.",
  },
};

class BiasPanel {
  constructor(settings) {
    this.settings = settings;
    this.seed = 0;
    this.offsets = drawMixture([[0, 0]], GIVEN.std, POOL_POINTS, makeGenerator(0, 1, 1));
    this.plane = new Plane("bias-plane", BIAS_REACH, () => this.drawPlane());
    this.lens = new Picture("bias-lens", () => this.drawLens());
    this.plot = new Plot("bias-plot", () => this.drawPlot());
    connectSlider(settings, "n", (value) => `${value}`);
    connectSlider(settings, "tau", (value) => `${value}`);
    connectChoice(settings, "kernel");
    connectChoice(settings, "estimator");
    connectPoints(settings, "clusters", this.plane, "cluster", "cluster");
    connectPoints(settings, "query", this.plane, "query", "query");
    connectTries(settings, "bias-tries", BIAS_TRIES);
    document.getElementById("bias-again").addEventListener("click", () => {
      this.seed += 1;
      this.restart();
    });
    settings.listeners.push((keys) => {
      const own = keys.filter((key) => key in FIGURE);
      if (own.some((key) => key !== "estimator")) this.restart(own);
      else if (own.length > 0) this.show();
    });
    this.restart(["query"]);
  }

  /** Return the pool: equally many points around every cluster. */
  get pool() {
    const { clusters } = this.settings.values;
    return this.offsets.map(([a, b], k) => {
      const center = clusters[k % clusters.length];
      return [center[0] + a, center[1] + b];
    });
  }

  /** Begin with minibatch 0 in the next frame. The transforms of the pool are the same for every n and seed. */
  restart(keys = []) {
    this.isExactOld ||= keys.some((key) => !["n", "estimator"].includes(key));
    this.areSumsOld = true;
    this.requestFrame();
  }

  requestFrame() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.work();
    });
  }

  /** Compute for one frame: what changed, then minibatches until the time of the frame is over. */
  work() {
    const begin = performance.now();
    const { query, tau, kernel, n } = this.settings.values;
    if (this.isExactOld) {
      this.points = this.pool;
      this.exact = new ExactBias(query, this.points, tau, kernel);
      this.isExactOld = false;
    }
    if (this.areSumsOld) {
      this.sums = new MinibatchSums(query, this.points, tau, kernel, n, this.seed);
      this.cloud = [];
      this.biases = Object.fromEntries(Object.keys(ESTIMATORS).map((name) => [name, this.exact.computeBias(name, n)]));
      this.areSumsOld = false;
    }
    const least = Math.min(this.sums.count + LEAST_DRAWS, ALL_DRAWS);
    const hasTime = () => this.sums.count < ALL_DRAWS && performance.now() - begin < FRAME_MILLISECONDS;
    while (this.sums.count < least || hasTime()) {
      const centroids = this.sums.addDraw();
      if (this.cloud.length < SHOWN_DRAWS) this.cloud.push(centroids);
    }
    const done = this.sums.count >= ALL_DRAWS;
    if (!done) this.requestFrame();
    if (done || this.cloud.length === this.sums.count || !prefersLessMotion()) this.show();
    this.milliseconds = performance.now() - begin;
  }

  /** Draw everything and write the numbers. */
  show() {
    if (!this.sums) return;
    for (const picture of [this.plane, this.lens, this.plot]) picture.refresh();
    this.writeNumbers();
  }

  // Pictures

  drawPlane() {
    if (!this.sums) return;
    const { plane, settings } = this;
    const { estimator } = settings.values;
    const place = (point) => plane.toPixels(point);
    plane.drawDots(this.points.map(place), "pool", 2.2);
    plane.drawDots(this.cloud.map((centroids) => place(centroids[estimator])), estimator, 2, 0.4);
    if (this.sums.n <= MOST_RINGS) this.drawMinibatch(place);
    const mean = this.addToTarget(this.sums.summarize(estimator).bias);
    plane.drawArrow(place(this.exact.target), place(mean), "ink");
    plane.drawMark(place(mean), LOOKS[estimator].shape, estimator, 8);
    plane.drawMark(place(this.exact.target), "diamond", "target", 5);
  }

  /** Draw the references of minibatch 0 as rings, whose areas are the weights |γ| of the estimator. */
  drawMinibatch(place) {
    const { estimator } = this.settings.values;
    const index = drawReferences(this.seed, 0, this.sums.n, this.points.length);
    const gamma = computeGamma(estimator, Array.from(index, (i) => this.sums.logW[i]));
    index.forEach((i, k) => {
      this.plane.drawRing(place(this.points[i]), "ink", 3 + 12 * Math.sqrt(Math.abs(gamma[k])), 1.2);
    });
  }

  addToTarget(bias) {
    return [this.exact.target[0] + bias[0], this.exact.target[1] + bias[1]];
  }

  /** Draw the exact means around the target, magnified so that all fit, and the measured mean. */
  drawLens() {
    if (!this.sums) return;
    const { lens } = this;
    const { estimator } = this.settings.values;
    // The target and all means fill the picture
    const measured = this.sums.summarize(estimator);
    const marks = [[0, 0], ...Object.values(this.biases), measured.bias];
    const axes = [0, 1].map((axis) => marks.map((mark) => mark[axis]));
    const [low, high] = [axes.map((values) => Math.min(...values)), axes.map((values) => Math.max(...values))];
    const [width, height] = subtract(high, low);
    const scale = Math.min((lens.width - 80) / Math.max(width, 1e-12), (lens.height - 80) / Math.max(height, 1e-12));
    const place = ([a, b]) => [
      lens.width / 2 + scale * (a - (low[0] + high[0]) / 2),
      lens.height / 2 - scale * (b - (low[1] + high[1]) / 2),
    ];
    // Marks
    lens.drawRing(place(measured.bias), estimator, scale * measured.error, 1.2);
    lens.drawArrow(place([0, 0]), place(this.biases[estimator]), "ink");
    const names = Object.keys(LOOKS).filter((name) => name !== estimator);
    for (const name of names) lens.drawMark(place(this.biases[name]), LOOKS[name].shape, name, 5);
    lens.drawMark(place(this.biases[estimator]), LOOKS[estimator].shape, estimator, 8);
    lens.drawMark(place([0, 0]), "diamond", "target", 5);
    // A bar with its length
    const length = 10 ** Math.floor(Math.log10((0.6 * lens.width) / scale));
    const y = lens.height - 12;
    lens.drawLine([[14, y], [14 + scale * length, y]], "soft", 2);
    lens.drawText(formatNumber(length, 1), [14, y - 10], { align: "left" });
  }

  /** Draw the exact bias against n for every estimator, with a mark at the current n. */
  drawPlot() {
    if (!this.sums) return;
    const { plot } = this;
    const { estimator, n } = this.settings.values;
    const order = Object.keys(LOOKS).sort((a, b) => (a === estimator) - (b === estimator)); // the current one on top
    const measure = (name) => PLOTTED_N.map((size) => [size, norm(this.exact.computeBias(name, size))]);
    const curves = order.map((name) => [name, measure(name)]);
    const values = curves.flatMap(([, points]) => points.map((point) => point[1]));
    const to = 10 ** Math.ceil(Math.log10(Math.max(...values, 1e-6)));
    const from = Math.max(10 ** Math.floor(Math.log10(Math.max(Math.min(...values), 1e-12))), to * 1e-8);
    const ticks = PLOTTED_N.filter((_, k) => k % 2 === 0).map((size) => [size, `${size}`]);
    plot.drawAxes({ from: 2, to: 512, log: true, ticks }, { from, to, log: true, ticks: listDecades(from, to) });
    const [x, bottom] = plot.toPixels([n, from]);
    plot.drawLine([[x, plot.toPixels([n, to])[1]], [x, bottom]], "soft", 1, [4, 3]);
    for (const [name, points] of curves) {
      plot.drawCurve(points, name, name === estimator ? 3 : 1.5);
      const value = norm(this.biases[name]);
      const size = name === estimator ? 6 : 4.5;
      if (value >= from) plot.drawMark(plot.toPixels([n, value]), LOOKS[name].shape, name, size);
    }
  }

  // Numbers

  writeNumbers() {
    const { estimator, n } = this.settings.values;
    for (const name in LOOKS) {
      const measured = this.sums.summarize(name);
      writeText(`exact-${name}`, formatNumber(norm(this.biases[name])));
      writeText(`measured-${name}`, `${formatNumber(norm(measured.bias))} ±\u00a0${formatNumber(measured.error, 2)}`);
      writeText(`rms-${name}`, formatNumber(measured.rms));
      document.getElementById(`row-${name}`).classList.toggle("chosen", name === estimator);
    }
    document.getElementById("cloud-mark").className = `mark dot ${estimator}`;
    writeText("draws", this.sums.count.toLocaleString("en"));
    writeText("n-eff", `${formatNumber(this.sums.meanEffectiveSize)} of ${n}`);
    writeText("bias-length", formatNumber(norm(this.biases[estimator])));
    writeText("bias-name", LOOKS[estimator].label);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.tellReaders(), 800);
  }

  /** Write one sentence for screen readers when nothing has changed for a while. */
  tellReaders() {
    const { estimator, n } = this.settings.values;
    const [bias, standard] = [estimator, "standard"].map((name) => formatNumber(norm(this.biases[name])));
    const nEff = formatNumber(this.sums.meanEffectiveSize);
    const name = LOOKS[estimator].label;
    writeText("bias-status", `Bias of ${name}: ${bias}; standard: ${standard}; n_eff ${nEff} of ${n}.`);
  }
}
