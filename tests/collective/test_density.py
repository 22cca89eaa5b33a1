"""How many elements of the sum survive: by a warm-up, the collective's density, the sparsifier's.

Covers what GTopK and OkTopK take from the pipeline; see also Pipeline.density_at.
"""

import pytest
import torch

import thinwire as tw
from thinwire.collective import GTopK, OkTopK

NUMEL, STEPS = 10_000, 3


def counts(group, rank, size, recipe, warm_up=None):
    """How many elements a rank selected and an update has, step by step."""
    fields = tw.recipe(recipe).to_dict() | {"bypass": 0}
    if warm_up is not None:
        fields["warm_up"] = warm_up
    sync, counted, before = tw.Synchronizer(fields, group), [], 0
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(10 * step + rank)
        update = sync.average("w", torch.randn(NUMEL, generator=draw))
        selected = round((step + 1) * sync.stats()["total"]["k"])  # the mean over the steps
        counted.append((selected - before, int(update.count_nonzero())))
        before = selected
    sync.close()
    return counted


@pytest.mark.parametrize("collective", ["gtopk", "ok-topk"])
@pytest.mark.parametrize(
    ("sparsifier", "own", "expected"),
    [
        ("topk(0.01)", "(0.001)", (100, 10)),
        ("topk(0.01)", "", (100, 100)),
        ("topk(0.01)", "(density=None)", (100, 100)),
        ("topk(0.005)", "(0.005)", (50, 50)),
    ],
)
def test_the_collective_s_own_density_acts(cluster, collective, sparsifier, own, expected):
    recipe = f"{sparsifier} | raw | {collective}{own} | residual"
    (first, *_), *others = cluster.run(counts, 3, recipe)
    assert first == expected
    assert all(steps[0] == expected for steps in others)


@pytest.mark.parametrize("collective", ["gtopk", "ok-topk"])
def test_a_sum_of_few_selections_is_kept_whole(cluster, collective):
    """What the ranks selected is less than the collective would keep."""
    recipe = f"topk(0.001) | raw | {collective}(0.01) | residual"
    for steps in cluster.run(counts, 3, recipe):
        assert steps[0][0] == 10
        assert 10 < steps[0][1] <= 30


@pytest.mark.parametrize("collective", ["gtopk", "ok-topk"])
def test_a_warm_up_comes_before_both_and_then_each_has_its_own(cluster, collective):
    recipe = f"topk(0.01) | raw | {collective}(0.001) | residual"
    warm_up = {"steps": 1, "densities": (0.05, 0.02)}
    for steps in cluster.run(counts, 2, recipe, warm_up):
        assert [selected for selected, _ in steps] == [500, 200, 100]
        assert [kept for _, kept in steps] == [500, 200, 10]


@pytest.mark.parametrize("name", ["gtopk", "ok-topk"])
def test_the_papers_recipes_prune_to_what_they_select(cluster, name):
    for density in (0.01, 0.03):
        for steps in cluster.run(counts, 2, f"{name}(density={density})"):
            k = round(density * NUMEL)
            assert steps[0] == (k, k)


@pytest.mark.parametrize("collective", ["gtopk", "ok-topk"])
def test_without_a_density_anywhere_it_is_refused(collective):
    with pytest.raises(tw.RecipeError, match="prunes to a density"):
        tw.recipe(f"nonzero | raw | {collective} | residual")
    tw.recipe(f"nonzero | raw | {collective}(0.1) | residual")


@pytest.mark.parametrize("make", [GTopK, OkTopK])
@pytest.mark.parametrize("density", [0, -1, 1.5])
def test_a_density_that_is_not_one_is_refused(make, density):
    with pytest.raises(tw.RecipeError, match="density"):
        make(density)
