"""Model cards: README.md of a model for the Hugging Face Hub, with YAML front matter.

Names of classes, data and runs may hold any character. `escape_markdown` makes them plain text in Markdown, and the
front matter is written by huggingface_hub, which quotes YAML.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from truedrift.errors import import_package, list_names, printable
from truedrift.evaluation.record import Metrics, Protocol
from truedrift.model import Model
from truedrift.report.screens import share
from truedrift.report.table import format_number
from truedrift.share.facts import Facts, MeasuredMetrics

CARD, PICTURE, ONNX = "README.md", "samples.png", "model.onnx"
PLACEHOLDER = "USER/NAME"
"""Name in the card of a model that is not on the Hub yet."""
TAGS = ("truedrift", "drifting", "one-step", "pytorch")
NETWORKS = {"mlp": "MLP", "conv": "convolutional network", "unet": "U-Net", "drift-dit": "DriftDiT"}
UNKNOWN_TRAINING = "The folder of the model does not say how it was trained."
MOST_CLASSES = 100
_SPECIAL = re.compile(r"[\\`*_\[\]|~$]|^[#+=-]")


def escape_markdown(text: str) -> str:
    r"""Return Markdown that shows the text as it is, on one line.

    Example:
        >>> print(escape_markdown("<b>[a](b)|*c*"))
        &lt;b&gt;\[a\](b)\|\*c\*
    """
    line = " ".join(printable(text).split())
    escaped = _SPECIAL.sub(r"\\\g<0>", line.replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def render_card(model: Model, facts: Facts, *, half: bool, picture: bool, onnx: bool, name: str = PLACEHOLDER) -> str:
    """Return the card of a model.

    Args:
        model: The model.
        facts: Data, training and metrics.
        half: Whether the weights are float16.
        picture: Whether the folder has samples.png.
        onnx: Whether the folder has model.onnx.
        name: USER/NAME on the Hub.

    Returns:
        The content of README.md.
    """
    lines = [
        "---",
        _front_matter(facts, images=_is_images(model)),
        "---",
        "",
        f"# {escape_markdown(facts.name)}",
        "",
        "A one-step generator trained by drifting with truedrift: each sample is one forward pass from noise.",
        "",
        *((f"![samples, one row per class]({PICTURE})", "") if picture else ()),
        "## Load",
        "",
        "```python",
        "import truedrift",
        "",
        *_example(model, name),
        "```",
        "",
        *_onnx_lines(model, onnx),
        "## Model",
        "",
        *_table(_describe_model(model, half=half)),
        "",
        "## Data and training",
        "",
        *(_table([*facts.data, *facts.training]) if facts.training else [UNKNOWN_TRAINING]),
        "",
        "## Metrics",
        "",
        *_metrics_lines(facts.evaluations, half=half),
        "",
        *(["## Nearest training images", "", escape_markdown(facts.neighbors), ""] if facts.neighbors else ()),
        "## Limits",
        "",
        *(f"- {limit}" for limit in _limits(model, facts)),
        "",
        "## License",
        "",
        f"Weights: {escape_markdown(facts.license)}. The license of the data may limit their use.",
        "",
    ]
    return "\n".join(lines)


def _is_images(model: Model) -> bool:
    return model.units is None and len(model.generator.sample_shape) == 3


def _front_matter(facts: Facts, *, images: bool) -> str:
    """Return the YAML; the Hub has no task for arrays."""
    hub = import_package("huggingface_hub", "model cards", "train")
    data = hub.ModelCardData(
        license=facts.license,
        library_name="truedrift",
        pipeline_tag="unconditional-image-generation" if images else None,
        tags=list(TAGS),
    )
    return str(data.to_yaml()).strip()


def _example(model: Model, name: str) -> Iterator[str]:
    """Yield the code that loads and samples. A JSON string of ASCII characters is also one of Python."""
    yield f'model = truedrift.load("{name}")'
    label = f", label={json.dumps(model.classes[0])}" if len(model.classes) > 1 else ""
    yield f"samples = model.sample(16{label})  # {_describe_array(model)}"


def _describe_array(model: Model) -> str:
    if model.units is not None:
        return f"an array {['n', *model.units.shape]} in the units of the data".replace("'", "")
    if not _is_images(model):
        return f"an array {['n', *model.generator.sample_shape]}".replace("'", "")
    channels, height, width = model.generator.sample_shape
    return f"images [n, {height}, {width}{'' if channels == 1 else f', {channels}'}] as bytes"


def _describe_model(model: Model, *, half: bool) -> Iterator[tuple[str, str]]:
    generator = model.generator
    count = sum(parameter.numel() for parameter in generator.parameters())
    yield "network", f"{NETWORKS.get(generator.architecture, generator.architecture)}, {count:,} parameters"
    yield "weights", "float16, computed in float32" if half else "float32"
    yield "samples", _describe_array(model)
    yield f"classes ({len(model.classes)})", list_names(model.classes, MOST_CLASSES)
    if model.strengths is not None and model.has_guidance:
        low, high = model.strengths
        yield "guidance", f"strengths from {low:g} to {high:g}, {model.strength:g} if none is given"


def _onnx_lines(model: Model, onnx: bool) -> list[str]:
    """Describe inputs and output of model.onnx."""
    if not onnx:
        return []
    inputs = [f"`noise` float32 {['batch', *model.generator.noise_shape]}", "`label` int64 [batch]"]
    if model.has_guidance:
        inputs.append("`strength` float32 [batch]")
    if model.generator.style_draws:
        entries = model.generator.style_entries
        inputs.append(f"`style` int64 [batch, {model.generator.style_draws}], drawn from 0 to {entries - 1}")
    if model.units is not None:
        output = "standardized values; model.json has their shift and scale"
    else:
        output = "images in [−1, 1], channels first" if _is_images(model) else "points"
    joined = "; ".join(inputs).replace("'", "")
    return [f"`{ONNX}` has the inputs {joined}, where noise is standard normal. Its output `sample` has {output}.", ""]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    cells = (f"| {escape_markdown(label)} | {escape_markdown(text)} |" for label, text in rows)
    return ["| | |", "|---|---|", *cells]


def _metrics_lines(evaluations: Sequence[MeasuredMetrics], *, half: bool) -> list[str]:
    if not evaluations:
        return ["These weights have not been evaluated."]
    rows = (" | ".join(map(escape_markdown, _metric_row(each.metrics, each.protocol))) for each in evaluations)
    return [
        *(["Metrics of the float32 weights, before they were rounded to float16.", ""] if half else ()),
        "| Fréchet distance | KID | precision | recall | Inception Score | protocol |",
        "|---|---|---|---|---|---|",
        *(f"| {row} |" for row in rows),
    ]


def _metric_row(metrics: Metrics, of: Protocol) -> tuple[str, ...]:
    """Return the cells of an evaluation: its metrics, then their protocol."""
    kid = f"{format_number(metrics.kid, '.3g')} ± {metrics.kid_deviation:.2g}" if metrics.kid is not None else "–"
    score = "–" if metrics.inception_score is None else f"{metrics.inception_score:.3f}"
    protocol = (
        f"{of.samples:,} samples, {of.labels} labels, seed {of.seed}, strength {of.strength:g}; "
        f"{of.reference_count:,} references of {of.reference}, split {of.split}, sha256 {of.reference_sha256[:12]}; "
        f"features {of.extractor} (sha256 {of.extractor_sha256[:12]}), k = {of.neighbors}"
    )
    distance = f"{of.distance_name} {metrics.fid:.4g}"
    return distance, kid, share(metrics.precision), share(metrics.recall), score, protocol


def _limits(model: Model, facts: Facts) -> Iterator[str]:
    yield "Samples follow the training data, with its gaps and its biases, and may contain artifacts."
    if not facts.neighbors:
        yield "Samples have not been compared with their nearest training samples, so copies are not ruled out."
    if not facts.evaluations:
        yield "The quality of the samples has not been measured."
    else:
        yield "Distances depend on the number of samples and the features; compare only those of one protocol."
    if model.strengths is not None and model.has_guidance:
        low, high = model.strengths
        yield f"Guidance strengths outside {low:g} to {high:g} were not part of the training."
