// State and controls: one object of settings, the fragment of the address, sliders, choices and points to drag; the
// page in a frame.

/** What Python passes to the page: clusters, query and other starting values of the library's studies. */
const GIVEN = JSON.parse(document.getElementById("data").textContent);

/** Time to compute per frame; drawing comes on top. */
const FRAME_MILLISECONDS = 10;

/** Half of the width and height of the planes. */
const [BIAS_REACH, PARTICLE_REACH] = [[2.4, 1.6], [1.8, 1.2]];

/** The settings at the start. A fragment such as #n=64&estimator=abc&query=0.5,0.2 changes some of them. */
const DEFAULTS = {
  // Panel 1
  n: 4,
  tau: GIVEN.tau,
  kernel: "laplace",
  estimator: "standard",
  query: GIVEN.query,
  clusters: GIVEN.clusters,
  // Panel 2
  positives: GIVEN.positives,
  generated: GIVEN.generated,
  field_tau: GIVEN.field_tau,
  step_size: 0.3,
  matched: "no",
  field_estimator: "standard",
  modes: GIVEN.modes,
};
const takeDefaults = (...keys) => Object.fromEntries(keys.map((key) => [key, DEFAULTS[key]]));
const REACH = { query: BIAS_REACH, clusters: BIAS_REACH, modes: PARTICLE_REACH };
const CHOICES = {
  kernel: Object.keys(LOG_KERNELS),
  estimator: Object.keys(ESTIMATORS),
  matched: ["no", "yes"],
  field_estimator: ["standard", "abc"],
};

// Sliders: the position of the input ↔ the value

const takePowers = (base, digits) => ({
  toValue: (position) => Number((base ** position).toPrecision(digits)),
  toPosition: (value) => Math.log(value) / Math.log(base),
});
const takeIntegers = { toValue: (position) => Math.round(2 ** position), toPosition: Math.log2 };
const takePowersOfTwo = { toValue: (position) => 2 ** Math.round(position), toPosition: Math.log2 };
const SLIDERS = {
  n: { min: 1, max: 9, step: 0.125, ...takeIntegers },
  tau: { min: -1, max: 0.7, step: 0.02, ...takePowers(10, 3) },
  positives: { min: 2, max: 9, step: 0.125, ...takeIntegers },
  generated: { min: 2, max: 6, step: 1, ...takePowersOfTwo },
  field_tau: { min: -1.3, max: 0, step: 0.02, ...takePowers(10, 2) },
  step_size: { min: -1.3, max: 0, step: 0.02, ...takePowers(10, 2) },
};

// The fragment

const limit = (value, low, high) => Math.min(Math.max(value, low), high);
const limitPoint = (point, reach) =>
  point.map((value, axis) => Number(limit(value, -reach[axis], reach[axis]).toFixed(3)));

/** Write the settings that differ from the start as text: n=64&query=0.5,0.2. */
function encodeState(state) {
  const changed = Object.keys(DEFAULTS).filter((key) => String(state[key]) !== String(DEFAULTS[key]));
  return changed.map((key) => `${key}=${state[key]}`).join("&");
}

/** Read settings from such text. What is unknown, missing or out of range keeps its value at the start. */
function decodeState(text) {
  const state = structuredClone(DEFAULTS);
  for (const [key, value] of new URLSearchParams(text)) {
    const numbers = value.split(",").map(Number);
    const count = Object.hasOwn(DEFAULTS, key) ? [DEFAULTS[key]].flat(2).length : 0;
    const areNumbers = numbers.length === count && numbers.every(Number.isFinite);
    if (Object.hasOwn(CHOICES, key) && CHOICES[key].includes(value)) state[key] = value;
    if (Object.hasOwn(SLIDERS, key) && areNumbers && numbers[0] > 0) {
      const { min, max, toValue, toPosition } = SLIDERS[key];
      state[key] = toValue(limit(toPosition(numbers[0]), min, max));
    }
    if (Object.hasOwn(REACH, key) && areNumbers) {
      const takePoint = (_, k) => limitPoint(numbers.slice(2 * k, 2 * k + 2), REACH[key]);
      state[key] = key === "query" ? takePoint(null, 0) : Array.from(DEFAULTS[key], takePoint);
    }
  }
  return state;
}

/** The settings of the page. `change` tells the listeners which settings changed. */
class Settings {
  constructor() {
    this.values = decodeState(location.hash.slice(1));
    this.listeners = [];
    addEventListener("hashchange", () => this.change(decodeState(location.hash.slice(1))));
  }

  change(values) {
    const keys = Object.keys(values).filter((key) => String(values[key]) !== String(this.values[key]));
    if (keys.length === 0) return;
    Object.assign(this.values, values);
    for (const listener of this.listeners) listener(keys);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeFragment(), 300);
  }

  writeFragment() {
    const text = encodeState(this.values);
    history.replaceState(null, "", `#${text}`);
  }
}

// The page in a frame of another page

/** In a frame, the page shows its first panel alone, without title and footer. */
const isEmbedded = parent !== window;
document.documentElement.classList.toggle("embedded", isEmbedded);

/** Tell the other page the height of this one, now, when it changes, and when the other page sends a message. */
function tellHeight() {
  const tell = () => parent.postMessage({ height: Math.ceil(document.body.getBoundingClientRect().height) }, "*");
  new ResizeObserver(tell).observe(document.body);
  addEventListener("message", tell);
}

// Text, sliders, choices and points

/** Write text into an element, if it is another one. */
function writeText(id, text) {
  const element = document.getElementById(id);
  if (element.textContent !== text) element.textContent = text;
}

const prefersLessMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Connect buttons that change several settings at once, each with a sentence on what one sees. The sentence stays when
 *  other settings are chosen, in gray, because text that comes and goes would move the controls below it. */
function connectTries(settings, id, tries, afterwards = () => {}) {
  const buttons = [...document.getElementById(id).querySelectorAll("button")];
  const [name, text] = [document.getElementById(`${id}-name`), document.getElementById(`${id}-sentence`)];
  const isChosen = ({ values }) => Object.keys(values).every((key) => String(values[key]) === String(settings.values[key]));
  const show = () => {
    const chosen = buttons.find((button) => isChosen(tries[button.value]));
    for (const button of buttons) button.setAttribute("aria-pressed", button === chosen);
    text.parentElement.classList.toggle("old", !chosen);
    if (!chosen) return;
    name.textContent = `${chosen.textContent}:`;
    text.textContent = tries[chosen.value].sentence;
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      settings.change(tries[button.value].values);
      afterwards();
    });
  }
  settings.listeners.push(show);
  show();
}

/** Connect a slider with its setting. `describe` returns the text beside it. */
function connectSlider(settings, key, describe) {
  const { min, max, step, toValue, toPosition } = SLIDERS[key];
  const [input, output] = [document.getElementById(key), document.getElementById(`${key}-value`)];
  Object.assign(input, { min, max, step });
  const show = () => {
    const value = settings.values[key];
    if (toValue(Number(input.value)) !== value) input.value = toPosition(value);
    output.textContent = describe(value);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => settings.change({ [key]: toValue(Number(input.value)) }));
  settings.listeners.push(show);
  show();
}

/** Connect the radio buttons of a setting. */
function connectChoice(settings, key) {
  const inputs = document.querySelectorAll(`input[name="${key}"]`);
  const show = () => inputs.forEach((input) => (input.checked = input.value === settings.values[key]));
  inputs.forEach((input) => input.addEventListener("change", () => settings.change({ [key]: input.value })));
  settings.listeners.push(show);
  show();
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const [KEY_STEP, KEY_STEP_WITH_SHIFT] = [0.05, 0.25];

/** A point on a plane that is dragged by mouse or finger, or moved by the arrow keys: a button on top of the canvas. */
class Handle {
  constructor(plane, name, look, read, write) {
    Object.assign(this, { plane, name, read, write, button: document.createElement("button") });
    Object.assign(this.button, { type: "button", className: `handle ${look}` });
    plane.canvas.parentElement.append(this.button);
    this.button.addEventListener("pointerdown", (event) => this.grab(event));
    this.button.addEventListener("pointermove", (event) => this.drag(event));
    this.button.addEventListener("keydown", (event) => this.pressKey(event));
    new ResizeObserver(() => this.show()).observe(plane.canvas);
    this.show();
  }

  grab(event) {
    const box = this.plane.canvas.getBoundingClientRect();
    const [x, y] = this.plane.toPixels(this.read());
    this.offset = [box.left + x - event.clientX, box.top + y - event.clientY];
    this.button.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (!this.button.hasPointerCapture(event.pointerId)) return;
    const box = this.plane.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX + this.offset[0] - box.left, event.clientY + this.offset[1] - box.top];
    this.move(this.plane.toPoint([x, y]));
  }

  pressKey(event) {
    if (!(event.key in ARROWS) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const step = event.shiftKey ? KEY_STEP_WITH_SHIFT : KEY_STEP;
    this.move(this.read().map((value, axis) => value + step * ARROWS[event.key][axis]));
  }

  move(point) {
    this.write(limitPoint(point, this.plane.reach));
  }

  show() {
    const [x, y] = this.plane.toPixels(this.read());
    this.button.style.transform = `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    const [a, b] = this.read().map((value) => value.toFixed(2));
    this.button.setAttribute("aria-label", `${this.name} at ${a}, ${b}. Arrow keys move it; with Shift, farther.`);
  }
}

/** Make handles for a setting that is a point or a list of points. */
function connectPoints(settings, key, plane, name, look) {
  const single = key === "query";
  const read = (k) => (single ? settings.values[key] : settings.values[key][k]);
  const write = (k, point) => settings.change({ [key]: single ? point : settings.values[key].with(k, point) });
  const handles = Array.from({ length: single ? 1 : settings.values[key].length }, (_, k) => {
    const title = single ? name : `${name} ${k + 1}`;
    return new Handle(plane, title, look, () => read(k), (point) => write(k, point));
  });
  settings.listeners.push((keys) => keys.includes(key) && handles.forEach((handle) => handle.show()));
}
