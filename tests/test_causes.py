"""Where a step's time goes: the arithmetic on stamps of known steps, and truth by injection in real launches."""

from __future__ import annotations

from dataclasses import replace

import factories
import pytest
from factories import a_step, an_explained, explained_record

from dpscale.explaining import causes
from dpscale.explaining.stamps import CONTROLS, Explained
from dpscale.tables import make_tables

MS = 0.001


def terms_of(explained: Explained, rank: int | None = None) -> dict[str, float]:
    """Of the only round, in ms."""
    (terms,) = causes.by_round(explained, rank)
    return {name: round(value / MS, 6) for name, value in terms.items()}


# Each difference between two controls is one cause


def test_equal_steps_under_all_controls_are_compute_and_nothing_else():
    terms = terms_of(an_explained())
    assert terms["step_s"] == terms["compute_s"] == 40
    assert {name for name in causes.PARTS if terms.get(name)} == {"compute_s"}


def test_what_a_wrapped_step_takes_longer_alone_is_the_wrapper():
    longer = a_step(update=3)
    terms = terms_of(an_explained(wrapped=longer, independent=longer, full=longer, resident=longer))
    assert terms["wrapper_s"] == 3
    assert terms["step_s"] == 43
    assert terms["unexplained_s"] == 0


def test_what_ranks_cost_each_other_without_an_exchange_is_contention():
    slower = a_step(forward=15, ready=(30, 40))
    terms = terms_of(an_explained(independent=slower, full=slower))
    assert terms["contention_s"] == 10
    assert terms["unexplained_s"] == terms["stretch_s"] == 0


def test_a_last_bucket_that_is_ready_later_beside_an_exchange_is_stretch():
    terms = terms_of(an_explained(full=a_step(ready=(20, 37))))
    assert terms["stretch_s"] == 7
    assert terms["contention_s"] == terms["transfer_s"] == terms["waiting_s"] == 0


def test_what_all_ranks_spend_in_the_exchange_after_the_last_bucket_is_transfer():
    terms = terms_of(an_explained(full=a_step(exchanges=(2, 9))))
    assert terms["transfer_s"] == 9
    assert terms["waiting_s"] == 0
    assert terms["step_s"] == 49


def test_a_transfer_behind_the_computation_costs_nothing():
    assert terms_of(an_explained(full=a_step(exchanges=(10, 0))))["transfer_s"] == 0


def test_transfers_at_the_same_time_count_once():
    assert terms_of(an_explained(full=a_step(exchanges=(16, 9))))["transfer_s"] == 9


def test_who_comes_last_waits_for_nobody_and_the_other_rank_for_it():
    early, late = a_step(exchanges=(3, 24)), a_step(backward=20, exchanges=(3, 4))
    explained = an_explained(full=[early, late], plain=[a_step(), a_step(backward=20)])
    assert (terms_of(explained, 0)["transfer_s"], terms_of(explained, 0)["waiting_s"]) == (4, 20)
    assert (terms_of(explained, 1)["transfer_s"], terms_of(explained, 1)["waiting_s"]) == (4, 0)
    assert terms_of(explained)["waiting_s"] == 10


def test_data_wait_is_what_it_is_and_in_no_other_cause():
    waits = a_step(wait=20)
    terms = terms_of(an_explained(plain=waits, wrapped=waits, independent=waits, full=waits))
    assert terms["data_wait_s"] == terms["loader_effect_s"] == 20
    assert terms["compute_s"] == 40
    assert terms["unexplained_s"] == 0


def test_a_broadcast_of_buffers_before_the_forward_pass_is_a_cause_where_there_are_buffers():
    slower = an_explained(full=a_step(forward=15, ready=(25, 37)))
    having = terms_of(replace(slower, broadcasts_buffers=True))
    assert (having["buffers_s"], having["stretch_s"]) == (5, 2)
    without = terms_of(slower)
    assert "buffers_s" not in without
    assert without["stretch_s"] == 7


def test_what_no_cause_accounts_for_is_unexplained():
    assert terms_of(an_explained(full=a_step(update=4)))["unexplained_s"] == 4


def test_zeros_of_the_ranks_clocks_don_t_matter():
    explained = an_explained(full=a_step(exchanges=(2, 9)))
    moved = [
        replace(block, stamps=factories.moved(block.stamps, 1000.0 * (block.rank + 1))) for block in explained.blocks
    ]
    assert terms_of(replace(explained, blocks=moved)) == pytest.approx(terms_of(explained))
    assert causes.stragglers(replace(explained, blocks=moved))[0][0]["local_delay_s"] == pytest.approx(0)


# Stragglers


def late_ranks(*delays_ms: float) -> Explained:
    """All ranks end a step together: those that come earlier wait."""
    worst = max(delays_ms)
    full = [a_step(backward=delay, exchanges=(3, 4 + worst - delay)) for delay in delays_ms]
    return an_explained(full=full, ranks=len(delays_ms))


def delays_of(explained: Explained) -> list[float]:
    (ranks,) = causes.stragglers(explained)
    return [round(rank["local_delay_s"] / MS, 6) for rank in ranks]


def test_a_late_rank_is_named_with_its_delay_and_what_it_costs_the_others():
    (ranks,) = causes.stragglers(late_ranks(0, 0, 20, 0))
    assert [round(rank["local_delay_s"] / MS, 6) for rank in ranks] == [0, 0, 20, 0]
    assert [rank["last"] for rank in ranks] == [0, 0, 1, 0]
    assert [round(rank["step_cost_s"] / MS, 6) for rank in ranks] == [0, 0, 20, 0]


def test_of_two_ranks_the_other_one_is_ahead():
    assert delays_of(late_ranks(0, 20)) == [-20, 20]


def test_a_rank_alone_is_no_straggler():
    assert causes.stragglers(an_explained(ranks=1)) == []


# Tables


def row_of(record_and_steps, name: str = "causes"):
    return make_tables([record_and_steps])[name]


def test_the_parts_of_a_row_add_up_to_its_step():
    row = row_of(explained_record(full=a_step(ready=(20, 33), exchanges=(1, 6)))).iloc[0]
    assert row[[part for part in causes.PARTS if row[part] == row[part]]].sum() == pytest.approx(row.step_s)
    assert row.rounds == 6
    assert row.spread == "95 % interval"


def test_a_cell_that_was_not_asked_to_explain_says_so_and_has_its_costs_per_epoch():
    row = row_of(factories.measured()).iloc[0]
    assert row.unexplained_because == "explain is false"
    assert row.step_s != row.step_s
    assert row.evaluation_s == 1.0


def test_the_time_of_an_interruption_is_no_cost_of_an_epoch():
    warm, timed = factories.a_segment(warmup=True), factories.a_segment()
    straight, cut = (
        factories.a_record(segments=segments) for segments in ([warm, timed, timed], [warm, timed, warm, timed])
    )
    assert ["between_s" in costs for costs in causes.by_epoch(straight, factories.steps_of(straight))] == [True, False]
    assert ["between_s" in costs for costs in causes.by_epoch(cut, factories.steps_of(cut))] == [False, False]


def test_each_rank_has_a_row_with_its_node():
    table = row_of(explained_record(), "stragglers")
    assert list(table["rank"]) == [0, 1]
    assert set(table.node_name) == {"laptop"}


def test_every_control_is_in_every_round():
    assert {block.control for block in an_explained().blocks} == set(CONTROLS)
