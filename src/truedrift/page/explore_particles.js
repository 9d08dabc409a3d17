// Panel 2: particles moved by the field V = T⁺ − T⁻, with and without matched references.

const MOST_STEPS = 3_000;
const STEPS_PER_FRAME = 3;
const SHOWN_DATA = 400;

/** The settings of this panel at the start, and others to try, each with a sentence on what one sees. */
const STUDY = takeDefaults("positives", "generated", "field_tau", "step_size", "matched", "field_estimator", "modes");
const NEGATIVES = GIVEN.generated - 1;
const FIELD_TRIES = {
  push: {
    values: STUDY,
    sentence:
      "The particles find the four modes, but come to rest too far outside. The bias of T⁻ with " +
      `${NEGATIVES} negatives is larger than that of T⁺ with ${GIVEN.positives} positives. Both biases point to the ` +
      "middle, and their difference pushes the particles outward.",
  },
  match: {
    values: { ...STUDY, matched: "yes" },
    sentence:
      `T⁺ is now the mean over ${GIVEN.positives / NEGATIVES} windows of ${NEGATIVES} positives. Both centroids have ` +
      "the same bias where particles and data agree, and it cancels: the particles come to rest on the data, around " +
      "each mode a little wider than it.",
  },
  correct: {
    values: { ...STUDY, field_estimator: "abc" },
    sentence: `${NEGATIVES} negatives are too few for the correction, and most of the push remains without windows.`,
  },
  equal: {
    values: { ...STUDY, generated: 64 },
    sentence:
      "Groups of 64 particles have 63 negatives, as many as positives. The particles come to rest on the data " +
      `without windows, but a generator must then make 64 samples per step instead of ${GIVEN.generated}.`,
  },
};

class ParticlePanel {
  constructor(settings) {
    this.settings = settings;
    this.isPlaying = false;
    this.data = drawMixture([[0, 0]], GIVEN.mode_std, SHOWN_DATA, makeGenerator(0, 3, 3));
    this.plane = new Plane("field-plane", PARTICLE_REACH, () => this.drawPlane());
    this.plot = new Plot("field-plot", () => this.drawPlot());
    connectSlider(settings, "generated", (g) => `${g}, so ${g - 1} negatives`);
    connectSlider(settings, "positives", () => this.describePositives());
    connectSlider(settings, "field_tau", (value) => `${value}`);
    connectSlider(settings, "step_size", (value) => `${value}`);
    connectChoice(settings, "matched");
    connectChoice(settings, "field_estimator");
    connectPoints(settings, "modes", this.plane, "mode of the data", "cluster");
    connectTries(settings, "field-tries", FIELD_TRIES, () => this.play());
    document.getElementById("play").addEventListener("click", () => (this.isPlaying ? this.pause() : this.play()));
    document.getElementById("step").addEventListener("click", () => this.takeStep());
    document.getElementById("reset").addEventListener("click", () => this.reset());
    settings.listeners.push((keys) => {
      if (keys.some((key) => key in STUDY)) this.changeField();
    });
    this.reset();
  }

  /** Return the options of the field. n is the multiple of g − 1 nearest to the slider, so that windows are blocks. */
  get options() {
    const { values } = this.settings;
    const g = values.generated;
    return {
      n: Math.max(1, Math.round(values.positives / (g - 1))) * (g - 1),
      g,
      tau: values.field_tau,
      eta: values.step_size,
      estimator: values.field_estimator,
      matched: values.matched === "yes",
      modes: values.modes,
    };
  }

  /** Return whether the mean displacement over the last 50 steps is below a fifth of the deviation of a mode. */
  get isAtRest() {
    return this.flow.displacement < GIVEN.rest_displacement;
  }

  describePositives() {
    const { n, g } = this.options;
    return `${n} = ${n / (g - 1)} × ${g - 1}`;
  }

  // Play

  reset() {
    this.flow = new Flow(0, GIVEN.start_std, GIVEN.mode_std);
    this.isPlaying = false;
    this.measure();
    this.show();
  }

  /** Let the particles move on in the new field. If they were at rest, they start again. */
  changeField() {
    const wasAtRest = this.isAtRest;
    this.flow.restart();
    this.measure();
    if (wasAtRest) this.play();
    this.show();
  }

  play() {
    if (this.isAtRest || this.flow.age >= MOST_STEPS) this.flow.restart();
    this.isPlaying = true;
    this.requestFrame();
    this.show();
  }

  pause() {
    this.isPlaying = false;
    this.show();
  }

  requestFrame() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.isPlaying) this.work();
    });
  }

  /** Move the particles for one frame; with less motion, only every 50th step is shown. */
  work() {
    const begin = performance.now();
    let steps = 0;
    do {
      this.flow.move(this.options);
      this.measure();
      steps += 1;
    } while (steps < STEPS_PER_FRAME && performance.now() - begin < FRAME_MILLISECONDS && !this.isAtRest);
    if (this.isAtRest || this.flow.age >= MOST_STEPS) this.isPlaying = false;
    if (!prefersLessMotion() || !this.isPlaying || this.flow.steps % 50 < steps) this.show();
    if (this.isPlaying) this.requestFrame();
    this.milliseconds = (performance.now() - begin) / steps;
  }

  takeStep() {
    this.isPlaying = false;
    this.flow.move(this.options);
    this.measure();
    this.show();
  }

  /** Add the energy distance to the curve; it replaces that of the same step. */
  measure() {
    const { modes, matched } = this.options;
    const { points, steps, curve } = this.flow;
    this.distance = computeEnergyDistance(points, modes, GIVEN.mode_std);
    if (curve.at(-1)?.[0] === steps) curve.pop();
    curve.push([steps, this.distance.energy, matched]);
  }

  // Pictures and numbers

  show() {
    if (!this.distance) return;
    this.plane.refresh();
    this.plot.refresh();
    this.writeNumbers();
  }

  drawPlane() {
    if (!this.flow) return;
    const { modes, matched } = this.options;
    const data = this.data.map(([a, b], k) => [modes[k % modes.length][0] + a, modes[k % modes.length][1] + b]);
    this.plane.drawDots(data.map((point) => this.plane.toPixels(point)), "pool", 2.2);
    const color = matched ? "matched" : "unmatched";
    this.plane.drawDots(this.flow.points.map((point) => this.plane.toPixels(point)), color, 3, 0.85);
  }

  /** Draw the energy distance over the steps, in the color of the field that moved the particles. */
  drawPlot() {
    if (!this.flow) return;
    const { plot } = this;
    const { curve } = this.flow;
    const last = Math.max(100, curve.at(-1)[0]);
    const every = [20, 50, 100, 200, 500, 1000, 2000].find((step) => last / step <= 6) ?? 5000;
    const ticks = [];
    for (let step = 0; step <= last; step += every) ticks.push([step, `${step}`]);
    const expected = this.distance.expected;
    const values = [expected, ...curve.map((point) => point[1])];
    const from = Math.max(1e-5, 10 ** Math.floor(Math.log10(Math.max(1e-12, Math.min(...values)))));
    const to = 10 ** Math.ceil(Math.log10(Math.max(...values)));
    plot.drawAxes({ from: 0, to: last, ticks }, { from, to, log: true, ticks: listDecades(from, to) });
    plot.drawCurve([[0, expected], [last, expected]], "soft", 1.2, [5, 4]);
    let begin = 0;
    curve.forEach((point, k) => {
      const next = curve[k + 1];
      if (next && next[2] === point[2]) return;
      plot.drawCurve(curve.slice(Math.max(0, begin - 1), k + 1), point[2] ? "matched" : "unmatched", 2);
      begin = k + 1;
    });
  }

  writeNumbers() {
    const { flow } = this;
    const { modes } = this.options;
    writeText("field-step", flow.steps.toLocaleString("en"));
    writeText("energy", formatNumber(this.distance.energy));
    writeText("energy-expected", formatNumber(this.distance.expected));
    writeText("radius", formatNumber(computeRadiusRatio(flow.points, modes, GIVEN.mode_std)));
    writeText("displacement", formatNumber(flow.displacement));
    writeText("play", this.isPlaying ? "Pause" : "Play");
    writeText("field-status", this.describeStatus());
  }

  describeStatus() {
    const { flow } = this;
    if (this.isPlaying) return "The particles are moving.";
    if (flow.steps === 0) return "The particles are at the start.";
    return this.isAtRest ? `The particles rest after ${flow.steps} steps.` : `Paused after ${flow.steps} steps.`;
  }
}

// The page

const settings = new Settings();
const panels = { bias: new BiasPanel(settings) };
if (isEmbedded) tellHeight();
else panels.particles = new ParticlePanel(settings);

/** For tests and for the console of the browser. */
window.explore = {
  settings,
  panels,
  makeGenerator,
  drawMixture,
  drawReferences,
  computeLogWeights,
  computeSoftmax,
  computeGamma,
  computeField,
  computeEnergyDistance,
  computeRadiusRatio,
  encodeState,
  decodeState,
  MinibatchSums,
  ExactBias,
  Flow,
};
