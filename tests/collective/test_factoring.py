"""Where matrices and their factors lie; nothing overlaps and nothing is left out."""

from math import prod

import pytest
import torch

from thinwire.collective._factoring import LEAST_RANK, LEAST_SAVING, factoring, is_thin, width_of

LAYER = ((30, 40), (30,), (60, 30), (60,), (4, 3, 5, 5))
MODELS = {
    "layers": LAYER * 3,
    "nothing between": ((20, 20),) * 5,
    "uneven": ((20, 20), (7,), (20, 20), (9,), (20, 20), (20, 20), (2, 5)),
    "one": ((50, 60),),
    "vectors": ((5,), (), (0,), (3, 0)),
    "empty": (),
}


@pytest.mark.parametrize("rank", [1, 2, 6])
@pytest.mark.parametrize("name", MODELS)
def test_every_element_has_one_place(name, rank):
    shapes = MODELS[name]
    plan = factoring(shapes, rank)
    seen = torch.zeros(sum(map(prod, shapes)))
    for group in plan.groups:
        group.where.of(seen).add_(1)
    for begin, end in plan.stretches:
        assert begin < end
        seen[begin:end] += 1
    assert (seen == 1).all()
    thin = [place for place, shape in enumerate(shapes) if is_thin(shape, rank)]
    assert sorted(t for group in plan.groups for t in group.tensors) == thin


@pytest.mark.parametrize("rank", [1, 2, 6])
@pytest.mark.parametrize("name", MODELS)
def test_factors_fill_their_rows_and_those_of_one_length_are_together(name, rank):
    plan = factoring(MODELS[name], rank)
    for side, runs, size in (
        ("left", plan.left_runs, plan.left_size),
        ("right", plan.right_runs, plan.right_size),
    ):
        by_group, by_run = torch.zeros(size), torch.zeros(size)
        for group in plan.groups:
            factor = getattr(group, side)
            assert factor.columns == (group.where.rows if side == "left" else group.where.columns)
            assert factor.rows == rank
            factor.of(by_group).add_(1)
        for run in runs:
            run.of(by_run).add_(1)
        assert (by_group == 1).all() and (by_run == 1).all()
        assert len({run.columns for run in runs}) == len(runs)


def test_right_factors_lie_in_the_order_of_the_groups():
    groups = factoring(MODELS["layers"], 2).groups
    starts = [group.right.start for group in groups]
    assert starts == sorted(starts)


def test_layers_that_repeat_are_one_product():
    assert [group.where.count for group in factoring(MODELS["layers"], 1).groups] == [3, 3, 3]
    assert [group.where.count for group in factoring(MODELS["uneven"], 2).groups] == [2, 2]


def test_a_view_is_of_the_tensors_themselves():
    flat = torch.arange(4 + 2 * 100.0)[4:]  # not where its storage begins
    (group,) = factoring(((10, 10), (10, 10)), 1).groups
    assert torch.equal(group.where.of(flat), flat.view(2, 10, 10))


def test_factors_save_or_the_tensor_travels_whole():
    assert is_thin((10, 41), 4) is (LEAST_SAVING * 4 * 51 < 410)
    assert is_thin((100, 100), 24) and not is_thin((100, 100), 25)
    assert is_thin((64, 32, 3, 3), 4)
    assert not is_thin((10_000,), 1) and not is_thin((), 1) and not is_thin((1, 10_000), 1)


def test_a_share_is_of_the_width_that_most_elements_have():
    layer = ((768, 768), (768,), (3072, 768), (768, 3072))
    assert width_of(((50257, 768), (1024, 768), *layer * 12)) == 768
    assert width_of(((10, 1000), (64, 64), (64, 3, 3, 3), (200,))) == 10
    assert width_of(((10, 300), (64, 64), (64, 3, 3, 3), (200,))) == 27
    assert width_of(((10, 300), (64, 200), (64, 3, 3, 3), (200,))) == 64
    assert width_of(((200,), ())) == 0


@pytest.mark.parametrize("share", [0.01, 0.125, 0.4])
@pytest.mark.parametrize("name", MODELS)
def test_a_share_is_as_the_rank_that_it_makes(name, share):
    shapes = MODELS[name]
    rank = max(LEAST_RANK, round(share * width_of(shapes)))
    assert factoring(shapes, share) == factoring(shapes, rank)


def test_an_eighth_of_a_wide_model_is_an_eighth_and_of_a_narrow_one_sixteen():
    wide, narrow = ((768, 768), (3072, 768)), ((64, 64), (64, 9000))
    assert factoring(wide, 0.125) == factoring(wide, 96) != factoring(wide, LEAST_RANK)
    assert factoring(narrow, 0.125) == factoring(narrow, 16) != factoring(narrow, 8)
