"""tests/tensorboard/check.py FOLDER METRICS: TensorBoard's own reader on a run's event files: every
step's scalars are those of METRICS (run.jsonl), and histograms count what they say they count."""
import json
import math
import sys

from tensorboard.backend.event_processing import event_accumulator


def main(folder, metrics):
    keep_all = {event_accumulator.SCALARS: 0, event_accumulator.HISTOGRAMS: 0}
    events = event_accumulator.EventAccumulator(folder, size_guidance=keep_all)
    events.Reload()
    tags = events.Tags()
    with open(metrics, encoding="utf-8") as file:
        steps = [json.loads(line) for line in file]
    assert steps, f"{metrics}: no steps"
    compared = 0
    for step in steps:
        for tag in set(step) & set(tags["scalars"]):
            read = [event.value for event in events.Scalars(tag) if event.step == step["step"]]
            want = step[tag]
            if want is None:
                assert not read, f"{tag} of step {step['step']}: {read}, unknown in {metrics}"
                continue
            assert len(read) == 1, f"{tag} of step {step['step']}: {len(read)} values"
            assert math.isclose(read[0], want, rel_tol=1e-6, abs_tol=1e-30), (tag, read[0], want)
            compared += 1
    assert compared >= 8 * len(steps), f"only {compared} scalars are in both"
    assert tags["histograms"], "no histograms"
    for tag in tags["histograms"]:
        for event in events.Histograms(tag):
            histogram = event.histogram_value
            assert sum(histogram.bucket) == histogram.num > 0, tag
            assert histogram.min <= histogram.max <= histogram.bucket_limit[-1], tag
            assert histogram.sum_squares * histogram.num >= histogram.sum**2 * (1 - 1e-9), tag
    print(f"TensorBoard reads {compared} scalars and {len(tags['histograms'])} histograms")


main(sys.argv[1], sys.argv[2])
