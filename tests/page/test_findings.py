"""Sentences about one run, two runs and many runs."""

import json
from dataclasses import replace

import pytest
from oracles.handmade_run import (
    HISTORY,
    METRICS,
    PROTOCOL,
    evaluation,
    telemetry,
    write_evaluation,
    write_neighbors,
    write_run,
)

from truedrift.page import (
    Finding,
    Tone,
    compare_runs,
    describe_many_runs,
    describe_runs,
    describe_training,
    group_by_subject,
    read_run,
    read_runs,
)


@pytest.fixture
def make_run(tmp_path):
    """Writes and reads a run."""

    def make(name="mine", **options):
        return read_run(write_run(tmp_path / name, **options), name)

    return make


def test_findings_are_grouped_by_subject_in_their_order():
    findings = [Finding(subject=subject, sentence=sentence) for subject, sentence in ("a1", "b2", "a3")]
    groups = group_by_subject(findings)
    assert list(groups) == ["a", "b"]
    assert [finding.sentence for finding in groups["a"]] == ["1", "3"]


# One run


def test_the_finding_of_a_run(make_run):
    finding = describe_training(make_run())
    assert finding.sentence == (
        "FID 13.2 at step 300, best 12.5 at step 200; not collapsed (distance ratio 0.88); complete after 300 steps."
    )
    assert finding.tone is Tone.GOOD
    assert finding.about == (
        "FID in 2048 features of inception (0123456789ab; uint8, bilinear to 299×299); 5,000 samples, labels balanced, "
        "seed 7, strength 1.5, ema weights, against 1,797 of digits (test)"
    )


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        (HISTORY[:2], "stopped at step 120 of 300 (run the same command to continue)"),
        (HISTORY[:3], "not complete: 300 of 300 steps are logged"),
        ((), "not complete: 300 of 300 steps are logged"),
        (
            (*HISTORY[:3], HISTORY[3] | {"step": 200}),
            "stopped at step 200 of 300 (run the same command to continue)",
        ),
    ],
)
def test_a_run_that_is_not_complete_is_described_as_such(history, sentence, make_run):
    finding = describe_training(make_run(history=history))
    assert sentence in finding.sentence
    assert finding.tone is Tone.NOTE


def test_a_collapse_and_skipped_steps_are_reported(make_run):
    finding = describe_training(make_run(metrics=(telemetry(300, collapsed=True, spread=0.03, skipped=5),)))
    assert finding.sentence.startswith("not evaluated; collapsed (distance ratio 0.03); 5 steps skipped")
    assert finding.tone is Tone.BAD


def test_the_last_evaluation_of_each_protocol_after_the_training_is_reported(tmp_path):
    path = write_run(tmp_path / "mine")
    write_evaluation(path, 12.0)
    write_evaluation(path, 11.5)
    write_evaluation(path, 10.0, samples=50_000)
    first, second, third = describe_runs([read_run(path, "mine")])
    assert first.sentence.startswith("FID 13.2 at step 300")
    assert second.sentence == "FID 11.5, precision 0.625, recall 0.375 at step 300, by truedrift evaluate."
    assert third.sentence.startswith("FID 10,")
    assert "50,000 samples" in third.about
    (path / "evaluations.jsonl").write_text("{}\n")
    assert describe_runs([read_run(path, "mine")])[-1].sentence == "1 line of evaluations.jsonl cannot be read."


def test_several_strengths_are_one_finding(tmp_path):
    path = write_run(tmp_path / "mine")
    for strength, fid in ((1.0, 14.0), (1.5, 9.0), (2.0, 11.0), (1.5, 12.0)):
        write_evaluation(path, fid, strength=strength)
    _, finding = describe_runs([read_run(path, "mine")])
    assert finding.sentence == (
        "FID 11, precision 0.625, recall 0.375 at step 300, by truedrift evaluate. "
        "Of the strengths 1, 1.5 and 2, FID is smallest (11) at 2, the largest one, so larger ones may be better."
    )
    assert "strength 2, ema weights" in finding.about


def test_possible_copies_are_a_note(tmp_path):
    path = write_run(tmp_path / "mine")
    write_neighbors(path, close=50, p_value=1e-9)
    assert describe_runs([read_run(path, "mine")])[-1].tone is Tone.NOTE
    write_neighbors(path)  # the last record counts
    _, finding = describe_runs([read_run(path, "mine")])
    assert finding.tone is Tone.PLAIN
    assert finding.sentence.startswith("No sign of copies: 2 of 200 samples (1.0%)")
    assert finding.about.startswith("Distances in 2048 features of inception")


def test_a_run_that_was_evaluated_later_is_not_called_not_evaluated(tmp_path):
    path = write_run(tmp_path / "mine", metrics=METRICS[:1])
    assert describe_training(read_run(path, "mine")).sentence.startswith("not evaluated; ")
    write_evaluation(path, 12.0)
    first, second = describe_runs([read_run(path, "mine")])
    assert "not evaluated" not in first.sentence
    assert second.sentence.startswith("FID 12, ")


# Two runs


def test_two_runs_are_compared_in_the_right_direction(make_run):
    a = make_run("a", metrics=(evaluation(300, 13.25),))
    b = make_run("b", metrics=(evaluation(300, 15.0),))
    assert compare_runs(a, b).sentence == compare_runs(b, a).sentence == "a ends 1.75 lower in FID than b."
    assert "may be due to chance" in compare_runs(a, b).about
    assert compare_runs(a, a).sentence == "both runs end at the same FID."
    assert [finding.subject for finding in describe_runs([a, b])] == ["Comparison", "a", "b"]


def test_three_runs_are_ranked(make_run):
    runs = [make_run(name, metrics=(evaluation(300, fid),)) for name, fid in (("a", 15.0), ("b", 13.25), ("c", 14.0))]
    first, *others = describe_runs(runs)
    assert first.sentence == "b ends with the smallest FID, 13.2, 5% lower than the next."
    assert first.about.startswith("The others: 14 for c, 15 for a. With one run each")
    assert [finding.subject for finding in others] == ["a", "b", "c"]
    without = make_run("d", metrics=METRICS[:1])
    assert [finding.subject for finding in describe_runs([*runs, without])] == ["a", "b", "c", "d"]


def test_ranked_runs_are_named_with_the_settings_in_which_they_differ(make_run):
    plain = make_run("plain", estimator="standard", metrics=(evaluation(300, 15.0),))
    abc = make_run("abc", metrics=(evaluation(300, 16.0),))
    config = abc.config
    batch, objective = replace(config.batch, n=126, generated=8), replace(config.objective, matched=True)
    many = replace(abc, name="many", config=replace(config, batch=batch, objective=objective))
    many = replace(
        many, evaluations=[replace(abc.evaluations[0], metrics=replace(abc.evaluations[0].metrics, fid=12.0))]
    )
    first = describe_runs([plain, abc, many])[0]
    named = "many (126 positives, abc, matched)"
    assert first.sentence == f"{named} ends with the smallest FID, 12, 20% lower than the next."
    others = "15 for plain (8 positives, standard, not matched), 16 for abc (8 positives, abc, not matched)"
    assert first.about.startswith(f"The others: {others}. ")


def test_runs_are_compared_by_later_evaluations_under_one_protocol(tmp_path):
    a, b = (write_run(tmp_path / name, metrics=METRICS[:1]) for name in "ab")
    write_evaluation(a, 12.0)
    write_evaluation(a, 3.0, samples=100)
    write_evaluation(b, 10.5, step=200)
    one, two = read_run(a, "a"), read_run(b, "b")
    sentence = "b ends 1.5 lower in FID than a, by truedrift evaluate at step 300 and step 200."
    assert compare_runs(one, two).sentence == sentence
    trained = read_run(write_run(tmp_path / "c"), "c")  # 13.25 under the same protocol, during training
    assert compare_runs(one, trained).sentence == "a ends 1.25 lower in FID than c, by truedrift evaluate at step 300."


def test_the_reason_why_runs_cannot_be_compared_is_given(make_run, tmp_path):
    a, b = make_run("a"), make_run("b", metrics=(evaluation(300, 15.0, protocol=PROTOCOL | {"samples": 100}),))
    bare = make_run("c", metrics=())
    # A run on other data.
    path = write_run(tmp_path / "d", metrics=(evaluation(300, 1.0, PROTOCOL | {"reference": "x"}),))
    tree = json.loads((path / "config.json").read_text())
    tree["config"]["data"]["name"] = "fashion-mnist"
    (path / "config.json").write_text(json.dumps(tree))
    for other, reason in (
        (b, "they were evaluated under different protocols; run truedrift evaluate on both with the same options"),
        (bare, "c was not evaluated; run truedrift evaluate"),
        (read_run(path, "d"), "they were trained on different data, digits and fashion-mnist"),
    ):
        assert compare_runs(a, other).sentence == f"the runs cannot be compared: {reason}."
        assert compare_runs(a, other).tone is Tone.NOTE
    assert "c and c were not evaluated" in compare_runs(bare, bare).sentence


# Many runs


def test_many_runs_are_described_together(make_run):
    runs = []
    for k in range(8):
        metrics = (telemetry(300, collapsed=k == 5), evaluation(200, 2.0), evaluation(300, 2.5 + k))
        runs.append(make_run(f"run{k}", seed=k, metrics=metrics, history=HISTORY[:2] if k == 7 else HISTORY))
    status, distance = describe_many_runs(runs)
    assert status.subject == "8 runs"
    assert status.sentence == "7 of 8 complete; 1 (run5) collapsed."
    assert status.tone is Tone.BAD
    assert distance.sentence == "final FID from 2.5 (run0) to 9.5 (run7), 8 runs."
    assert distance.about.startswith("FID in 2048 features of inception")


def test_several_protocols_are_numbered_and_few_problems_are_listed(tmp_path):
    for k in range(7):
        protocol = PROTOCOL | {"samples": 100 if k == 6 else 5000}
        path = write_run(tmp_path / f"r{k}", metrics=() if k == 5 else (evaluation(300, 1.0 + k, protocol),))
        if k:
            (path / "history.jsonl").unlink()
    sentences = [each.sentence for each in describe_many_runs(read_runs([tmp_path / f"r{k}" for k in range(7)]))]
    assert sentences[1] == "[1] final FID from 1 (r0) to 5 (r4), 5 runs."
    assert sentences[2] == "[2] final FID from 7 (r6) to 7 (r6), 1 run."
    assert sentences[3] == "1 of 7 not evaluated."
    assert sentences[4] == "r1: history.jsonl cannot be read (No such file or directory)."
    assert sentences[-1] == "1 more problem like these."
