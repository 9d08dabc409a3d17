"""A finding as a sentence on a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from truedrift.report.page.markup import Content, Markup, element

Tone: TypeAlias = Literal["plain", "good", "note", "bad"]
TONES = ("plain", "good", "note", "bad")
"""From the least to the most urgent."""


UNREAD = "Not all can be read"
"""The subject of sentences on what is left out of the page."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`subject` is an item's label or a run's name; `about` says by which protocol."""

    subject: str
    sentence: str
    tone: Tone = "plain"
    about: str = ""
    anchor: str | None = None
    """Where on the page the rest of it is."""


def listed(verdicts: Sequence[Verdict]) -> Markup:
    """A card a subject, in their order."""
    subjects = dict.fromkeys(verdict.subject for verdict in verdicts)
    cards = ([verdict for verdict in verdicts if verdict.subject == subject] for subject in subjects)
    return element("ul", (_card(card) for card in cards), class_="verdicts")


def _card(verdicts: Sequence[Verdict]) -> Markup:
    """What is said of one subject, in the color of the worst of it."""
    tone = max((verdict.tone for verdict in verdicts), key=TONES.index)
    name, anchor = element("bdi", verdicts[0].subject), verdicts[0].anchor
    subject = element("strong", element("a", name, href=f"#{anchor}") if anchor else name)
    if len(verdicts) == 1:
        return element("li", subject, ": ", _said(verdicts[0]), class_=tone)
    return element("li", subject, element("ul", (element("li", _said(each)) for each in verdicts)), class_=tone)


def _said(verdict: Verdict) -> list[Content]:
    return [verdict.sentence, element("span", verdict.about, class_="about") if verdict.about else None]
