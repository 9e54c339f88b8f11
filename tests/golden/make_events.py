#!/usr/bin/env python3
"""Makes tests/golden/events.tfevents: records of scalars and a histogram as TensorBoard's
own classes write them.

Needs the package tensorboard; made with 2.21. Usage: tests/golden/make_events.py"""
import os

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.summary.writer.record_writer import RecordWriter

HERE = os.path.dirname(os.path.abspath(__file__))

# The values -3, 0.75, 0.75 and 0. Below each full bucket is an empty one: its lower edge.
histogram = HistogramProto(
    min=-3.0, max=0.75, num=4.0, sum=-1.5, sum_squares=10.125,
    bucket_limit=[-(2.0 ** 2), -(2.0 ** 1.5), -(2.0 ** -48), 2.0 ** -48, 2.0 ** -0.5, 1.0],
    bucket=[0, 1, 0, 1, 0, 2])

with open(os.path.join(HERE, "events.tfevents"), "wb") as file:
    writer = RecordWriter(file)
    for event in [
        Event(wall_time=1700000000.25, file_version="brain.Event:2"),
        Event(wall_time=1700000001.5, step=1, summary=Summary(value=[
            Summary.Value(tag="loss", simple_value=5.5),
            Summary.Value(tag="learning_rate", simple_value=5e-5)])),
        Event(wall_time=1700000002.5, step=300, summary=Summary(value=[
            Summary.Value(tag="weights/layers.1.qkv", histo=histogram),
            Summary.Value(tag="loss", simple_value=float("nan"))])),
    ]:
        writer.write(event.SerializeToString())
