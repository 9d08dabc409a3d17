// Drawing: canvases that are sharp on every screen, the marks of the estimators, the plane, and plots of curves.

/** Estimator → name for readers and shape of its mark. Its color is the variable --standard, --abc, … of the style. */
const LOOKS = {
  standard: { label: "standard", shape: "circle" },
  abc: { label: "ABC", shape: "square" },
  abc2: { label: "ABC-2", shape: "triangle" },
  jackknife: { label: "jackknife", shape: "cross" },
};

/** Read a color of the style sheet, which differs between light and dark. */
const readColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Format a number with a few significant digits, with an exponent below 0.001. */
function formatNumber(value, digits = 3) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) < 1e-3 ? value.toExponential(digits - 1) : value.toPrecision(digits);
}

/** A canvas that is drawn again when its size, the resolution or the color scheme changes. */
class Picture {
  constructor(id, draw) {
    this.canvas = document.getElementById(id);
    this.context = this.canvas.getContext("2d");
    this.draw = draw;
    new ResizeObserver(() => this.refresh()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  /** Clear the canvas and draw. One unit of the drawing is one pixel of CSS. */
  refresh() {
    const { canvas, context } = this;
    [this.width, this.height] = [canvas.clientWidth, canvas.clientHeight];
    if (this.width === 0) return;
    const [width, height] = [this.width, this.height].map((size) => Math.round(size * devicePixelRatio));
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.draw(this);
  }

  // Marks

  drawDots(points, color, radius, opacity = 1) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.fillStyle = readColor(color);
    for (const [x, y] of points) {
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  drawRing([x, y], color, radius, width = 1.5) {
    const { context } = this;
    context.strokeStyle = readColor(color);
    context.lineWidth = width;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
  }

  /** Draw a mark with an edge in the color of the paper. */
  drawMark([x, y], shape, color, size) {
    const { context } = this;
    const corners = {
      square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
      diamond: [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]],
      triangle: [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
      cross: [
        ...[[-1.1, -0.5], [-0.5, -1.1], [0, -0.6], [0.5, -1.1], [1.1, -0.5], [0.6, 0]],
        ...[[1.1, 0.5], [0.5, 1.1], [0, 0.6], [-0.5, 1.1], [-1.1, 0.5], [-0.6, 0]],
      ],
    };
    context.beginPath();
    if (shape === "circle") context.arc(x, y, size, 0, 2 * Math.PI);
    else corners[shape].forEach(([a, b]) => context.lineTo(x + size * a, y + size * b));
    context.closePath();
    context.fillStyle = readColor(color);
    context.strokeStyle = readColor("paper");
    context.lineWidth = 1.5;
    context.stroke();
    context.fill();
  }

  drawLine(points, color, width = 1.5, dash = []) {
    const { context } = this;
    context.strokeStyle = readColor(color);
    context.lineWidth = width;
    context.setLineDash(dash);
    context.beginPath();
    for (const [x, y] of points) context.lineTo(x, y);
    context.stroke();
    context.setLineDash([]);
  }

  /** Draw an arrow; nothing if it is shorter than two pixels. */
  drawArrow(from, to, color, width = 2) {
    const length = distance(from, to);
    if (length < 2) return;
    const [ux, uy] = subtract(to, from).map((value) => value / length);
    const head = Math.min(9, length);
    const base = [to[0] - head * ux, to[1] - head * uy];
    this.drawLine([from, base], color, width);
    this.context.fillStyle = readColor(color);
    this.context.beginPath();
    this.context.moveTo(...to);
    this.context.lineTo(base[0] - 0.5 * head * uy, base[1] + 0.5 * head * ux);
    this.context.lineTo(base[0] + 0.5 * head * uy, base[1] - 0.5 * head * ux);
    this.context.fill();
  }

  drawText(text, [x, y], { align = "center", baseline = "middle", color = "soft", size = 12 } = {}) {
    Object.assign(this.context, { textAlign: align, textBaseline: baseline, fillStyle: readColor(color) });
    this.context.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    this.context.fillText(text, x, y);
  }
}

/** A picture of the plane. The window [−reach a, reach a] × [−reach b, reach b] fits inside, with equal scales. */
class Plane extends Picture {
  constructor(id, reach, draw) {
    super(id, draw);
    this.reach = reach;
  }

  get scale() {
    return Math.min(this.canvas.clientWidth / this.reach[0], this.canvas.clientHeight / this.reach[1]) / 2;
  }

  /** Return the place of a point in pixels. */
  toPixels([a, b]) {
    return [this.canvas.clientWidth / 2 + this.scale * a, this.canvas.clientHeight / 2 - this.scale * b];
  }

  /** Return the point at a place in pixels. */
  toPoint([x, y]) {
    return [(x - this.canvas.clientWidth / 2) / this.scale, (this.canvas.clientHeight / 2 - y) / this.scale];
  }
}

/** A plot with frame, ticks and curves. An axis is { from, to, ticks: [[value, text], …], log }. */
class Plot extends Picture {
  /** Draw frame, grid and ticks; remember the axes. */
  drawAxes(across, up) {
    const [left, right, top, bottom] = [48, 16, 10, 24];
    const place = ({ from, to, log }, value) =>
      log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
    this.toPixels = ([x, y]) => [
      left + place(across, x) * (this.width - left - right),
      this.height - bottom - place(up, up.log ? Math.max(y, 1e-15) : y) * (this.height - top - bottom),
    ];
    this.frame = [left, top, this.width - left - right, this.height - top - bottom];
    for (const [value, text] of across.ticks) {
      const [x] = this.toPixels([value, up.from]);
      this.drawLine([[x, top], [x, this.height - bottom]], "rule", 1);
      this.drawText(text, [x, this.height - bottom + 6], { baseline: "top" });
    }
    for (const [value, text] of up.ticks) {
      const [, y] = this.toPixels([across.from, value]);
      this.drawLine([[left, y], [this.width - right, y]], "rule", 1);
      this.drawText(text, [left - 6, y], { align: "right" });
    }
  }

  /** Draw a curve, cut off at the frame. */
  drawCurve(points, color, width = 1.5, dash = []) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(...this.frame);
    this.context.clip();
    this.drawLine(points.map((point) => this.toPixels(point)), color, width, dash);
    this.context.restore();
  }
}

/** List powers of ten between two numbers as ticks, at most about six. */
function listDecades(from, to) {
  const [low, high] = [Math.round(Math.log10(from)), Math.round(Math.log10(to))];
  const step = Math.ceil((high - low) / 6);
  const superscript = (k) => [...String(k)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
  const ticks = [];
  for (let k = high; k >= low; k -= step) {
    ticks.push([10 ** k, Math.abs(k) <= 2 ? String(Number((10 ** k).toPrecision(1))) : `10${superscript(k)}`]);
  }
  return ticks;
}
