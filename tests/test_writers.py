"""Writers: what stands in the files that they leave."""

import io
import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from tfdist.errors import ConfigError
from tfdist.writers import ConsoleWriter, JsonlWriter, ManyWriter, TensorBoardWriter, make_writer


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_jsonl_has_one_object_a_line_and_appends_after_close(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    writer = JsonlWriter(path, clock=iter([10.0, 11.0]).__next__)
    writer.write_scalars(3, {"loss": 0.5})
    writer.close()
    writer.write_scalars(6, {"loss": float("nan"), "accuracy": 1})
    writer.close()
    assert lines(path) == [
        {"step": 3, "time": 10.0, "loss": 0.5},
        {"step": 6, "time": 11.0, "loss": None, "accuracy": 1.0},
    ]


def test_jsonl_line_can_be_read_after_flush(tmp_path):
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write_scalars(1, {"loss": 1.0})
    writer.flush()
    assert lines(tmp_path / "metrics.jsonl")[0]["loss"] == 1.0
    writer.close()


def test_what_was_written_after_a_mark_is_taken_back_by_the_next_run(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = ManyWriter(ConsoleWriter(io.StringIO()), JsonlWriter(path))
    assert writer.mark() == {"JsonlWriter-0/bytes": 0}
    writer.write_scalars(1, {"loss": 1.0})
    mark = writer.mark()
    kept = path.read_text()
    writer.write_scalars(1, {"val_loss": 1.0})
    writer.write_scalars(2, {"loss": 0.5})
    writer.close()
    with path.open("a") as file:
        file.write('{"step": 3, "los')  # the kill
    again = ManyWriter(JsonlWriter(path))
    again.rewind(json.loads(json.dumps(mark)))
    assert path.read_text() == kept
    again.write_scalars(2, {"loss": 0.5})
    again.close()
    assert [row["step"] for row in lines(path)] == [1, 2]


def test_a_file_that_is_not_there_or_shorter_is_left_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    JsonlWriter(path).rewind({"bytes": 100})
    assert not path.exists()
    path.write_text('{"step": 1}\n')
    JsonlWriter(path).rewind({"bytes": 100})
    JsonlWriter(path).rewind({})
    assert lines(path) == [{"step": 1}]


def test_tensorboard_reads_the_scalars(tmp_path):
    writer = TensorBoardWriter(str(tmp_path))
    writer.write_scalars(5, {"loss": 0.5, "accuracy": 0.25})
    writer.write_scalars(9, {"loss": 0.125})
    writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.SummaryMetadata("loss").plugin_data.plugin_name == "scalars"
    loss = [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors("loss")]
    assert loss == [(5, 0.5), (9, 0.125)]
    assert [e.step for e in events.Tensors("accuracy")] == [5]


def test_console_prints_one_line_a_write():
    stream = io.StringIO()
    ConsoleWriter(stream).write_scalars(12, {"loss": 0.123456, "accuracy": 1.0})
    assert stream.getvalue() == "step 12  loss 0.1235  accuracy 1\n"


def test_many_writers_write_the_same(tmp_path):
    stream = io.StringIO()
    writer = ManyWriter(JsonlWriter(tmp_path / "a"), ManyWriter(JsonlWriter(tmp_path / "b"), ConsoleWriter(stream)))
    writer.write_scalars(1, {"loss": 2.0})
    writer.flush()
    writer.close()
    assert lines(tmp_path / "a")[0]["loss"] == lines(tmp_path / "b")[0]["loss"] == 2.0
    assert stream.getvalue() == "step 1  loss 2\n"


def test_making_and_closing_a_writer_leaves_no_file(tmp_path):
    writer = make_writer(["jsonl", "tensorboard", "console"], str(tmp_path))
    writer.flush()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_writers_are_made_by_name(tmp_path, capsys):
    writer = make_writer(["jsonl", "tensorboard", "console"], str(tmp_path))
    writer.write_scalars(1, {"loss": 2.0})
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "tensorboard"]
    assert capsys.readouterr().out == "step 1  loss 2\n"


def test_unknown_writer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="Writer 'json': did you mean 'jsonl'"):
        make_writer(["json"], str(tmp_path))
