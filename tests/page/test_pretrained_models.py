"""Pretrained models on the page: samples of the real generator, summary and command."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import torch
from markupsafe import escape
from oracles.handmade_run import HOSTILE
from PIL import Image

from truedrift.generators import find_pretrained, from_pretrained, sample
from truedrift.page import render_page
from truedrift.training.pictures import image_grid


def test_models_are_drawn_with_summary_and_command():
    model = find_pretrained("pretrained:digits")
    page = render_page("t", [], [], models=[model])
    assert '<a href="#pretrained">Pretrained models</a>' in page
    assert f"<p>{escape(model.summary)}.</p>" in page
    assert "<code>truedrift sample pretrained:digits --seed 1</code>" in page
    image = r'<img src="data:image/png;base64,([^"]*)" alt="Samples of pretrained:digits" width="(\d+)" height="(\d+)">'
    ((content, *size),) = re.findall(image, page)
    with Image.open(io.BytesIO(base64.b64decode(content))) as drawn:
        assert size == [str(drawn.width), str(drawn.height)]
        pixels = torch.from_numpy(np.array(drawn))
    labels = torch.arange(10).repeat_interleave(8)
    assert torch.equal(pixels, image_grid(sample(from_pretrained(model.name), labels, seed=0), 8))
    assert "rows are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9</figcaption>" in page
    assert len(page) < 60_000


def test_text_of_a_model_is_escaped():
    model = find_pretrained("pretrained:digits")
    record = {**model.record, "summary": HOSTILE, "classes": [HOSTILE, *model.classes[1:]]}
    page = render_page("t", [], [], models=[replace(model, record=record)])
    assert "<img src=x" not in page
    assert page.count(str(escape(HOSTILE))) == 2


def test_a_page_without_models_has_no_such_section():
    assert "Pretrained" not in render_page("t", [], [])
