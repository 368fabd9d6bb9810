"""The equivalence ladder holds, and the stored table is the one that is measured here."""

import json
import math

import pytest
import torch
from equivalence import CONDITIONS, LADDER, STORED, bound, error, evaluate, measure, one_digit, table

NOT_A_NUMBER_HERE = {
    (component, "torch.nn", "fully masked")
    for component in ("self-attention", "cross-attention", "causal self-attention")
}


@pytest.mark.parametrize("component", LADDER)
def test_every_error_is_within_its_bound(component):
    for way, row in measure(component).items():
        assert row.keys() == CONDITIONS.keys()
        for condition, entry in row.items():
            if (component, way, condition) in NOT_A_NUMBER_HERE:
                assert math.isnan(entry)
            elif not isinstance(entry, str):
                assert entry <= bound(component, condition), (way, condition)


def test_the_stored_table_is_the_one_measured_here():
    """Rows, columns, reasons and bounds are the same; a stored error obeys the bound of the one measured here."""
    stored, now = json.loads(STORED.read_text(encoding="utf-8"))["components"], table()
    assert list(stored) == list(now), "run `make equivalence`"
    for component, rows in now.items():
        assert list(stored[component]) == list(rows)
        for way, row in rows.items():
            assert list(stored[component][way]) == list(row)
            for condition, entry in row.items():
                other = stored[component][way][condition]
                if isinstance(entry, str) or way == "bound":
                    assert other == entry, (component, way, condition)
                else:
                    assert 0 <= other <= one_digit(bound(component, condition)), (component, way, condition)


@pytest.mark.parametrize("component", LADDER)
def test_a_larger_error_is_found(component):
    """The bounds are tight: an output that is wrong in its last six bits out of 53, or of 24, violates them."""
    for condition in ("float64 output", "float32 output"):
        (s,), masked, dtype, _ = CONDITIONS[condition]
        case = LADDER[component].build(s, masked, False)
        exact = evaluate(case.ways["loop"], case, dtype, precise=True)["output"]
        wrong = [output * (1 + 64 * torch.finfo(dtype).eps) for output in exact]
        assert error(wrong, exact) > bound(component, condition)
