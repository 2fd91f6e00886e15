"""TFRecord files read at random: their index, its upkeep, and every kind of damage."""

import gc
import itertools
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.batching import Share
from tfdist.data import from_tfrecords
from tfdist.data.records import RecordSource, find_files, make_index, source
from tfdist.errors import DataError

OVERHEAD = 16
"""Bytes of a record beside its data."""


def write(path, records) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def numbered(start, stop, size=30):
    return [f"{i:06d}".encode() * (size // 6) + b"\0" * (i % 3) for i in range(start, stop)]


def read_all(data, batch_size=7, workers=1):
    """The examples that the workers see, in the order of the global batches."""
    shares = [data.worker_batches(batch_size, Share(worker, workers)).as_numpy_iterator() for worker in range(workers)]
    return [record for steps in zip(*shares) for _, ids, batch in steps for record in batch[: len(ids)].tolist()]


def flip(path, offset):
    """Turns one bit of a file over."""
    content = bytearray(pathlib.Path(path).read_bytes())
    content[offset] ^= 4
    pathlib.Path(path).write_bytes(content)


@pytest.fixture
def three(tmp_path):
    """Three files, of 10, 0 and 13 records."""
    write(tmp_path / "a.tfrecord", numbered(0, 10))
    write(tmp_path / "b.tfrecord", [])
    write(tmp_path / "c.tfrecord", numbered(10, 23))
    return tmp_path


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("shuffle", [False, True])
def test_global_batches_do_not_depend_on_the_workers(three, workers, shuffle):
    data = from_tfrecords(f"{three}/*.tfrecord", shuffle=shuffle, seed=3)
    assert data.element_spec == tf.TensorSpec((None,), tf.string)
    seen = read_all(data, workers=workers)
    assert sorted(seen) == numbered(0, 23)
    assert (seen == numbered(0, 23)) == (not shuffle)
    assert seen == read_all(data)


def test_records_are_parsed_in_map(tmp_path):
    def example(i):
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
        return tf.train.Example(features=tf.train.Features(feature={"label": feature})).SerializeToString()

    data = from_tfrecords(write(tmp_path / "x", map(example, range(9))))
    data = data.map(lambda record: tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature([], tf.int64)}))
    labels = [batch["label"].numpy().tolist() for _, _, batch in data.worker_batches(4, Share())]
    assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=400), max_size=12), min_size=1, max_size=4), st.randoms())
def test_every_record_is_what_tensorflow_reads(files, random):
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(f"{folder}/{i}", records) for i, records in enumerate(files)]
        expected = list(tf.data.TFRecordDataset(paths).as_numpy_iterator())
        for skip in (False, True):
            index = make_index(tuple(paths), skip=skip)
            wanted = [random.randrange(index.records) for _ in range(20 if index.records else 0)]
            assert index.records == len(expected)
            assert RecordSource(index)._read(np.array(wanted, np.int64))[0].tolist() == [expected[i] for i in wanted]
            everything = np.arange(index.records)
            assert RecordSource(index)._read(everything)[0].tolist() == expected


def test_no_index_at_all_reads_nothing(three):
    read = tf.function(RecordSource(make_index(find_files(f"{three}/a*"))).read)
    batch = read(tf.zeros([0], tf.int64))
    assert batch.dtype == tf.string and batch.shape == [0]


def test_records_larger_than_a_read(tmp_path):
    """Headers beyond the end of a chunk, and runs of records that are longer than one read."""
    records = [bytes([i]) * size for i, size in enumerate([300_000, 5, 2_000_000, 700_000, 262_132, 700_000, 0])]
    path = write(tmp_path / "x", records)
    for damaged in ("skip", "refuse"):
        (tmp_path / ".x.tfdist-index").unlink(missing_ok=True)
        assert read_all(from_tfrecords(path, damaged=damaged)) == records


def test_an_index_takes_12_bytes_a_record(tmp_path):
    index = make_index((write(tmp_path / "x", [b""] * 10_000),))
    assert index.offsets.nbytes + index.crcs.nbytes + index.first.nbytes <= 12 * 10_000 + 8 * 3
    assert (tmp_path / ".x.tfdist-index").stat().st_size < 12 * 10_000 + 400


# What files are taken


def test_files_are_sorted_and_taken_once(three):
    a, c = f"{three}/a.tfrecord", three / "c.tfrecord"
    assert find_files([c, a, f"{three}/*.tfrecord", f"{three}/../{three.name}/a.tfrecord"]) == find_files(f"{three}/*")
    make_index(find_files(a))
    assert len(find_files(f"{three}/*")) == 3, "an index is no data"
    assert find_files(f"file://{a}") == (a,)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("{}/none-*", "no file matches .*/none-"),
        (["{}/a.tfrecord", "{}/none"], "no file matches .*/none"),
        ([], r"from_tfrecords\(\[\]\): no files"),
        ("{}", "is a folder: TFRecord files are needed"),
        ("nowhere://x", "nowhere://x cannot be looked up: File system scheme 'nowhere' not implemented"),
        ("{}/b.tfrecord", "0 examples"),
    ],
)
def test_files_that_are_not_there(three, files, message):
    files = files.format(three) if isinstance(files, str) else [file.format(three) for file in files]
    with pytest.raises(DataError, match=message):
        from_tfrecords(files)


def test_other_file_systems(tmp_path):
    tf.io.gfile.makedirs("ram://records")
    path = write("ram://records/x.tfrecord", numbered(0, 23))
    data = from_tfrecords("ram://records/*.tfrecord", shuffle=True)
    assert sorted(read_all(data, workers=2)) == numbered(0, 23)
    assert tf.io.gfile.glob("ram://records/.*") == ["ram://records/.x.tfrecord.tfdist-index"]
    tf.io.gfile.remove(path)
    source._open.cache_clear()
    with pytest.raises(
        tf.errors.OpError, match=f"DataError: {path}: the record at byte [0-9]+ cannot be read any more"
    ):
        read_all(data)


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("damaged", ["refuse", "skip"])
def test_compressed_files_name_the_remedy(tmp_path, kind, damaged):
    path = str(tmp_path / "x")
    with tf.io.TFRecordWriter(path, kind) as writer:
        writer.write(b"some record")
    with pytest.raises(DataError, match=rf'{path} is compressed \({kind}\).*TFRecordDataset\(files, "{kind}"\)'):
        from_tfrecords(path, damaged=damaged)


# The index that is kept


def index_files(folder):
    """Path and inode of each: an index that is made again is another file."""
    return {path: path.stat().st_ino for path in sorted(pathlib.Path(folder).glob(".*.tfdist-index"))}


def test_an_index_is_made_once_for_all(three):
    first = from_tfrecords(f"{three}/*.tfrecord")
    kept = index_files(three)
    assert [path.name for path in kept] == [f".{name}.tfrecord.tfdist-index" for name in "abc"]
    again = from_tfrecords(f"{three}/*.tfrecord", shuffle=True)
    assert index_files(three) == kept
    assert sorted(read_all(again)) == read_all(first)
    assert again.source.identity() == first.source.identity()


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_stale_index_is_made_again(three, change):
    path = three / "a.tfrecord"
    from_tfrecords(path)
    kept = index_files(three)
    status = path.stat()
    write(path, numbered(50, 60 if change == "time" else 62))
    if change == "size":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read_all(from_tfrecords(path)) == numbered(50, 60 if change == "time" else 62)
    assert index_files(three) != kept


def test_an_index_of_another_file_is_not_used(three):
    """One of the same size and time: only the name tells."""
    a, c = three / "a.tfrecord", three / "c.tfrecord"
    write(c, [b"".join(numbered(0, 10)) + b"-" * (OVERHEAD * 9)])
    assert a.stat().st_size == c.stat().st_size
    os.utime(c, ns=(a.stat().st_atime_ns, a.stat().st_mtime_ns))
    from_tfrecords(a)
    shutil.copy(three / ".a.tfrecord.tfdist-index", three / ".c.tfrecord.tfdist-index")
    assert from_tfrecords(c).examples == 1


def test_even_an_index_of_another_file_that_looks_like_its_own_reads_nothing_wrong(three):
    """Under its name, with its size and time: then the records themselves do not fit."""
    a, status = three / "a.tfrecord", (three / "a.tfrecord").stat()
    from_tfrecords(a)
    write(a, [b"".join(numbered(0, 10)) + b"-" * (OVERHEAD * 9)])
    os.utime(a, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(tf.errors.OpError, match=f"{a}: the record at byte [0-9]+ is damaged"):
        read_all(from_tfrecords(a))


@pytest.mark.parametrize("harm", [lambda data: data[:-3], lambda data: b"", lambda data: data[:-1] + b"!"])
def test_a_torn_index_is_made_again(three, harm):
    from_tfrecords(three / "a.tfrecord")
    index = three / ".a.tfrecord.tfdist-index"
    index.write_bytes(harm(whole := index.read_bytes()))
    assert from_tfrecords(three / "a.tfrecord").examples == 10
    assert index.read_bytes() == whole


def test_where_the_folder_takes_no_file_the_cache_does(three, tmp_path, monkeypatch):
    """A folder that has the name of the index: this cannot be written even by root."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (three / ".a.tfrecord.tfdist-index").mkdir()
    for _ in range(2):
        assert from_tfrecords(three / "a.tfrecord").examples == 10
        [kept] = (tmp_path / "home/.cache/tfdist").iterdir()
        assert re.fullmatch(r"a.tfrecord-[0-9a-f]{16}.tfdist-index", kept.name)
    assert list(three.glob(".a*")) == [three / ".a.tfrecord.tfdist-index"]


def test_an_index_that_can_be_kept_nowhere_is_made_in_memory(three, monkeypatch, caplog):
    caplog.set_level("INFO", "tfdist")
    monkeypatch.setenv("HOME", "/dev/null")
    (three / ".a.tfrecord.tfdist-index").mkdir()
    assert read_all(from_tfrecords(three / "a.tfrecord")) == numbered(0, 10)
    assert f"The index of {three}/a.tfrecord is kept nowhere" in caplog.text


def test_a_folder_for_indices(three, tmp_path):
    folder = tmp_path / "indices"
    from_tfrecords(f"{three}/*.tfrecord", index_dir=folder)
    assert len(list(folder.iterdir())) == 3
    assert not index_files(three)
    with pytest.raises(DataError, match=f"The index of {three}/a.tfrecord cannot be kept: .*Give an index_dir"):
        from_tfrecords(f"{three}/a.tfrecord", index_dir=three / "c.tfrecord")


def test_several_processes_may_make_an_index_at_once(three):
    code = f"from tfdist.data import from_tfrecords as f; print(f({str(three / '*.tfrecord')!r}).examples)"
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.communicate(timeout=120)[0] for process in started] == [b"23\n"] * 2
    assert len(list(three.iterdir())) == 6


# Damage

RECORD = len(numbered(0, 1)[0]) + OVERHEAD
"""Bytes of each first record of three; the second has one more."""


def refusal(path):
    with pytest.raises(DataError) as caught:
        from_tfrecords(path)
    return str(caught.value)


@pytest.mark.parametrize("cut", [1, 3, 20, 45])
def test_a_truncated_file_names_file_and_byte(three, cut):
    path = three / "a.tfrecord"
    size = path.stat().st_size - cut
    os.truncate(path, size)
    last = RECORD * 9 + 9
    assert f"{path}: the record at byte {last} is truncated: the file ends at byte {size}." in refusal(path)


@pytest.mark.parametrize("byte", [0, 7, 8, 11])
def test_a_damaged_length_names_file_and_byte(three, byte):
    path = three / "a.tfrecord"
    flip(path, RECORD + byte)
    assert f"{path}: the length of the record at byte {RECORD} is damaged" in refusal(path)


@pytest.mark.parametrize("byte", [12, 30, RECORD])
def test_damaged_data_names_file_and_byte_when_it_is_read(three, byte):
    path = three / "a.tfrecord"
    flip(path, RECORD + byte)
    data = from_tfrecords(path)
    assert next(iter(data.worker_batches(1, Share())))[2].numpy().tolist() == numbered(0, 1)
    with pytest.raises(tf.errors.OpError, match=f"DataError: {path}: the record at byte {RECORD} is damaged"):
        read_all(data)


def test_damaged_data_is_skipped_and_counted(three, caplog):
    flip(three / "a.tfrecord", RECORD + 20)
    flip(three / "c.tfrecord", 20)
    for _ in range(2):
        data = from_tfrecords(f"{three}/*.tfrecord", damaged="skip", shuffle=True)
        assert sorted(read_all(data)) == sorted(set(numbered(0, 23)) - set(numbered(1, 2)) - set(numbered(10, 11)))
        assert "Left out: 2 damaged records, and 0 bytes in which" in caplog.text
        assert f"Files: {three}/a.tfrecord, {three}/c.tfrecord" in caplog.text
        caplog.clear()


def test_what_lies_behind_a_damaged_length_is_counted_in_bytes(three, caplog):
    path = three / "a.tfrecord"
    flip(path, RECORD)
    assert read_all(from_tfrecords(f"{three}/*.tfrecord", damaged="skip")) == numbered(0, 1) + numbered(10, 23)
    assert f"0 damaged records, and {path.stat().st_size - RECORD} bytes" in caplog.text
    with pytest.raises(DataError, match=f"byte {RECORD} is damaged"):
        from_tfrecords(f"{three}/*.tfrecord")


def test_a_whole_index_serves_both_ways(three):
    from_tfrecords(three / "a.tfrecord", damaged="skip")
    kept = index_files(three)
    assert from_tfrecords(three / "a.tfrecord").examples == 10
    assert index_files(three) == kept


# Files that change while they are read


def test_a_file_that_disappears_is_named(three):
    data = from_tfrecords(f"{three}/*.tfrecord")
    batches = data.worker_batches(2, Share(), repeat=True)
    iterator = iter(batches)
    next(iterator)
    (three / "c.tfrecord").unlink()  # what was read ahead still comes
    message = f"{three}/c.tfrecord: the record at byte [0-9]+ cannot be read any more: .*(deleted|No such file)"
    with pytest.raises(tf.errors.OpError, match=message):
        list(itertools.islice(iterator, 50))


@pytest.mark.parametrize("change", ["replaced", "shrunk", "written"])
def test_a_file_that_changes_is_named(three, change):
    path = three / "a.tfrecord"
    reader = RecordSource(make_index((str(path),)))
    assert reader._read(np.arange(3))[0].tolist() == numbered(0, 3)
    if change == "replaced":
        os.replace(write(three / "new", numbered(0, 10)), path)
    elif change == "shrunk":
        os.truncate(path, RECORD)
    else:
        write(path, numbered(30, 40))
    for other in (reader, RecordSource(reader.index)):
        with pytest.raises(DataError, match=f"{path}: the record at byte [0-9]+ cannot be read any more"):
            other._read(np.arange(3))


def test_few_files_are_kept_open_whatever_was_read(tmp_path):
    paths = [write(tmp_path / f"{i:03d}", numbered(i, i + 1)) for i in range(150)]
    source._open.cache_clear()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        assert read_all(from_tfrecords(paths)) == numbered(0, 150)
    flip(pathlib.Path(paths[-1]), 20)
    with pytest.raises(tf.errors.OpError, match="is damaged"):
        read_all(from_tfrecords(paths))
    assert len(os.listdir("/proc/self/fd")) - before <= 128 + 10
    source._open.cache_clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) - before < 10


def test_a_batch_of_more_files_than_a_process_may_open(tmp_path):
    paths = [write(tmp_path / f"{i:03d}", numbered(i, i + 1)) for i in range(150)]
    reader = RecordSource(make_index(tuple(paths)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    source._open.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 140, hard))
    try:
        assert reader._read(np.arange(150))[0].tolist() == numbered(0, 150)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_lists_and_globs_leave_indices_out(three):
    from_tfrecords(f"{three}/*")
    names = [str(three / name) for name in os.listdir(three)]
    assert len(names) == 6
    assert find_files(names) == find_files(f"{three}/*.tfrecord")


@pytest.mark.parametrize("files", [None, 3, b"a", [b"a"], [None], []])
def test_files_are_named_by_strings_and_paths(files):
    with pytest.raises(DataError, match="Give a path, a glob or a list of them"):
        from_tfrecords(files)


def test_what_is_no_tfrecord_file_is_told_so(tmp_path):
    (tmp_path / "x").write_text("number,text\n1,one\n")
    with pytest.raises(DataError, match="no record begins at byte 0: it is damaged, or no TFRecord file"):
        from_tfrecords(tmp_path / "x")


def test_one_choice_of_two(three):
    with pytest.raises(DataError, match='damaged=\'drop\'.*must be "refuse" or "skip"'):
        from_tfrecords(f"{three}/*.tfrecord", damaged="drop")
