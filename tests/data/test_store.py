"""The token store: what is written is read, whole or not at all."""

import numpy as np
import pytest

from lightning_tfm.data.text.split_writer import SplitWriter
from lightning_tfm.data.token_store import Split, id_type
from lightning_tfm.errors import UserError

ROWS = [[5, 6, 7], [], [4], [8, 9]]


def write(folder, V, keep_text=True, high=0):
    writer = SplitWriter(folder, "dev", V, keep_text)
    for rows in (ROWS[:1], ROWS[1:]):
        lines = [f"line {len(row)}\x85\r" for row in rows]
        ids = [np.array(row, dtype=np.int32) + high for row in rows]
        for side, mine in (("source", ids), ("target", ids[::-1])):
            writer.write(side, lines, np.concatenate(mine), np.array([len(row) for row in mine]))
    writer.close()


@pytest.mark.parametrize(("V", "high"), [(60, 0), (65535, 65000), (65536, 65526), (300000, 200000)])
def test_round_trip(tmp_path, V, high):
    write(tmp_path, V, high=high)
    split = Split(tmp_path, "dev", V)
    assert len(split) == 4
    assert split.source_lengths.tolist() == [3, 0, 1, 2]
    assert split.target_lengths.tolist() == [3, 2, 1, 0]
    assert split.source_lengths.dtype == np.int64
    assert [split.source(i).tolist() for i in range(4)] == [[id + high for id in row] for row in ROWS]
    assert split.target(1).tolist() == [8 + high, 9 + high]
    assert split.source(0).dtype == id_type(V)
    assert split.source_text() == ["line 3\x85\r", "line 0\x85\r", "line 1\x85\r", "line 2\x85\r"]


def test_ids_take_two_bytes_while_they_can():
    assert id_type(65535) is np.uint16 and id_type(65536) is np.int32


def test_nothing_can_be_written_through_a_split(tmp_path):
    write(tmp_path, 60)
    with pytest.raises(ValueError, match="read-only"):
        Split(tmp_path, "dev", 60).source(0)[0] = 1


@pytest.mark.parametrize("kind", ["ids", "offsets"])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("harm", ["cut", "emptied", "gone", "cut inside a number"])
def test_a_damaged_store_is_noticed(tmp_path, kind, side, harm):
    write(tmp_path, 60)
    path = tmp_path / f"dev.{side}.{kind}"
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": content[:-8], "emptied": b"", "cut inside a number": content[:-1]}[harm])
    with pytest.raises(UserError, match=r"remove .*; it will be made again"):
        Split(tmp_path, "dev", 60)
